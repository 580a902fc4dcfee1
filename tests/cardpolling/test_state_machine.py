"""All scripts together: whatever happens in whatever order, no card is lost, doubled or left without a way back.

Programs that dispatch, execute, crash, request and remove act in an order that hypothesis chooses, on a clock that stands still
between them. Leases end by that clock: the machine deletes keys when their time has come, as a server would. All times are whole
minutes, so that none is up by the server's own clock while a script runs.
``CARDPOLLING_EXAMPLES`` sets how many runs are made.
"""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
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

EXAMPLES = int(os.environ.get("CARDPOLLING_EXAMPLES", "300"))
START_MS = 1_764_547_200_000
MINUTE_MS = 60_000
LEASE_MS = 10 * MINUTE_MS
HOUR_MS = 60 * MINUTE_MS
KEYS = AccountKeys(7)
GROUPS = {CheckType.CARD_STATUS: "query", CheckType.CARDDATA: "usage", CheckType.REALNAME: "query"}

_T = TypeVar("_T")

ALL_CARDS = ["1", "007", "a:b"]
CARDS = st.sampled_from(ALL_CARDS)
TYPES = st.sampled_from(list(CheckType))
LATEST = st.integers(0, 3)
DELAYS_MS = st.sampled_from([n * MINUTE_MS for n in (0, 1, 9, 10, 11, 60)])


@dataclass
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
        self.step = 0
        self.enrolled: set[str] = set()
        self.claims: list[Claim] = []
        self.executions: list[Execution] = []
        self.ends_ms: dict[str, int] = {}
        """Expiry of each key that has one, by the clock that stands still."""
        self.first_due_ms: dict[str, int] = {}
        """Of cards that came back under polling while their old claim still stood."""
        self.requested_at: dict[tuple[str, CheckType], int] = {}
        """Step of the last accepted request that no check has followed yet."""

    def teardown(self) -> None:
        self.let_everybody_come_to_an_end()
        clock.unfreeze()

    # Time and expiry

    def pass_time(self, by_ms: int) -> None:
        clock.advance(by_ms)
        for key in [k for k, end_ms in self.ends_ms.items() if end_ms <= clock.now_ms()]:
            self.client.delete(key)
            del self.ends_ms[key]

    @contextmanager
    def expiring(self, card_id: str, *, lease_ms: int = LEASE_MS) -> Iterator[None]:
        """Note the expiries that a script sets; the server's own clock is kept from ending them."""
        keys = (KEYS.claim(card_id), KEYS.exec_right(card_id))
        for key in keys:
            self.client.pexpire(key, 10 * HOUR_MS)
        yield
        for key in keys:
            ttl_ms = self.client.pttl(key)
            assert ttl_ms != -1, f"{key} has no expiry"
            if ttl_ms == -2:
                self.ends_ms.pop(key, None)
            elif ttl_ms <= HOUR_MS:
                self.ends_ms[key] = clock.now_ms() + lease_ms
                self.client.pexpire(key, 10 * HOUR_MS)

    # Who acts

    @initialize(types=st.sets(TYPES, min_size=1), requested=st.booleans())
    def there_are_cards(self, types: set[CheckType], requested: bool) -> None:
        for card_id in ALL_CARDS:
            self.a_card_is_enrolled(card_id, types, 0)
        if requested:
            state.request_check(self.client, 7, ALL_CARDS[0], types, now_ms=clock.now_ms())
            self.requested_at = {(ALL_CARDS[0], check_type): 0 for check_type in types}

    @rule(by_ms=DELAYS_MS)
    def time_passes(self, by_ms: int) -> None:
        self.pass_time(by_ms)

    @precondition(lambda self: len(self.enrolled) < len(ALL_CARDS))
    @rule(card_id=CARDS, types=st.sets(TYPES, min_size=1), in_ms=DELAYS_MS)
    def a_card_is_enrolled(self, card_id: str, types: set[CheckType], in_ms: int) -> None:
        dues = dict.fromkeys(sorted(types), clock.now_ms() + in_ms)

        is_new = state.enroll(self.client, 7, card_id, dues)

        assert is_new == (card_id not in self.enrolled)
        if is_new:
            self.first_due_ms[card_id] = self.place(card_id) if self.is_claimed(card_id) else 0
        self.enrolled.add(card_id)

    @precondition(lambda self: len(self.enrolled) == len(ALL_CARDS))
    @rule(card_id=CARDS)
    def a_card_is_removed(self, card_id: str) -> None:
        assert state.remove(self.client, 7, card_id) == (card_id in self.enrolled)
        self.enrolled.discard(card_id)
        self.requested_at = {k: n for k, n in self.requested_at.items() if k[0] != card_id}

    @rule(
        card_id=CARDS,
        types=st.sets(TYPES, min_size=1),
        to_priority=st.booleans(),
        cooldown_ms=st.sampled_from([0, 0, 2 * MINUTE_MS]),
        confirmations=st.sampled_from([(), (), (30,)]),
    )
    def checks_are_requested(
        self,
        card_id: str,
        types: set[CheckType],
        to_priority: bool,
        cooldown_ms: int,
        confirmations: tuple[int, ...],
    ) -> None:
        before = self.entry(card_id)
        answer = state.request_check(
            self.client,
            7,
            card_id,
            sorted(types),
            now_ms=clock.now_ms(),
            cooldown_ms=cooldown_ms,
            confirmations=confirmations,
            to_priority=to_priority,
        )

        assert (answer == state.NOT_POLLED) == (card_id not in self.enrolled)
        after = self.entry(card_id)
        accepted = [t for t in CheckType if requests_of(after, t) != requests_of(before, t)]
        assert len(accepted) == max(answer, 0)
        self.step += 1
        self.requested_at.update({(card_id, check_type): self.step for check_type in accepted})

    @rule(
        limit=st.sampled_from([8, 2, 1]),
        ratio=st.sampled_from([0, 0.5]),
        budgets=st.sampled_from([{}, {"query": 0}, {"query": 1, "usage": 1}]),
        skip_priority=st.booleans(),
        after_ms=DELAYS_MS,
        how_far=st.integers(0, 2),
    )
    def cards_are_claimed(
        self,
        limit: int,
        ratio: float,
        budgets: dict[str, int | None],
        skip_priority: bool,
        after_ms: int,
        how_far: int,
    ) -> None:
        """A tick of the dispatcher; the cards may be executed at once, some or all the way."""
        self.pass_time(after_ms)
        self.step += 1
        claimed_before = {card_id for card_id in self.enrolled if self.is_claimed(card_id)}
        for card_id in claimed_before:
            self.client.pexpire(KEYS.claim(card_id), self.left_ms(KEYS.claim(card_id)))
        batch = state.claim(
            self.client,
            KEYS,
            now_ms=clock.now_ms(),
            lease_ms=LEASE_MS,
            limit=limit,
            priority_ratio=ratio,
            token_prefix=f"call{self.step}",
            budgets=budgets,
            groups=GROUPS,
            skip_priority=skip_priority,
        )

        taken = [claim.card_id for claim in batch.claims]
        assert len(taken) == len(set(taken)) <= limit
        assert not claimed_before & set(taken), "a card was claimed twice at once"
        assert set(taken) <= self.enrolled
        for card_id in claimed_before:
            self.client.pexpire(KEYS.claim(card_id), 10 * HOUR_MS)
        for card_id in taken:
            self.note_claim(card_id)
        self.claims += batch.claims
        begun = [self.begin(claim) for claim in batch.claims if how_far >= 1]
        for execution in begun if how_far == 2 else ():
            if execution:
                self.end(execution, LEASE_MS, succeeded=True, keeps_its_turn=False)

    def note_claim(self, card_id: str) -> None:
        key = KEYS.claim(card_id)
        assert LEASE_MS - MINUTE_MS < self.client.pttl(key) <= LEASE_MS
        self.client.pexpire(key, 10 * HOUR_MS)
        self.ends_ms[key] = clock.now_ms() + LEASE_MS

    @precondition(lambda self: self.claims)
    @rule(which=LATEST)
    def a_publication_fails(self, which: int) -> None:
        claim = pick(self.claims, which)
        is_ours = self.client.get(KEYS.claim(claim.card_id)) == claim.token

        with self.expiring(claim.card_id):
            assert state.release(self.client, claim, now_ms=clock.now_ms()) == is_ours

        if is_ours and claim.card_id in self.enrolled:
            assert self.place(claim.card_id) == clock.now_ms()

    @precondition(lambda self: self.claims)
    @rule(which=LATEST)
    def an_execution_begins(self, which: int) -> None:
        """A job may come late, or twice."""
        self.begin(pick(self.claims, which))

    def begin(self, claim: Claim) -> Execution | None:
        self.step += 1
        executor_id = f"executor{self.step}"
        card_id = claim.card_id
        held = (self.client.get(KEYS.claim(card_id)), self.client.get(KEYS.exec_right(card_id)))
        with self.expiring(card_id):
            right = state.acquire_exec(self.client, claim, executor_id=executor_id, ttl_ms=LEASE_MS)

        is_ours, is_busy = held[0] == claim.token, held[1] is not None
        assert right == (0 if not is_ours else -1 if is_busy else 1)
        if right is not ExecRight.TAKEN:
            return None
        entry = self.entry(card_id)
        types = entry.due_types(clock.now_ms())
        execution = Execution(claim, executor_id, self.step, entry, types)
        self.executions.append(execution)
        return execution

    @precondition(lambda self: self.executions)
    @rule(which=LATEST)
    def a_lease_is_renewed(self, which: int) -> None:
        execution = pick(self.executions, which)
        claim = execution.claim
        is_ours = self.holds(execution)

        with self.expiring(claim.card_id):
            is_renewed = state.renew(
                self.client,
                claim,
                executor_id=execution.executor_id,
                lease_ms=LEASE_MS,
                now_ms=clock.now_ms(),
            )

        assert is_renewed == is_ours
        if is_renewed and claim.card_id in self.enrolled:
            assert self.place(claim.card_id) == clock.now_ms() + LEASE_MS

    @precondition(lambda self: self.executions)
    @rule(
        which=LATEST,
        in_ms=st.sampled_from([0, MINUTE_MS, LEASE_MS, 5 * HOUR_MS]),
        succeeded=st.booleans(),
        keeps_its_turn=st.booleans(),
    )
    def an_execution_ends(
        self, which: int, in_ms: int, succeeded: bool, keeps_its_turn: bool
    ) -> None:
        self.end(
            pick(self.executions, which), in_ms, succeeded=succeeded, keeps_its_turn=keeps_its_turn
        )

    def end(
        self, execution: Execution, in_ms: int, *, succeeded: bool, keeps_its_turn: bool
    ) -> None:
        self.executions.remove(execution)
        card_id = execution.claim.card_id
        in_time = self.client.get(KEYS.claim(card_id)) == execution.claim.token and (
            self.client.get(KEYS.exec_right(card_id)) in (None, execution.executor_id)
        )
        before = self.entry(card_id)
        changes = result(execution, clock.now_ms() + in_ms, succeeded, keeps_its_turn)

        with self.expiring(card_id):
            is_ended = state.finish(
                self.client,
                execution.claim,
                changes,
                executor_id=execution.executor_id,
                now_ms=clock.now_ms(),
            )

        assert is_ended == in_time
        self.note_checks(execution)
        if is_ended and card_id in self.enrolled:
            self.check_place_after_finish(card_id)
        if not is_ended:
            self.check_requests_survived(card_id, before)

    # What became of it

    def note_checks(self, execution: Execution) -> None:
        """A request is served by a check that began after it."""
        for check_type in execution.types:
            key = (execution.claim.card_id, check_type)
            if self.requested_at.get(key, execution.began) < execution.began:
                del self.requested_at[key]

    def check_place_after_finish(self, card_id: str) -> None:
        entry = self.entry(card_id)
        dues = [s.due_ms for s in entry.types.values() if s.due_ms is not None]
        wanted = min(dues, default=clock.now_ms() + HOUR_MS)
        priority, normal = self.scores(card_id)
        assert (priority, normal) == ((wanted, None) if entry.is_priority else (None, wanted))
        assert not self.is_claimed(card_id)

    def check_requests_survived(self, card_id: str, before: DueEntry) -> None:
        after = self.entry(card_id)
        for check_type in CheckType:
            if card_id in self.enrolled:
                assert requests_of(after, check_type) == requests_of(before, check_type)

    # What holds at all times

    @invariant()
    def each_enrolled_card_stands_in_exactly_one_queue(self) -> None:
        priority = self.client.zrange(KEYS.priority, 0, -1)
        normal = self.client.zrange(KEYS.queue, 0, -1)
        assert sorted(priority + normal) == sorted(self.enrolled)

    @invariant()
    def a_removed_card_leaves_no_due_hash(self) -> None:
        with_hash = {key.removesuffix(":due") for key in self.client.keys("*:due")}
        assert with_hash == {KEYS.due(card_id).removesuffix(":due") for card_id in self.enrolled}

    @invariant()
    def every_claim_and_every_right_has_an_expiry(self) -> None:
        held = self.client.keys("*:claim") + self.client.keys("*:exec")
        assert sorted(held) == sorted(self.ends_ms)
        assert all(self.client.pttl(key) > 0 for key in held)

    @invariant()
    def every_claim_is_in_flight_with_its_expiry(self) -> None:
        in_flight = dict(self.client.zrange(KEYS.inflight, 0, -1, withscores=True))
        for key, end_ms in self.ends_ms.items():
            if key.endswith(":claim"):
                assert in_flight[self.client.get(key)] == end_ms

    @invariant()
    def a_claimed_card_comes_again_when_its_claim_ends_at_the_latest(self) -> None:
        for card_id in self.enrolled:
            if self.is_claimed(card_id):
                assert self.place(card_id) <= max(
                    self.ends_ms[KEYS.claim(card_id)], self.earliest_due(card_id)
                )

    @invariant()
    def an_accepted_request_stays_due_until_a_check_has_followed(self) -> None:
        for card_id, check_type in self.requested_at:
            due_ms = self.entry(card_id).types[check_type].due_ms
            assert due_ms is not None
            assert due_ms <= clock.now_ms()
            # A request during an execution leaves the queues alone, also where the card has not been put off for a lease.
            latest_ms = max(clock.now_ms(), self.first_due_ms[card_id])
            assert self.is_claimed(card_id) or self.place(card_id) <= latest_ms

    def let_everybody_come_to_an_end(self) -> None:
        """With every executor dead and all time in the world, each card is claimed and each request served."""
        self.pass_time(2 * LEASE_MS)
        self.pass_time(max([0, *(self.place(c) - clock.now_ms() for c in self.enrolled)]))
        batch = state.claim(
            self.client,
            KEYS,
            now_ms=clock.now_ms(),
            lease_ms=LEASE_MS,
            limit=100,
            priority_ratio=0,
            token_prefix="last",
            budgets={},
            groups=GROUPS,
        )
        assert sorted(claim.card_id for claim in batch.claims) == sorted(self.enrolled)
        for card_id, check_type in self.requested_at:
            assert check_type in self.entry(card_id).due_types(clock.now_ms())

    # Reading

    def entry(self, card_id: str) -> DueEntry:
        return DueEntry.decode(self.client.hgetall(KEYS.due(card_id)))

    def scores(self, card_id: str) -> tuple[float | None, float | None]:
        return state.queue_scores(self.client, 7, [card_id])[0]

    def place(self, card_id: str) -> int:
        (score,) = [score for score in self.scores(card_id) if score is not None]
        return int(score)

    def earliest_due(self, card_id: str) -> int:
        dues = [s.due_ms for s in self.entry(card_id).types.values() if s.due_ms is not None]
        return min(dues, default=0)

    def is_claimed(self, card_id: str) -> bool:
        return bool(self.client.exists(KEYS.claim(card_id)))

    def left_ms(self, key: str) -> int:
        return self.ends_ms[key] - clock.now_ms()

    def holds(self, execution: Execution) -> bool:
        claim = execution.claim
        token = self.client.get(KEYS.claim(claim.card_id))
        executor_id = self.client.get(KEYS.exec_right(claim.card_id))
        return (token, executor_id) == (claim.token, execution.executor_id)


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
    max_examples=max(10, EXAMPLES // 8),
    stateful_step_count=50,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)


@pytest.mark.usefixtures("client")
class TestPolling(Polling.TestCase):
    """Runs the machine."""
