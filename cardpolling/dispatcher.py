"""Claims due cards and publishes them: one tick of every account this process dispatches, several times a second.

An account's tick is bounded (one claim takes at most ``CLAIM_CHUNK`` cards, a tick a few of them) and its troubles are its own:
no account that is slow, failing or huge delays another's.
"""

import logging
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

from redis import Redis, RedisError

from cardpolling import budget, clock, conf, crashes, publishing, scouting, state
from cardpolling.budget import Backlog, PriorityTurns
from cardpolling.checktypes import GATEWAY_CHECK_TYPES, CheckType
from cardpolling.counting import Counts
from cardpolling.dispatchlock import DispatchLocks
from cardpolling.heartbeat import WorkerBeat
from cardpolling.keys import AccountKeys
from cardpolling.ledger import Ledger
from cardpolling.scouting import Scout
from cardpolling.state import Claim, ClaimBatch
from carriers.gateway import Account, limiter

logger = logging.getLogger(__name__)

CLAIM_CHUNK = 200
"""Cards per claim: 1,000 in one call hold Redis for 5 to 11 ms (measured), during which nothing else runs."""

CHUNKS_PER_TICK = 5
LOCK_TTL_MS = 2_000
EXPIRED_PER_TICK = 500
SEARCH_TICKS = 3
DEEP_SCAN_EVERY_TICKS = 8
DEEP_SCAN_LIMIT = 10_000


@dataclass(slots=True)
class _Standing:
    """What a tick finds of an account before it claims."""

    in_flight: int
    priority_due: int
    normal_due: int
    expired: list[str]
    free: Mapping[str, int]
    waiting_jobs: int


@dataclass(slots=True)
class _Memory:
    """What the dispatcher keeps of an account from tick to tick."""

    turns: PriorityTurns = field(default_factory=PriorityTurns)
    unanswered: dict[str, int] = field(default_factory=dict)
    published: list[tuple[int, int]] = field(default_factory=list)
    ticks: int = 0
    scout: Scout | None = None


class Dispatcher:
    """Dispatches the accounts whose lock this process holds; used by one thread."""

    def __init__(
        self,
        client: Redis,
        rq_connection: Redis,
        *,
        process_id: str,
        ledger: Ledger,
        counts: Counts,
    ) -> None:
        self._client = client
        self._rq = rq_connection
        self._process_id = process_id
        self._ledger = ledger
        self._counts = counts
        self._locks = DispatchLocks(client, process_id, LOCK_TTL_MS)
        self._memories: dict[int, _Memory] = {}

    def tick(self, accounts: Sequence[Account], beats: Sequence[WorkerBeat]) -> int:
        """Dispatch every account that is this process's to dispatch, once; give the number of cards published.

        ``beats`` are the live workers, this one included. Raises ``RedisError`` only when Redis is away altogether.
        """
        by_id = {account.carrier_id: account for account in accounts}
        process_ids = {beat.process_id for beat in beats} | {self._process_id}
        held = self._locks.hold(list(by_id), process_ids)
        self._memories = {c: self._memories.get(c) or _Memory() for c in held}
        standings = self._look([by_id[c] for c in held])
        published = 0
        for carrier_id, standing in standings.items():
            try:
                published += self._dispatch(by_id[carrier_id], standing, beats)
            except Exception:
                logger.exception("account not dispatched", extra={"carrier_id": carrier_id})
                self._counts.add(carrier_id, "dispatch_errors")
        return published

    def stop(self) -> None:
        """Give up the locks, so that another process goes on at once."""
        self._locks.give_up_all()

    def _look(self, accounts: Sequence[Account]) -> dict[int, _Standing]:
        """Read what stands of all accounts, in one round trip per server; those that cannot be read are left out."""
        if not accounts:
            return {}
        now_ms = clock.now_ms()
        pipe = self._client.pipeline(transaction=False)
        for account in accounts:
            keys = AccountKeys(account.carrier_id)
            pipe.zcard(keys.inflight)
            pipe.zcount(keys.priority, "-inf", now_ms)
            pipe.zcount(keys.queue, "-inf", now_ms)
            pipe.zrangebyscore(keys.inflight, "-inf", now_ms, start=0, num=EXPIRED_PER_TICK)
            pipe.hset(keys.counts, "last_tick_ms", now_ms)
        replies = pipe.execute(raise_on_error=False)
        horizon_ms = budget.horizon_ms(conf.dispatch_interval_ms())
        free = limiter.calls_left_many(self._client, accounts, horizon_ms)
        jobs = publishing.waiting_jobs([a.carrier_id for a in accounts], self._rq)
        standings = {}
        for i, account in enumerate(accounts):
            in_flight, priority, normal, expired, _ = replies[5 * i : 5 * i + 5]
            carrier_id = account.carrier_id
            broken = next((r for r in replies[5 * i : 5 * i + 5] if isinstance(r, Exception)), None)
            if broken is not None:
                logger.error("queues not read: %s", broken, extra={"carrier_id": carrier_id})
                self._counts.add(carrier_id, "dispatch_errors")
                continue
            standings[carrier_id] = _Standing(
                in_flight=in_flight,
                priority_due=priority,
                normal_due=normal,
                expired=expired,
                free=free[carrier_id],
                waiting_jobs=jobs[carrier_id],
            )
        return standings

    def _dispatch(self, account: Account, standing: _Standing, beats: Sequence[WorkerBeat]) -> int:
        """One tick of one account."""
        memory = self._memories[account.carrier_id]
        memory.ticks += 1
        published = self._recover(account, memory)
        crashed = crashes.note_expired(
            self._client, account.carrier_id, standing.expired, clock.now_ms()
        )
        self._counts.add(account.carrier_id, "crashed", crashed)
        waiting_cards = _waiting_cards(account.carrier_id, standing, beats)
        limit = _in_flight_limit(account, waiting_cards, beats)
        left = self._calls_left(account, standing.free, waiting_cards, beats)
        in_flight = standing.in_flight - len(standing.expired)
        must_sweep = bool(standing.expired)
        has_due = standing.priority_due + standing.normal_due > 0
        for _ in range(CHUNKS_PER_TICK):
            room = max(0, min(limit - in_flight, CLAIM_CHUNK)) if has_due else 0
            if not room and not must_sweep:
                break
            must_sweep = False
            batch = self._claim(account, standing, in_flight, room, left)
            published += self._publish(account, memory, batch.claims)
            in_flight += len(batch.claims)
            self._spend(account, left, len(batch.claims))
            if len(batch.claims) < CLAIM_CHUNK:
                room -= len(batch.claims)
                published += self._claim_behind(account, standing, in_flight, room, left)
                break
        return published

    def _claim_behind(
        self,
        account: Account,
        standing: _Standing,
        in_flight: int,
        room: int,
        left: Mapping[str, int],
    ) -> int:
        """Claim from behind more blocked cards than a claim looks at, where one group is exhausted and another is not."""
        exhausted = _exhausted(account, left)
        is_worth_it = exhausted and len(exhausted) < len(GATEWAY_CHECK_TYPES)
        if not is_worth_it or room <= 0 or standing.normal_due <= scouting.PAGE:
            return 0
        memory = self._memories[account.carrier_id]
        memory.scout = memory.scout or Scout(AccountKeys(account.carrier_id))
        candidates = memory.scout.look(
            self._client, now_ms=clock.now_ms(), exhausted=exhausted, wanted=room
        )
        if candidates is None:
            return 0
        batch = self._claim(account, standing, in_flight, room, left, queue_key=candidates)
        self._counts.add(account.carrier_id, "scouted", len(batch.claims))
        return self._publish(account, memory, batch.claims)

    def _claim(
        self,
        account: Account,
        standing: _Standing,
        in_flight: int,
        room: int,
        left: Mapping[str, int],
        *,
        queue_key: str | None = None,
    ) -> ClaimBatch:
        """Claim up to ``room`` cards, from ``queue_key`` alone where given.

        A claim whose reply is lost is remembered by its token prefix.
        """
        if not self._locks.is_held(account.carrier_id):
            return ClaimBatch(0, ())
        memory = self._memories[account.carrier_id]
        has_both = standing.priority_due > 0 and standing.normal_due > 0
        takes_turns = has_both and room > 0 and queue_key is None
        ratio = account.priority_ratio if takes_turns else 0.0
        quota = memory.turns.quota(room, ratio)
        prefix = uuid.uuid4().hex
        is_deep = memory.ticks % DEEP_SCAN_EVERY_TICKS == 0
        try:
            batch = state.claim(
                self._client,
                AccountKeys(account.carrier_id),
                now_ms=clock.now_ms(),
                lease_ms=conf.lease_ms(),
                limit=in_flight + room,
                # Half a slot more, so that the script's floor() gives the quota and not one less.
                priority_ratio=min(1.0, (quota + 0.5) / room) if ratio else 0.0,
                token_prefix=prefix,
                budgets=left,
                groups=_groups(account),
                realname_counts=True,
                scan_limit=DEEP_SCAN_LIMIT if is_deep else None,
                skip_priority=queue_key is not None or (takes_turns and quota == 0),
                queue_key=queue_key,
            )
        except RedisError:
            memory.unanswered[prefix] = memory.ticks
            raise
        if ratio:
            _settle(memory.turns, batch, room=room, quota=quota, ratio=ratio)
        self._counts.add(account.carrier_id, "claimed", len(batch.claims))
        self._counts.add(account.carrier_id, "expired", batch.expired)
        return batch

    def _publish(self, account: Account, memory: _Memory, claims: Sequence[Claim]) -> int:
        """Publish claims; those that could not be are released at once."""
        if not claims:
            return 0
        failed = publishing.publish(claims, self._rq)
        if failed:
            state.release_many(self._client, failed, now_ms=clock.now_ms())
            self._counts.add(account.carrier_id, "released", len(failed))
        published = len(claims) - len(failed)
        memory.published.append((clock.now_ms(), published))
        self._counts.add(account.carrier_id, "published", published)
        return published

    def _recover(self, account: Account, memory: _Memory) -> int:
        """Publish claims whose reply was lost: they stand in the in-flight set under their token prefix."""
        if not memory.unanswered:
            return 0
        prefixes = tuple(f"{prefix}:" for prefix in memory.unanswered)
        in_flight = AccountKeys(account.carrier_id).inflight
        tokens = cast("list[str]", self._client.zrange(in_flight, 0, -1))
        claims = [
            Claim(account.carrier_id, token.partition(":")[2], token, from_priority=False)
            for token in tokens
            if token.startswith(prefixes)
        ]
        memory.unanswered = {
            prefix: tick
            for prefix, tick in memory.unanswered.items()
            if not claims and memory.ticks - tick < SEARCH_TICKS
        }
        self._counts.add(account.carrier_id, "recovered", len(claims))
        return self._publish(account, memory, claims)

    def _calls_left(
        self,
        account: Account,
        free: Mapping[str, int],
        waiting_cards: int,
        beats: Sequence[WorkerBeat],
    ) -> dict[str, int]:
        """Calls that may be claimed per group: what the limiter has free less what is claimed and not yet called.

        A heartbeat tells of a claim only after its job has been taken, so what was published since the oldest heartbeat counts
        as not begun, or what waits in RQ where that is more.
        """
        carrier_id = account.carrier_id
        memory = self._memories[carrier_id]
        since_ms = min((beat.beat_ms for beat in beats), default=0)
        memory.published = [(at, cards) for at, cards in memory.published if at >= since_ms]
        recent = sum(cards for _, cards in memory.published)
        owed: dict[str, int] = {}
        for beat in beats:
            load = beat.loads.get(carrier_id)
            for group, calls in (load.owed if load else {}).items():
                owed[group] = owed.get(group, 0) + calls
        need = {group.name: self._ledger.need(carrier_id, group.name) for group in account.groups}
        backlog = Backlog(owed, max(recent, waiting_cards))
        return budget.calls_left(free, backlog, need)

    def _spend(self, account: Account, left: dict[str, int], cards: int) -> None:
        for group in left:
            spent = cards * self._ledger.need(account.carrier_id, group)
            left[group] = max(0, left[group] - round(spent))


def _waiting_cards(carrier_id: int, standing: _Standing, beats: Sequence[WorkerBeat]) -> int:
    """Claims that no worker has begun: what is in flight and held by nobody, but no more than the jobs that wait can carry.

    The jobs bound it because a worker that was killed holds nothing, and its claims stay in flight until their leases end.
    """
    held = sum(beat.held.get(carrier_id, 0) for beat in beats)
    in_flight = standing.in_flight - len(standing.expired)
    return max(0, min(in_flight - held, standing.waiting_jobs * conf.cards_per_job()))


def _groups(account: Account) -> dict[CheckType, str]:
    """The rate-limit group of each check type that has one."""
    groups = {t: account.group_of(t) for t in GATEWAY_CHECK_TYPES}
    return {t: group.name for t, group in groups.items() if group is not None}


def _exhausted(account: Account, left: Mapping[str, int]) -> list[CheckType]:
    """The check types for which no call is left."""
    groups = _groups(account)
    return [t for t in GATEWAY_CHECK_TYPES if t in groups and left.get(groups[t], 1) <= 0]


def _settle(
    turns: PriorityTurns, batch: ClaimBatch, *, room: int, quota: int, ratio: float
) -> None:
    from_priority = sum(claim.from_priority for claim in batch.claims)
    turns.settle(
        room=room,
        quota=quota,
        ratio=ratio,
        from_priority=from_priority,
        from_normal=len(batch.claims) - from_priority,
    )


def _in_flight_limit(account: Account, waiting: int, beats: Sequence[WorkerBeat]) -> int:
    is_limited = all(account.group_of(t) is not None for t in GATEWAY_CHECK_TYPES)
    rate = sum(group.max_per_second for group in account.groups) if is_limited else None
    return budget.in_flight_limit(
        configured=account.max_in_flight,
        places=sum(beat.places for beat in beats),
        calls_per_s=rate,
        lease_ms=conf.lease_ms(),
        waiting=waiting,
    )
