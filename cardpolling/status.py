"""What is going on, per account and per worker process, as one value: for ``polling_status``, the demo's table, the admin."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from redis import Redis
from redis.client import Pipeline

from cardpolling import clock, heartbeat
from cardpolling.heartbeat import WorkerBeat
from cardpolling.keys import AccountKeys
from carriers.gateway import statistics
from carriers.models import Carrier

QUESTIONS = 8
COUNTS = ("claimed", "expired", "lost", "mended")


@dataclass(frozen=True, slots=True)
class AccountStatus:
    """One account.

    ``limit_per_second`` is the sum over its rate-limit groups, None where it has none. ``expired`` and ``lost_claims`` are totals
    since the state was built; the calls are those of the last 60 s (``_calls_of_last_minute``).
    """

    carrier_id: int
    code: str
    name: str
    is_enabled: bool
    cards: int
    priority_cards: int
    due_now: int
    oldest_due_age_s: float | None
    in_flight: int
    calls_last_minute: int
    failures_last_minute: int
    limit_per_second: float | None
    claimed: int
    expired: int
    lost_claims: int
    mended: int

    @property
    def limit_use(self) -> float | None:
        """Calls of the last minute, as a share of what the limit allows."""
        if not self.limit_per_second:
            return None
        return self.calls_last_minute / (60 * self.limit_per_second)


@dataclass(frozen=True, slots=True)
class WorkerStatus:
    """One worker process; ``refusal`` says why it claims nothing, empty where it does."""

    process_id: str
    host: str
    pid: int
    version: str
    slots: int
    slots_busy: int
    heartbeat_age_s: float
    up_s: float
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class Status:
    """All of it at one moment of Redis's clock."""

    at_ms: int
    accounts: tuple[AccountStatus, ...]
    workers: tuple[WorkerStatus, ...]


def collect(client: Redis) -> Status:
    """Read the status of all accounts and workers: two queries of SQL, four round trips of Redis.

    Raises ``RedisError`` where Redis does not answer.
    """
    now_ms = clock.now_ms()
    carriers = list(Carrier.objects.prefetch_related("rate_limit_groups").order_by("code"))
    pipe = client.pipeline(transaction=False)
    for carrier in carriers:
        _ask(pipe, AccountKeys(carrier.pk), now_ms)
    answers = pipe.execute()
    calls = _calls_of_last_minute(client, [carrier.pk for carrier in carriers], now_ms)
    accounts = tuple(
        _account(carrier, answers[i * QUESTIONS : (i + 1) * QUESTIONS], calls, now_ms)
        for i, carrier in enumerate(carriers)
    )
    workers = tuple(_worker(beat, now_ms) for beat in heartbeat.workers(client, now_ms))
    return Status(now_ms, accounts, workers)


def _calls_of_last_minute(
    client: Redis, carrier_ids: Sequence[int], now_ms: int
) -> dict[int, tuple[int, int]]:
    """Calls and failures of the last 60 s, by carrier id.

    Calls are counted by whole minutes, so of the minute before the present one that share counts which still lies within.
    """
    minute, elapsed_ms = divmod(now_ms, statistics.MINUTE_MS)
    present, before = (
        statistics.totals(client, carrier_ids, first_minute=m, last_minute=m)
        for m in (minute, minute - 1)
    )
    share = 1 - elapsed_ms / statistics.MINUTE_MS
    return {
        carrier_id: (
            present[carrier_id].calls + round(share * before[carrier_id].calls),
            present[carrier_id].failures + round(share * before[carrier_id].failures),
        )
        for carrier_id in carrier_ids
    }


def _ask(pipe: Pipeline, keys: AccountKeys, now_ms: int) -> None:
    """Put the questions about one account; their number and order are those that ``_account`` reads."""
    for queue in (keys.priority, keys.queue):
        pipe.zcard(queue)
        pipe.zcount(queue, "-inf", now_ms)
        pipe.zrange(queue, 0, 0, withscores=True)
    pipe.zcount(keys.inflight, f"({now_ms}", "+inf")
    pipe.hmget(keys.counts, COUNTS)


def _account(
    carrier: Carrier, answers: Sequence[Any], calls: Mapping[int, tuple[int, int]], now_ms: int
) -> AccountStatus:
    priority_cards, priority_due, priority_first, cards, due, first, in_flight, counts = answers
    claimed, expired, lost, mended = (int(text or 0) for text in counts)
    calls_last_minute, failures_last_minute = calls[carrier.pk]
    limits = [group.max_per_second for group in carrier.rate_limit_groups.all()]
    return AccountStatus(
        carrier_id=carrier.pk,
        code=carrier.code,
        name=carrier.name,
        is_enabled=carrier.is_enabled,
        cards=priority_cards + cards,
        priority_cards=priority_cards,
        due_now=priority_due + due,
        oldest_due_age_s=_oldest_age_s([*priority_first, *first], now_ms),
        in_flight=in_flight,
        calls_last_minute=calls_last_minute,
        failures_last_minute=failures_last_minute,
        limit_per_second=sum(limits) if limits else None,
        claimed=claimed,
        expired=expired,
        lost_claims=lost,
        mended=mended,
    )


def _oldest_age_s(first: Sequence[tuple[str, float]], now_ms: int) -> float | None:
    """How long the card that waits longest is due, None where none is."""
    earliest_ms = min((score for _card_id, score in first), default=None)
    if earliest_ms is None or earliest_ms > now_ms:
        return None
    return round((now_ms - earliest_ms) / 1000, 3)


def _worker(beat: WorkerBeat, now_ms: int) -> WorkerStatus:
    return WorkerStatus(
        process_id=beat.process_id,
        host=beat.host,
        pid=beat.pid,
        version=beat.version,
        slots=beat.places,
        slots_busy=beat.busy,
        heartbeat_age_s=max(0, now_ms - beat.beat_ms) / 1000,
        up_s=max(0, now_ms - beat.started_ms) / 1000,
        refusal=beat.refusal,
    )
