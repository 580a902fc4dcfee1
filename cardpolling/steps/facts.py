"""What a step knows of its card: the facts in SQL when the execution began, and what the steps before it have found since."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import date, datetime
from typing import Any

from cardpolling import clock
from carriers.choices import PackageAction
from carriers.models import Card


@dataclass(frozen=True, slots=True)
class CardFacts:
    """A card as the steps see it; ``allowance_bytes`` is None where the card has no package."""

    id: int
    carrier_id: int
    iccid: str
    status: str
    realname_verified: bool | None
    used_bytes: int | None
    cycle_start: date | None
    usage_checked_at: datetime | None
    package_state: str
    allowance_bytes: int | None = None
    package_action: str = PackageAction.NONE

    def updated(self, facts: Mapping[str, Any]) -> "CardFacts":
        """Give the card as it is known now that a step has found ``facts``: for the steps after it and for the choice of rules.

        Less usage within one billing cycle is a gateway's fault and not believed: usage and its age stay as they were.
        """
        known = {name: value for name, value in facts.items() if name in _NAMES}
        if "used_bytes" in known:
            known["cycle_start"] = known.get("cycle_start") or self.cycle_start
            known["usage_checked_at"] = clock.now()
            if self._went_down(known["used_bytes"], known["cycle_start"]):
                known = {name: known[name] for name in known.keys() - _USAGE_NAMES}
        return replace(self, **known)

    def _went_down(self, used_bytes: int, cycle_start: date | None) -> bool:
        is_same_cycle = self.cycle_start in (None, cycle_start)
        return is_same_cycle and self.used_bytes is not None and used_bytes < self.used_bytes


_USAGE_NAMES = frozenset({"used_bytes", "cycle_start", "usage_checked_at"})
_NAMES = frozenset(f.name for f in fields(CardFacts))


_COLUMNS = (
    "pk",
    "carrier_id",
    "iccid",
    "status",
    "realname_verified",
    "used_bytes",
    "cycle_start",
    "usage_checked_at",
    "package_state",
    "package__allowance_bytes",
    "package__action",
)


def read_polled(card_ids: Collection[int]) -> dict[int, CardFacts]:
    """Read those of the cards for which polling is switched on, by id; raises ``DatabaseError``.

    Tuples and not models: making a model costs three times the query's share of a card.
    """
    rows = Card.objects.filter(pk__in=card_ids, is_polled=True).values_list(*_COLUMNS)
    return {row[0]: _facts(row) for row in rows}


def _facts(row: Sequence[Any]) -> CardFacts:
    """Make facts of a row of ``_COLUMNS``, which stand in the order of the fields."""
    known = dict(zip((f.name for f in fields(CardFacts)), row, strict=True))
    return CardFacts(**{**known, "package_action": known["package_action"] or PackageAction.NONE})
