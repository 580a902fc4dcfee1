"""What a provider adapter is: it says how a request is built and how an answer is read, and does no I/O."""

from typing import Any, Protocol

from carriers.gateway.accounts import Account
from carriers.gateway.call import Call
from carriers.gateway.exchange import HttpReply, HttpRequest


class Adapter(Protocol):
    """Speaks one provider's protocol; has no state of its own."""

    def build(self, account: Account, call: Call, reason: str) -> HttpRequest:
        """The request of a call; ``reason`` goes with suspend and resume. Raises ``GatewayError`` (``config``)."""
        ...

    def read(self, account: Account, call: Call, reply: HttpReply) -> Any:
        """The typed answer of the call's operation. Raises ``GatewayError``."""
        ...
