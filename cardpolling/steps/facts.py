"""What a step knows of its card: the facts in SQL when the execution began, and what the steps before it have found since."""

from collections.abc import Mapping
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
        """Give the card as it is known now that a step has found ``facts``: for the steps after it and for the choice of rules."""
        known = {name: value for name, value in facts.items() if name in _NAMES}
        if "used_bytes" in known:
            known["usage_checked_at"] = clock.now()
        return replace(self, **known)


_NAMES = frozenset(f.name for f in fields(CardFacts))


def facts_of(card: Card) -> CardFacts:
    """Take the facts of a card; read it with its package (``select_related``)."""
    package = card.package
    return CardFacts(
        id=card.pk,
        carrier_id=card.carrier_id,
        iccid=card.iccid,
        status=card.status,
        realname_verified=card.realname_verified,
        used_bytes=card.used_bytes,
        cycle_start=card.cycle_start,
        usage_checked_at=card.usage_checked_at,
        package_state=card.package_state,
        allowance_bytes=package.allowance_bytes if package else None,
        package_action=package.action if package else PackageAction.NONE,
    )
