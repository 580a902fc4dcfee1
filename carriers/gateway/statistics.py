"""Counts of calls per account, operation, outcome and minute, kept 48 hours.

Counted in memory and written in batches, so that no call costs a round trip. Fields of a minute's hash are
``<operation>|<outcome>|n`` and ``|us`` (calls and their duration), ``<operation>|wait|n`` and ``|us`` (slots waited for, apart
from the calls) and ``<operation>|refused|n`` (calls that the guard refused, so that no request was sent).
"""

import atexit
import logging
import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from redis import Redis, RedisError, ResponseError

from cardpolling import clock
from cardpolling.keys import AccountKeys
from carriers.gateway.call import Call
from carriers.gateway.errors import GatewayError

logger = logging.getLogger(__name__)

KEPT_S = 48 * 3600
MINUTE_MS = 60_000
MAX_KEPT_COUNTS = 100_000
FLUSH_AFTER_S = 1.0

SUCCESS = "success"
CANCELLED = "cancelled"
WAIT = "wait"
REFUSED = "refused"

_Key = tuple[int, int, str, str]
"""Carrier id, epoch minute, operation, outcome."""


@dataclass(frozen=True, slots=True)
class CallTotals:
    """Sums over a span of time. ``calls`` were sent; ``refused`` were not, and are in no other number."""

    calls: int = 0
    failures: int = 0
    refused: int = 0
    waits: int = 0
    duration_s: float = 0.0
    wait_s: float = 0.0


class Statistics:
    """Counts until they are flushed; safe for threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: dict[_Key, tuple[int, int]] = {}
        self._timer: threading.Timer | None = None

    def count_call(self, call: Call, error: BaseException | None, duration_s: float) -> None:
        """One attempt that was granted, and how it ended."""
        self._add(call, _outcome(error), duration_s)

    def count_wait(self, call: Call, wait_s: float) -> None:
        """A slot that was waited for."""
        self._add(call, WAIT, wait_s)

    def count_refusal(self, call: Call) -> None:
        """A call that got no slot."""
        self._add(call, REFUSED, 0.0)

    def flush(self, client: Redis) -> None:
        """Write what was counted in one pipeline; raises ``RedisError``, and keeps the counts for the next time.

        A count that Redis itself refuses is lost: kept, it would be refused for ever, and the others be written again and again.
        """
        with self._lock:
            counts, self._counts = self._counts, {}
        if not counts:
            return
        pipe = client.pipeline(transaction=False)
        keys = {(c, minute): AccountKeys(c).statistics(minute) for c, minute, _, _ in counts}
        for (carrier_id, minute, operation, outcome), (number, us) in counts.items():
            pipe.hincrby(keys[carrier_id, minute], f"{operation}|{outcome}|n", number)
            if us:
                pipe.hincrby(keys[carrier_id, minute], f"{operation}|{outcome}|us", us)
        for key in keys.values():
            pipe.expire(key, KEPT_S)
        try:
            replies = pipe.execute(raise_on_error=False)
        except RedisError:
            self._keep(counts)
            raise
        refusals = [reply for reply in replies if isinstance(reply, ResponseError)]
        if refusals:
            logger.error("statistics not written: %s", refusals[0])

    def flush_soon(self, client: Redis) -> None:
        """Flush within a second, for callers without a loop that does; what is left when the process ends is flushed then."""
        with self._lock:
            if self._timer is not None:
                return
            if not _exit_flushes:
                atexit.register(_flush_at_exit)
            _exit_flushes[id(self)] = (self, client)
            self._timer = threading.Timer(FLUSH_AFTER_S, self._flush_quietly, [client])
            self._timer.daemon = True
            self._timer.start()

    def flush_now(self, client: Redis) -> None:
        """Flush at once what :meth:`flush_soon` would flush; where Redis is away it is kept."""
        with self._lock:
            timer, self._timer = self._timer, None
        if timer is not None:
            timer.cancel()
        self._flush_quietly(client)

    def begin_anew(self) -> None:
        """Forget all, in the child of a fork: what was counted is its parent's to write, and so is the timer."""
        self._lock = threading.Lock()
        self._counts = {}
        self._timer = None

    def _flush_quietly(self, client: Redis) -> None:
        with self._lock:
            self._timer = None
        try:
            self.flush(client)
        except RedisError:
            return

    def _add(self, call: Call, outcome: str, seconds: float) -> None:
        if call.carrier_id is None:
            return
        try:
            minute = clock.now_ms() // MINUTE_MS
        except RedisError:
            return
        key = (call.carrier_id, minute, call.operation, outcome)
        with self._lock:
            number, us = self._counts.get(key, (0, 0))
            self._counts[key] = (number + 1, us + round(seconds * 1_000_000))

    def _keep(self, counts: dict[_Key, tuple[int, int]]) -> None:
        """Put counts back that could not be written; beyond the bound the newest stay."""
        with self._lock:
            room = MAX_KEPT_COUNTS - len(self._counts)
            for key in sorted(counts, key=lambda k: -k[1])[: max(0, room)]:
                number, us = self._counts.get(key, (0, 0))
                self._counts[key] = (number + counts[key][0], us + counts[key][1])


_exit_flushes: dict[int, tuple[Statistics, Redis]] = {}


def _flush_at_exit() -> None:
    for statistics, client in _exit_flushes.values():
        statistics._flush_quietly(client)


def last_minute(client: Redis, carrier_ids: Sequence[int], *, now_ms: int) -> dict[int, CallTotals]:
    """Totals of the last full minute, by carrier id."""
    minute = now_ms // MINUTE_MS - 1
    return totals(client, carrier_ids, first_minute=minute, last_minute=minute)


def totals(
    client: Redis, carrier_ids: Sequence[int], *, first_minute: int, last_minute: int
) -> dict[int, CallTotals]:
    """Totals of a span of epoch minutes, both ends included, by carrier id; one round trip."""
    counts = read(client, carrier_ids, first_minute=first_minute, last_minute=last_minute)
    return {carrier_id: _sum(fields) for carrier_id, fields in counts.items()}


def read(
    client: Redis, carrier_ids: Sequence[int], *, first_minute: int, last_minute: int
) -> dict[int, Counter[str]]:
    """Sum of the fields of a span of epoch minutes, by carrier id; one round trip."""
    minutes = range(first_minute, last_minute + 1)
    pipe = client.pipeline(transaction=False)
    for carrier_id in carrier_ids:
        for minute in minutes:
            pipe.hgetall(AccountKeys(carrier_id).statistics(minute))
    replies = iter(pipe.execute() if carrier_ids and minutes else ())
    counts: dict[int, Counter[str]] = {carrier_id: Counter() for carrier_id in carrier_ids}
    for carrier_id in carrier_ids:
        for _ in minutes:
            counts[carrier_id].update({name: int(n) for name, n in next(replies).items()})
    return counts


def _sum(fields: Counter[str]) -> CallTotals:
    sums: Counter[tuple[str, str]] = Counter()
    for name, number in fields.items():
        _operation, _, rest = name.partition("|")
        outcome, _, unit = rest.partition("|")
        kind = outcome if outcome in (WAIT, REFUSED, SUCCESS) else "failure"
        sums[kind, unit] += number
    failures = sums["failure", "n"]
    return CallTotals(
        calls=sums[SUCCESS, "n"] + failures,
        failures=failures,
        refused=sums[REFUSED, "n"],
        waits=sums[WAIT, "n"],
        duration_s=(sums[SUCCESS, "us"] + sums["failure", "us"]) / 1_000_000,
        wait_s=sums[WAIT, "us"] / 1_000_000,
    )


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return SUCCESS
    return error.category.value if isinstance(error, GatewayError) else CANCELLED
