"""What new facts of a card mean: which columns change, what enters the history, what usage is booked (pure).

Rules:

1. A first reading is no change: it makes no event.
2. Facts older than those stored are dropped: the newest wins, whatever the order in which results arrive.
3. A new billing cycle keeps the old days and books its counter from zero; a cycle older than the stored one books nothing.
4. Less usage within one cycle is a gateway's fault: flagged once until the counter has caught up, neither stored nor booked.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, tzinfo
from typing import Any, Protocol

from cardpolling.checktypes import CheckType
from carriers.choices import CardStatus, EventKind

LONGEST_WORD = 100


class CardLike(Protocol):
    """The stored facts: a ``Card``, saved or not, or anything with its attributes."""

    status: str
    raw_status: str
    is_online: bool | None
    status_checked_at: datetime | None
    realname_verified: bool | None
    realname_checked_at: datetime | None
    used_bytes: int | None
    cycle_start: date | None
    usage_checked_at: datetime | None
    usage_decreased_at: datetime | None
    package_state: str
    package_checked_at: datetime | None


@dataclass(frozen=True, slots=True)
class Event:
    """A history entry to be written as ``CardEvent(card_id=..., kind=..., old=..., new=..., at=..., source=...)``."""

    kind: str
    old: str
    new: str
    at: datetime
    source: str


@dataclass(frozen=True, slots=True)
class UsageBooking:
    """Usage to be added to a day: ``DailyUsage.objects.book([BookedUsage(card_id, day, used_bytes)])``."""

    day: date
    used_bytes: int


@dataclass(slots=True)
class FactChanges:
    """Columns of ``Card`` to be set, history to be written, usage to be booked."""

    updates: dict[str, Any] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)
    usage: UsageBooking | None = None


@dataclass(frozen=True, slots=True)
class _Reading:
    card: CardLike
    facts: Mapping[str, Any]
    at: datetime
    source: str
    zone: tzinfo

    def day_of(self, moment: datetime) -> date:
        return moment.astimezone(self.zone).date()

    def event(self, kind: EventKind, check_type: CheckType, *, old: str, new: str) -> Event:
        return Event(str(kind), old, new, self.at, self.source or str(check_type))


def changes(
    card: CardLike,
    facts: Mapping[str, Any],
    at: datetime,
    *,
    source: str = "",
    zone: tzinfo = UTC,
) -> FactChanges:
    """Say what follows from facts seen at ``at``; those of several checks may come together.

    ``facts`` are ``Card`` fields without the time fields (``StepResult.facts``). ``source`` names who found them, by default the
    check type. ``zone`` decides on which day usage is booked.
    """
    reading, found = _Reading(card, facts, at, source, zone), FactChanges()
    if "status" in facts and _is_news(card.status_checked_at, at):
        _read_status(reading, found)
    if "realname_verified" in facts and _is_news(card.realname_checked_at, at):
        _read_realname(reading, found)
    if "used_bytes" in facts and _is_news(card.usage_checked_at, at):
        _read_usage(reading, found)
    if "package_state" in facts and _is_news(card.package_checked_at, at):
        _read_package(reading, found)
    return found


def _is_news(checked_at: datetime | None, at: datetime) -> bool:
    return checked_at is None or at >= checked_at


def _read_status(reading: _Reading, found: FactChanges) -> None:
    card, facts = reading.card, reading.facts
    status = str(facts["status"])
    # PostgreSQL refuses NUL in text, and a gateway may send anything.
    raw = str(facts.get("raw_status", status)).replace("\0", "")[:LONGEST_WORD]
    found.updates |= {
        "status": status,
        "raw_status": raw,
        "is_online": facts.get("is_online", card.is_online),
        "status_checked_at": reading.at,
    }
    old, new = _word(card.status, card.raw_status), _word(status, raw)
    is_first = card.status_checked_at is None and card.status == CardStatus.UNKNOWN
    if old != new and not is_first:
        event = reading.event(EventKind.STATUS, CheckType.CARD_STATUS, old=old, new=new)
        found.events.append(event)


def _word(status: str, raw: str) -> str:
    # Two words that both mean "unknown" are still two words.
    return raw if status == CardStatus.UNKNOWN and raw else status


def _read_realname(reading: _Reading, found: FactChanges) -> None:
    old, new = reading.card.realname_verified, reading.facts["realname_verified"]
    found.updates |= {"realname_verified": new, "realname_checked_at": reading.at}
    if old is not None and old != new:
        event = reading.event(
            EventKind.REALNAME, CheckType.REALNAME, old=_verified(old), new=_verified(new)
        )
        found.events.append(event)


def _verified(value: bool | None) -> str:
    return "" if value is None else "verified" if value else "unverified"


def _read_usage(reading: _Reading, found: FactChanges) -> None:
    card, used = reading.card, int(reading.facts["used_bytes"])
    # A gateway that names no cycle goes on with the one we know, and the first one named is the one we are in.
    cycle: date | None = reading.facts.get("cycle_start") or card.cycle_start
    is_new_cycle = card.cycle_start is not None and cycle != card.cycle_start
    before = 0 if is_new_cycle or card.used_bytes is None else card.used_bytes
    if used < before:
        _flag_decrease(reading, found, used)
        return
    found.updates |= {
        "used_bytes": used,
        "cycle_start": cycle,
        "usage_checked_at": reading.at,
        "usage_decreased_at": None,
    }
    if is_new_cycle:
        old, new = str(card.cycle_start), str(cycle)
        found.events.append(reading.event(EventKind.CYCLE, CheckType.CARDDATA, old=old, new=new))
    if not (is_new_cycle and cycle and card.cycle_start and cycle < card.cycle_start):
        found.usage = _booking(reading, added=used - before)


def _booking(reading: _Reading, *, added: int) -> UsageBooking | None:
    """Book what was added; nothing added still makes the day's row, once per day."""
    day, checked_at = reading.day_of(reading.at), reading.card.usage_checked_at
    if not added and checked_at is not None and reading.day_of(checked_at) == day:
        return None
    return UsageBooking(day, added)


def _flag_decrease(reading: _Reading, found: FactChanges, used: int) -> None:
    # The stored fact stays the good one, with the age it has: whoever needs fresh usage sees that it is not.
    if reading.card.usage_decreased_at is not None:
        return
    found.updates["usage_decreased_at"] = reading.at
    event = reading.event(
        EventKind.USAGE_DECREASE,
        CheckType.CARDDATA,
        old=str(reading.card.used_bytes),
        new=str(used),
    )
    found.events.append(event)


def _read_package(reading: _Reading, found: FactChanges) -> None:
    old, new = reading.card.package_state, str(reading.facts["package_state"])
    found.updates |= {"package_state": new, "package_checked_at": reading.at}
    if old != new and reading.card.package_checked_at is not None:
        event = reading.event(EventKind.PACKAGE_STATE, CheckType.PACKAGE, old=old, new=new)
        found.events.append(event)
