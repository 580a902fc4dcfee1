"""Every way in which a real gateway misbehaves, by name.

A kind is a function from an exchange to what happens on the wire. To add one, write it under ``@kind`` in the module it belongs to:
``--fault`` and the command's help know it from then on, and the test that walks all kinds asks for its row.
"""

from carriers.simulator.kinds import answers, bodies, business, connections, facts
from carriers.simulator.kinds.registry import KINDS, Exchange, Kind

__all__ = ["KINDS", "Exchange", "Kind", "answers", "bodies", "business", "connections", "facts"]
