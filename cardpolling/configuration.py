"""The polling configuration in force: a snapshot of the active configurations, at most a second old.

A card's rules are the first active configuration, by rank, whose match rules fit the card. Every process asks here; nobody reads
``PollingConfig`` for a decision of its own.
"""

import asyncio
import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from django.db import DatabaseError, InterfaceError

from cardpolling import clock
from cardpolling.checktypes import DEFAULT_STEP_ORDER, CheckType
from cardpolling.errors import ConfigurationUnavailable
from cardpolling.models import PollingConfig
from cardpolling.rules import Rules

__all__ = ("Configuration", "MatchedRules", "Rules", "current", "forget")

logger = logging.getLogger(__name__)

FRESH_FOR_S = 1.0
_NAMES = frozenset(t.value for t in CheckType)


@dataclass(frozen=True, slots=True)
class MatchedRules:
    """One configuration: which cards it is for, and what holds for them; None and '' match any card."""

    carrier_id: int | None
    status: str
    realname_verified: bool | None
    rules: Rules

    def fits(self, carrier_id: int, status: str, realname_verified: bool | None) -> bool:
        """Whether a card with these values is meant."""
        return (
            self.carrier_id in (None, carrier_id)
            and self.status in ("", status)
            and self.realname_verified in (None, realname_verified)
        )


@dataclass(frozen=True, slots=True)
class Configuration:
    """All active configurations, first match first."""

    ranked: tuple[MatchedRules, ...] = ()

    def match(self, carrier_id: int, status: str, realname_verified: bool | None) -> Rules | None:
        """Give the rules that hold for a card, or None when no configuration polls it."""
        for candidate in self.ranked:
            if candidate.fits(carrier_id, status, realname_verified):
                return candidate.rules if candidate.rules.intervals_s else None
        return None

    @property
    def longest_wait_s(self) -> int:
        """The longest interval or back-off there is."""
        rules = [matched.rules for matched in self.ranked]
        waits_s = (max(*r.intervals_s.values(), r.backoff_cap_s, 0) for r in rules)
        return max(waits_s, default=0)


class _Snapshot:
    """The process-wide snapshot; one thread refreshes, the others go on with what stands."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value: Configuration | None = None
        self._read_at_s = 0.0

    def get(self) -> Configuration:
        """Give the snapshot, read anew where it is too old; the last one where SQL does not answer or may not be waited for."""
        value = self._value
        if value is not None and (self._is_fresh() or _is_on_loop()):
            return value
        if value is None:
            with self._lock:
                return self._refresh()
        if self._lock.acquire(blocking=False):
            try:
                return self._refresh()
            finally:
                self._lock.release()
        return value

    def _refresh(self) -> Configuration:
        value = self._value
        if value is not None and self._is_fresh():
            return value
        try:
            value = read()
        except (DatabaseError, InterfaceError) as error:
            if value is None:
                raise ConfigurationUnavailable from error
            logger.warning(
                "polling configuration not read, the last one stays in force", exc_info=True
            )
        # Also after a failure: SQL that is away is asked once a second, not once a card.
        self._value, self._read_at_s = value, clock.monotonic()
        return value

    def forget(self) -> None:
        """Read anew at the next question."""
        with self._lock:
            self._value = None

    def _is_fresh(self) -> bool:
        return clock.monotonic() - self._read_at_s < FRESH_FOR_S


def _is_on_loop() -> bool:
    """Whether an event loop runs on this thread: it never waits for SQL, and the threads beside it keep the snapshot fresh."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


_snapshot = _Snapshot()


def current() -> Configuration:
    """Give the configuration in force, at most a second old.

    While SQL does not answer the last one read stays in force; raises ``ConfigurationUnavailable`` where there has been none.
    """
    return _snapshot.get()


def forget() -> None:
    """Drop the snapshot, so that the next question reads SQL: after a change in this process, and in tests."""
    _snapshot.forget()


def read() -> Configuration:
    """Read the active configurations from SQL."""
    rows = PollingConfig.objects.filter(is_active=True).order_by("rank", "pk")
    return Configuration(tuple(_matched(row) for row in rows))


def _matched(row: PollingConfig) -> MatchedRules:
    return MatchedRules(
        carrier_id=row.carrier_id,
        status=row.status,
        realname_verified=row.realname_verified,
        rules=rules_of(row),
    )


def rules_of(row: PollingConfig) -> Rules:
    """Turn a configuration's row into rules."""
    return Rules(
        config_id=row.pk,
        name=row.name,
        intervals_s=_intervals_s(row),
        step_order=_step_order(row.step_order),
        step_timeout_s=float(row.step_timeout_s),
        total_timeout_s=float(row.total_timeout_s),
        backoff_base_s=row.backoff_base_s,
        backoff_cap_s=row.backoff_cap_s,
        alert_after_failures=row.alert_after_failures,
        cooldown_s=row.cooldown_s,
    )


def _intervals_s(row: PollingConfig) -> Mapping[CheckType, int]:
    """The polled types; the name of a type's field is the type's own name."""
    intervals_s = {t: getattr(row, f"{t}_interval_s") for t in CheckType}
    return {t: interval_s for t, interval_s in intervals_s.items() if interval_s}


def _step_order(names: Any) -> tuple[CheckType, ...]:
    """The order of the steps; a type that the list leaves out comes at the end, a word that is no type is passed over."""
    listed = names if isinstance(names, list) else []
    known = [CheckType(n) for n in listed if isinstance(n, str) and n in _NAMES]
    return tuple(dict.fromkeys((*known, *DEFAULT_STEP_ORDER)))
