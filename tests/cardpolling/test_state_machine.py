"""All scripts together: whatever happens in whatever order, no card is lost, doubled or left without a way back.

Programs that dispatch, execute, crash, request and remove act in an order that hypothesis chooses, on a clock that stands still
between them. Leases end by that clock: the machine deletes keys when their time has come, as a server would. All times are whole
minutes, so that none is up by the server's own clock while a script runs. ``CARDPOLLING_EXAMPLES`` sets how many runs are made.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from cardpolling import clock, connection, state
from cardpolling.checktypes import CheckType
from cardpolling.due import DueEntry, FieldChanges, Guarded
from cardpolling.keys import AccountKeys
from cardpolling.state import Claim, ExecRight
from tests.cardpolling import keyspace

EXAMPLES = int(os.environ.get("CARDPOLLING_EXAMPLES", "300"))
START_MS = 1_764_547_200_000
MINUTE_MS = 60_000
LEASE_MS = 10 * MINUTE_MS
HOUR_MS = 60 * MINUTE_MS
KEPT_MS = 10 * HOUR_MS
KEYS = AccountKeys(7)
GROUPS = {CheckType.CARD_STATUS: "query", CheckType.CARDDATA: "usage", CheckType.REALNAME: "query"}

_T = TypeVar("_T")

ALL_CARDS = ["1", "007", "a:b"]
CARDS = st.sampled_from(ALL_CARDS)
TYPE_SETS = st.sets(st.sampled_from(list(CheckType)), min_size=1)
LATEST = st.integers(0, 3)
DELAYS_MS = st.sampled_from([n * MINUTE_MS for n in (0, 1, 9, 10, 11, 60)])
FEW_DELAYS_MS = st.sampled_from([n * MINUTE_MS for n in (0, 0, 0, 0, 9, 11)])


@dataclass(frozen=True)
class Execution:
    """An executor with a claim, what it read when it began, and when."""

    claim: Claim
    executor_id: str
    began: int
    entry: DueEntry
    types: list[CheckType]


class Polling(RuleBasedStateMachine):
    """One account, its cards, and everybody who acts on them."""

    def __init__(self) -> None:
        super().__init__()
        self.client = connection.polling_redis()
        self.client.flushdb()
        clock.freeze(START_MS)
        self.space = keyspace.dump(self.client)
        self.step = 0
        self.enrolled: set[str] = set()
        self.claims: list[Claim] = []
        self.executions: list[Execution] = []
        self.ends_ms: dict[str, int] = {}
        """Expiry of each claim and right, by the clock that stands still."""
        self.first_due_ms: dict[str, int] = {}
        """Of cards that came back under polling while their old claim still stood."""
        self.requested_at: dict[tuple[str, CheckType], int] = {}
        """Step of the last accepted request that no check has followed yet."""

    def teardown(self) -> None:
        self.let_everybody_come_to_an_end()
        clock.unfreeze()

    # Who acts

    @initialize(types=TYPE_SETS, is_requested=st.booleans())
    def there_are_cards(self, types: set[CheckType], is_requested: bool) -> None:
        for card_id in ALL_CARDS:
            self.enroll(card_id, types, 0)
        if is_requested:
            self.request(ALL_CARDS[0], types)

    @precondition(lambda self: self.step % 4 == 3)
    @rule(card_id=CARDS, types=TYPE_SETS, in_ms=DELAYS_MS, is_back_at_once=st.booleans())
    def a_card_leaves_or_comes_back(
        self, card_id: str, types: set[CheckType], in_ms: int, is_back_at_once: bool
    ) -> None:
        was_enrolled = card_id in self.enrolled
        if was_enrolled:
            self.enroll_again(card_id, types)
            self.remove(card_id)
        if is_back_at_once or not was_enrolled:
            self.enroll(card_id, types, in_ms)

    @rule(
        card_id=CARDS,
        types=TYPE_SETS,
        to_priority=st.booleans(),
        cooldown_ms=st.sampled_from([0, 0, 2 * MINUTE_MS]),
        confirmations=st.sampled_from([(), (), (30,)]),
    )
    def checks_are_requested(self, card_id: str, types: set[CheckType], **arguments) -> None:
        self.request(card_id, types, **arguments)

    @rule(
        limit=st.sampled_from([8, 2, 1]),
        priority_ratio=st.sampled_from([0, 0.5]),
        budgets=st.sampled_from([{}, {}, {"query": 0}, {"query": 1, "usage": 1}]),
        skip_priority=st.booleans(),
        after_ms=DELAYS_MS,
        how_far=st.integers(0, 2),
    )
    def cards_are_claimed(self, after_ms: int, how_far: int, **arguments) -> None:
        """A tick of the dispatcher; the cards may be executed at once, some or all of the way."""
        self.pass_time(after_ms)
        claims = self.claim(**arguments)
        begun = [self.begin(claim) for claim in claims if how_far >= 1]
        for execution in begun if how_far == 2 else ():
            if execution:
                self.end(execution, LEASE_MS)

    @precondition(lambda self: self.claims)
    @rule(which=LATEST, after_ms=FEW_DELAYS_MS, is_published=st.sampled_from([True, True, False]))
    def a_claim_is_taken_up_or_given_back(
        self, which: int, after_ms: int, is_published: bool
    ) -> None:
        """A job may come late, or twice."""
        self.pass_time(after_ms)
        claim = pick(self.claims, which)
        if is_published:
            self.begin(claim)
        else:
            self.release(claim)

    @precondition(lambda self: self.executions)
    @rule(
        which=LATEST,
        after_ms=FEW_DELAYS_MS,
        goes_on=st.booleans(),
        in_ms=st.sampled_from([MINUTE_MS, 0, LEASE_MS, 5 * HOUR_MS]),
        succeeded=st.booleans(),
        keeps_its_turn=st.booleans(),
    )
    def an_executor_goes_on_or_ends(
        self, which: int, after_ms: int, goes_on: bool, in_ms: int, **outcome
    ) -> None:
        """It may have been away for longer than its lease."""
        self.pass_time(after_ms)
        execution = pick(self.executions, which)
        if goes_on:
            self.renew(execution)
        else:
            self.end(execution, in_ms, **outcome)

    # What they do, and what it must come to

    def enroll(self, card_id: str, types: set[CheckType], in_ms: int) -> None:
        dues = dict.fromkeys(sorted(types), clock.now_ms() + in_ms)

        assert state.enroll(self.client, 7, card_id, dues)

        self.look()
        self.enrolled.add(card_id)
        self.first_due_ms[card_id] = self.place(card_id) if self.holder(card_id) else 0

    def enroll_again(self, card_id: str, types: set[CheckType]) -> None:
        before = self.space

        assert not state.enroll(self.client, 7, card_id, dict.fromkeys(sorted(types), 0))

        self.look()
        assert self.space.keys == before.keys

    def remove(self, card_id: str) -> None:
        assert state.remove(self.client, 7, card_id)

        self.look()
        self.enrolled.discard(card_id)
        self.requested_at = {k: n for k, n in self.requested_at.items() if k[0] != card_id}

    def request(self, card_id: str, types: set[CheckType], **arguments) -> None:
        before = self.entry(card_id)
        answer = state.request_check(
            self.client, 7, card_id, sorted(types), now_ms=clock.now_ms(), **arguments
        )

        self.look()
        assert (answer == state.NOT_POLLED) == (card_id not in self.enrolled)
        after = self.entry(card_id)
        accepted = [t for t in CheckType if requests_of(after, t) != requests_of(before, t)]
        assert len(accepted) == max(answer, 0)
        self.step += 1
        self.requested_at.update({(card_id, check_type): self.step for check_type in accepted})

    def claim(self, *, limit: int, **arguments) -> Sequence[Claim]:
        self.step += 1
        claimed = {KEYS.claim(card_id): card_id for card_id in ALL_CARDS if self.holder(card_id)}
        self.expire({key: self.ends_ms[key] - clock.now_ms() for key in claimed})
        batch = state.claim(
            self.client,
            KEYS,
            now_ms=clock.now_ms(),
            lease_ms=LEASE_MS,
            limit=limit,
            token_prefix=f"call{self.step}",
            groups=GROUPS,
            **arguments,
        )

        self.expire(dict.fromkeys(claimed, KEPT_MS))
        self.look()
        taken = [claim.card_id for claim in batch.claims]
        assert len(taken) == len(set(taken)) <= limit
        assert set(taken) <= self.enrolled
        assert not set(taken) & set(claimed.values()), "a card was claimed twice at once"
        assert all(self.holder(claim.card_id) == claim.token for claim in batch.claims)
        self.claims += batch.claims
        return batch.claims

    def release(self, claim: Claim) -> None:
        is_ours = self.holder(claim.card_id) == claim.token

        assert state.release(self.client, claim, now_ms=clock.now_ms()) == is_ours

        self.look()
        if is_ours and claim.card_id in self.enrolled:
            assert self.place(claim.card_id) == clock.now_ms()

    def begin(self, claim: Claim) -> Execution | None:
        self.step += 1
        card_id, executor_id = claim.card_id, f"executor{self.step}"
        is_ours, is_busy = self.holder(card_id) == claim.token, self.executor(card_id) is not None

        right = state.acquire_exec(self.client, claim, executor_id=executor_id, ttl_ms=LEASE_MS)

        self.look()
        assert right == (0 if not is_ours else -1 if is_busy else 1)
        if right is not ExecRight.TAKEN:
            return None
        entry = self.entry(card_id)
        types = entry.due_types(clock.now_ms())
        self.executions.append(Execution(claim, executor_id, self.step, entry, types))
        return self.executions[-1]

    def renew(self, execution: Execution) -> None:
        claim, executor_id = execution.claim, execution.executor_id
        card_id = claim.card_id
        is_ours = (self.holder(card_id), self.executor(card_id)) == (claim.token, executor_id)

        is_renewed = state.renew(
            self.client, claim, executor_id=executor_id, lease_ms=LEASE_MS, now_ms=clock.now_ms()
        )

        self.look()
        assert is_renewed == is_ours
        if is_renewed and card_id in self.enrolled:
            assert self.place(card_id) == clock.now_ms() + LEASE_MS

    def end(
        self,
        execution: Execution,
        in_ms: int,
        *,
        succeeded: bool = True,
        keeps_its_turn: bool = False,
    ) -> None:
        claim, executor_id = execution.claim, execution.executor_id
        card_id = claim.card_id
        is_claimed = self.holder(card_id) == claim.token
        in_time = is_claimed and self.executor(card_id) in (None, executor_id)
        before = self.entry(card_id)
        changes = result(execution, clock.now_ms() + in_ms, succeeded, keeps_its_turn)

        is_ended = state.finish(
            self.client, claim, changes, executor_id=executor_id, now_ms=clock.now_ms()
        )

        self.look()
        self.executions.remove(execution)
        assert is_ended == in_time
        if is_ended and card_id in self.enrolled:
            self.check_place_after_finish(card_id)
        if not is_ended and card_id in self.enrolled:
            self.check_nothing_later_is_overwritten(execution, before)
        self.note_checks(execution)

    def check_place_after_finish(self, card_id: str) -> None:
        entry = self.entry(card_id)
        dues = [s.due_ms for s in entry.types.values() if s.due_ms is not None]
        wanted = min(dues, default=clock.now_ms() + HOUR_MS)
        queue = KEYS.priority if entry.is_priority else KEYS.queue
        assert self.space.zset(queue)[card_id] == wanted
        assert self.holder(card_id) is None

    def check_nothing_later_is_overwritten(self, execution: Execution, before: DueEntry) -> None:
        after = self.entry(execution.claim.card_id)
        for check_type in execution.types:
            seen = execution.entry.types[check_type]
            present = before.types.get(check_type)
            if present and present.due != seen.due:
                assert after.types[check_type] == present

    def note_checks(self, execution: Execution) -> None:
        """A request is served by a check that began after it."""
        for check_type in execution.types:
            key = (execution.claim.card_id, check_type)
            if self.requested_at.get(key, execution.began) < execution.began:
                del self.requested_at[key]

    def let_everybody_come_to_an_end(self) -> None:
        """With every executor dead and all time in the world, each card is claimed and each request served."""
        self.pass_time(2 * LEASE_MS)
        self.pass_time(max([0, *(self.place(c) - clock.now_ms() for c in self.enrolled)]))
        claims = self.claim(limit=100, priority_ratio=0, budgets={})
        assert {claim.card_id for claim in claims} == self.enrolled
        for card_id, check_type in self.requested_at:
            assert check_type in self.entry(card_id).due_types(clock.now_ms())

    # What holds at all times

    @invariant()
    def each_enrolled_card_stands_in_exactly_one_queue(self) -> None:
        members = [*self.space.zset(KEYS.priority), *self.space.zset(KEYS.queue)]
        assert sorted(members) == sorted(self.enrolled)

    @invariant()
    def a_removed_card_leaves_no_due_hash(self) -> None:
        hashes = {key for key in self.space.keys if key.endswith(":due")}
        assert hashes == {KEYS.due(card_id) for card_id in self.enrolled}

    @invariant()
    def every_claim_is_in_flight_with_its_expiry(self) -> None:
        in_flight = self.space.zset(KEYS.inflight)
        for card_id in ALL_CARDS:
            if token := self.holder(card_id):
                assert in_flight[token] == self.ends_ms[KEYS.claim(card_id)]

    @invariant()
    def a_claimed_card_comes_again_when_its_claim_ends_at_the_latest(self) -> None:
        for card_id in self.enrolled:
            if self.holder(card_id):
                ends_ms = self.ends_ms[KEYS.claim(card_id)]
                assert self.place(card_id) <= max(ends_ms, self.first_due_ms[card_id])

    @invariant()
    def a_card_under_execution_is_not_due_before_its_claim_ends(self) -> None:
        for card_id in self.enrolled:
            if self.holder(card_id) and not self.first_due_ms[card_id]:
                assert self.place(card_id) > self.ends_ms[KEYS.claim(card_id)] - MINUTE_MS

    @invariant()
    def an_accepted_request_stays_due_until_a_check_has_followed(self) -> None:
        for card_id, check_type in self.requested_at:
            due_ms = self.entry(card_id).types[check_type].due_ms
            assert due_ms is not None
            assert due_ms <= clock.now_ms()
            # A request during an execution leaves the queues alone, also where the card has not been put off for a lease.
            latest_ms = max(clock.now_ms(), self.first_due_ms[card_id])
            assert self.holder(card_id) or self.place(card_id) <= latest_ms

    # Time and expiry

    def pass_time(self, by_ms: int) -> None:
        clock.advance(by_ms)
        over = [key for key, end_ms in self.ends_ms.items() if end_ms <= clock.now_ms()]
        if over:
            self.client.delete(*over)
            self.look()

    def look(self) -> None:
        """Read all keys, and note the expiries that have just been set: the server's own clock is kept from ending them."""
        self.space = keyspace.dump(self.client)
        held = [key for key in self.space.keys if key.endswith((":claim", ":exec"))]
        assert set(held) <= self.space.ttls_ms.keys(), "a claim or a right has no expiry"
        is_new = {key: self.space.ttls_ms[key] <= LEASE_MS for key in held}
        ends_ms = clock.now_ms() + LEASE_MS
        self.ends_ms = {key: ends_ms if is_new[key] else self.ends_ms[key] for key in held}
        self.expire({key: KEPT_MS for key in held if is_new[key]})

    def expire(self, expiries_ms: Mapping[str, int]) -> None:
        if expiries_ms:
            pipe = self.client.pipeline(transaction=False)
            for key, expiry_ms in expiries_ms.items():
                pipe.pexpire(key, expiry_ms)
            pipe.execute()

    # Reading

    def entry(self, card_id: str) -> DueEntry:
        return DueEntry.decode(self.space.fields(KEYS.due(card_id)))

    def place(self, card_id: str) -> int:
        queues = (self.space.zset(KEYS.priority), self.space.zset(KEYS.queue))
        (score,) = [queue[card_id] for queue in queues if card_id in queue]
        return int(score)

    def holder(self, card_id: str) -> str | None:
        return self.space.text(KEYS.claim(card_id))

    def executor(self, card_id: str) -> str | None:
        return self.space.text(KEYS.exec_right(card_id))


def pick(all_of_them: Sequence[_T], which: int) -> _T:
    """The latest but ``which``."""
    return all_of_them[-1 - which % len(all_of_them)]


def requests_of(entry: DueEntry, check_type: CheckType) -> int:
    """How often a type of a card was requested."""
    return entry.types[check_type].requests if check_type in entry.types else 0


def result(
    execution: Execution, next_ms: int, succeeded: bool, keeps_its_turn: bool
) -> FieldChanges:
    """What an executor passes to finish: guarded pairs for all that was due when it began."""
    pairs: dict[str, str | int | Guarded] = {}
    deletions: list[str] = []
    for check_type in execution.types:
        seen = execution.entry.types[check_type]
        pairs[f"due:{check_type}"] = Guarded(next_ms, seen.requests, seen.due or "")
        pairs[f"ok:{check_type}" if succeeded else f"fail:{check_type}"] = clock.now_ms()
        deletions += [f"cfm:{check_type}", f"exp:{check_type}"]
    if keeps_its_turn:
        pairs["prio"] = "1"
    return FieldChanges(pairs, tuple(deletions))


Polling.TestCase.settings = settings(
    max_examples=max(10, EXAMPLES // 5),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.usefixtures("client")
class TestPolling(Polling.TestCase):
    """Runs the machine."""
