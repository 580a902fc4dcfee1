"""What ``carriers`` tells the rest of the product; it does not know who listens.

Both signals are sent **inside** the transaction that makes the change, by ``save()``, ``delete()`` and ``QuerySet.update()``,
``delete()``, ``bulk_update()`` of ``Card`` and ``Carrier``, by ``bulk_create()`` and ``create_many()`` of ``Card`` (the importer),
and when the deletion of an account takes its cards along. A receiver must do its work in ``transaction.on_commit``. What passes by
the models (``loaddata``, SQL by hand) tells nobody; the reconciler finds it.

``cards_changed(sender=Card, changes: Sequence[CardChange])``
    Cards came under polling, left it, or moved to another account. At most ``BATCH`` changes per call; a big import or deletion
    sends many. Nothing is sent for a change that leaves polling as it was (facts, package, name of the account).

``account_changed(sender=Carrier, carrier_id: int, kind: AccountChange)``
    An account was created, enabled, disabled, changed in some other way, or deleted. On deletion ``cards_changed`` comes first, for
    all its cards. Enabling and disabling send no ``cards_changed``: the cards stay the account's.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

from django.dispatch import Signal

BATCH = 1000

cards_changed = Signal()
account_changed = Signal()


@dataclass(frozen=True, slots=True)
class CardChange:
    """A card before and after, seen by the polling engine.

    ``old_carrier_id`` is the account under which the card was polled, ``new_carrier_id`` the one under which it is polled now; None
    = not under polling (no such card, or ``is_polled`` off). Created and switched on: None -> 7. Deleted and switched off:
    7 -> None. Moved: 7 -> 8. The two always differ.
    """

    card_id: int
    old_carrier_id: int | None
    new_carrier_id: int | None


class AccountChange(StrEnum):
    """What happened to an account."""

    CREATED = "created"
    ENABLED = "enabled"
    DISABLED = "disabled"
    CHANGED = "changed"
    DELETED = "deleted"


def tell_cards(sender: type, changes: Iterable[CardChange]) -> int:
    """Send the changes that matter, batch by batch; give their number."""
    told = 0
    relevant = (c for c in changes if c.old_carrier_id != c.new_carrier_id)
    while batch := tuple(islice(relevant, BATCH)):
        cards_changed.send(sender=sender, changes=batch)
        told += len(batch)
    return told


def tell_account(sender: type, *, carrier_id: int, kind: AccountChange) -> None:
    """Send one change of one account."""
    account_changed.send(sender=sender, carrier_id=carrier_id, kind=kind)
