"""The simulated cards: facts derived from the ICCID, so that a second start answers alike."""

import functools
import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta

from carriers.simulator import ownclock

DAY_S = 86_400
REMEMBERED_CARDS = 20_000
EPOCH = date(1970, 1, 1)
# Hash-derived dates lie in the year after this one: surely past, whatever the host's clock says.
LONG_AGO = datetime(2024, 1, 1, tzinfo=UTC)
LAST_COMMON_DAY = 28
VERIFIED_SHARE = 0.9
ONLINE_SHARE = 0.7
# (share of all cards, status), and how much a typical card uses a day: from 16 KiB to 64 MiB.
STATUS_SHARES = (
    (0.86, "active"),
    (0.06, "suspended"),
    (0.04, "testing"),
    (0.02, "inventory"),
    (0.02, "deactivated"),
)
LEAST_BYTES_A_DAY = 16 * 1024
DOUBLINGS_OF_USE = 12
METERED_STATUSES = frozenset({"active", "testing"})
SWITCHABLE_STATUSES = frozenset({"active", "testing", "suspended"})


@dataclass(frozen=True, slots=True)
class CardFacts:
    """What the gateway knows of one card at one moment."""

    status: str
    online: bool
    changed_at: datetime | None
    used_bytes: int
    cycle_start: date
    verified: bool
    verified_at: datetime | None


@dataclass(frozen=True, slots=True)
class Nature:
    """What a card is by its ICCID alone."""

    status: str
    is_online: bool
    changed_s: float
    bytes_a_day: float
    cycle_day: int
    is_verified: bool
    verified_s: float

    @classmethod
    @functools.lru_cache(maxsize=REMEMBERED_CARDS)
    def of(cls, iccid: str) -> "Nature":
        """Derive a card's nature from a hash of its ICCID."""
        digest = hashlib.blake2b(iccid.encode(), digest_size=28).digest()
        parts = [int.from_bytes(digest[i : i + 4], "big") / 2**32 for i in range(0, 28, 4)]
        return cls(
            status=_status_of(parts[0]),
            is_online=parts[1] < ONLINE_SHARE,
            changed_s=LONG_AGO.timestamp() + int(parts[2] * 365 * DAY_S),
            bytes_a_day=LEAST_BYTES_A_DAY * 2 ** (parts[3] * DOUBLINGS_OF_USE),
            cycle_day=1 + int(parts[4] * LAST_COMMON_DAY),
            is_verified=parts[5] < VERIFIED_SHARE,
            verified_s=LONG_AGO.timestamp() + int(parts[6] * 365 * DAY_S),
        )

    def cycle_start(self, at_s: float) -> date:
        """First day of the billing cycle that runs at a moment (UTC)."""
        today = datetime.fromtimestamp(at_s, UTC).date()
        if today.day >= self.cycle_day:
            return today.replace(day=self.cycle_day)
        last_month = today.replace(day=1) - timedelta(days=1)
        return last_month.replace(day=self.cycle_day)


@dataclass(frozen=True, slots=True)
class Switch:
    """A suspend or resume that was accepted; the status before it holds until it takes effect."""

    status: str
    effective_s: float


@dataclass(slots=True)
class Meter:
    """A card's status and usage since it last changed; before any change, since for ever."""

    status: str
    since_s: float
    used_bytes: int = 0
    pending: Switch | None = None


@dataclass(slots=True)
class World:
    """All cards of all accounts.

    Cards that nobody touched cost no memory: their facts are computed when asked. ``now_s`` is the wall clock, settable.
    """

    effect_delay_ms: int = 5_000
    now_s: Callable[[], float] = ownclock.wall_s
    _meters: dict[str, Meter] = field(default_factory=dict)
    _set_facts: dict[str, dict[str, object]] = field(default_factory=dict)
    _missing: set[str] = field(default_factory=set)

    def facts(self, iccid: str) -> CardFacts | None:
        """A card's facts now; None where the account has no such card."""
        if iccid in self._missing:
            return None
        nature, now_s = Nature.of(iccid), self.now_s()
        meter, cycle_start = self._meter(iccid, nature, now_s), nature.cycle_start(now_s)
        facts = CardFacts(
            status=meter.status,
            online=nature.is_online and meter.status == "active",
            changed_at=_moment(meter.since_s),
            used_bytes=_used_bytes(nature, meter, cycle_start, now_s),
            cycle_start=cycle_start,
            verified=nature.is_verified,
            verified_at=_moment(nature.verified_s) if nature.is_verified else None,
        )
        settings = self._set_facts.get(iccid)
        return facts if settings is None else replace(facts, **settings)  # type: ignore[arg-type]

    def switch(self, iccid: str, status: str) -> bool:
        """Accept a suspend or resume, to take effect after the delay; False while the opposite one is pending.

        The same order again is accepted and changes nothing: the first one's time stands.
        """
        nature, now_s = Nature.of(iccid), self.now_s()
        meter = self._meter(iccid, nature, now_s)
        if meter.pending is not None:
            return meter.pending.status == status
        if meter.status != status:
            meter.pending = Switch(status, now_s + self.effect_delay_ms / 1000)
            self._meters[iccid] = meter
        return True

    def set_card(self, iccid: str, **facts: object) -> None:
        """Fix facts of a card (names of ``CardFacts``) until set anew; the status lasts until a switch changes it."""
        unknown = facts.keys() - CardFacts.__dataclass_fields__.keys()
        if unknown:
            raise ValueError(f"no such fact of a card: {', '.join(sorted(unknown))}")
        if "status" in facts:
            status = str(facts.pop("status"))
            self._meters[iccid] = Meter(status, self.now_s(), self._used_now(iccid))
        self._missing.discard(iccid)
        self._set_facts[iccid] = self._set_facts.get(iccid, {}) | facts

    def remove_card(self, iccid: str) -> None:
        """Make the gateway answer "card not found" for a card, until a fact of it is set."""
        self._missing.add(iccid)

    def _used_now(self, iccid: str) -> int:
        nature, now_s = Nature.of(iccid), self.now_s()
        meter = self._meter(iccid, nature, now_s)
        return _used_bytes(nature, meter, nature.cycle_start(now_s), now_s)

    def _meter(self, iccid: str, nature: Nature, now_s: float) -> Meter:
        """The card's meter, with a switch whose time has come carried out."""
        meter = self._meters.get(iccid)
        if meter is None:
            return Meter(nature.status, nature.changed_s)
        switch = meter.pending
        if switch is not None and switch.effective_s <= now_s:
            at_s = switch.effective_s
            used_bytes = _used_bytes(nature, meter, nature.cycle_start(at_s), at_s)
            meter = self._meters[iccid] = Meter(switch.status, switch.effective_s, used_bytes)
        return meter


def _status_of(part: float) -> str:
    for share, status in STATUS_SHARES:
        if part < share:
            return status
        part -= share
    return STATUS_SHARES[0][1]


def _moment(at_s: float) -> datetime:
    return datetime.fromtimestamp(int(at_s), UTC)


def _used_bytes(nature: Nature, meter: Meter, cycle_start: date, at_s: float) -> int:
    """Bytes of the cycle: what stood at the last change within it, and steady use since where metered."""
    start_s = (cycle_start - EPOCH).days * DAY_S
    begun_s, used_bytes = float(start_s), 0
    if meter.since_s > start_s:
        begun_s, used_bytes = meter.since_s, meter.used_bytes
    if meter.status not in METERED_STATUSES:
        return used_bytes
    return used_bytes + int(nature.bytes_a_day * (at_s - begun_s) / DAY_S)
