"""Executes one claim: exec right, due steps, results to SQL, next due times, finish.

Runs on the loop of :mod:`cardpolling.engine`, one task per card. Only waiting happens here: whatever touches Redis or SQL is
handed to a batcher, which works for many cards at once on a thread.
"""

import asyncio
import itertools
import logging
import os
import random
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial

from django.db import DatabaseError
from redis import ConnectionError as RedisConnectionError
from redis import Redis, RedisError
from redis import TimeoutError as RedisTimeoutError

from cardpolling import clock, conf, configuration, crashes, ending, intake, planning, state, steps
from cardpolling.batching import Batcher
from cardpolling.checktypes import CheckType
from cardpolling.completion import Completion
from cardpolling.counting import Counts
from cardpolling.due import DueEntry
from cardpolling.ending import Ending
from cardpolling.errors import ClaimLost
from cardpolling.intake import Begun, ExecRequest
from cardpolling.lease import HeldLease, LeaseKeeper
from cardpolling.ledger import Ledger
from cardpolling.planning import Plan
from cardpolling.recording import Recording
from cardpolling.results import FollowUp, Outcome, StepResult
from cardpolling.rules import Rules
from cardpolling.state import Claim, ExecRight, FieldChanges
from cardpolling.steps.facts import CardFacts
from carriers.gateway import (
    Account,
    AccountDirectory,
    AsyncGateway,
    AsyncGatewayClient,
    Call,
    Category,
)

logger = logging.getLogger(__name__)

INTAKE_LINGER_MS = 20
INTAKE_START_AT = 100
"""Claims of several jobs are begun together; they were claimed some 100 ms ahead of their slots."""

ENDING_LINGER_MS = 200
ENDING_START_AT = 40
"""Cards that end within the time, or until so many have, share one transaction and one pipeline; their places are held so long."""

BUSY_RETRY_S = 0.25
OUTAGE_RETRY_S = 0.5
OUTAGE_RETRY_CAP_S = 5.0
STEP_GRACE_S = 0.5


class _Observer:
    """Tells the ledger which calls have got their slot, and stops an attempt whose lease is lost."""

    def __init__(
        self, held: HeldLease, account: Account, owed: dict[str, int], ledger: Ledger
    ) -> None:
        self._held = held
        self._account = account
        self._owed = owed
        self._ledger = ledger

    def on_slot(self, call: Call) -> None:
        """A slot is reserved: the call is in the limiter's record now and owed no more."""
        group = self._account.group_of(call.operation)
        if group is not None and self._owed.get(group.name, 0) > 0:
            self._owed[group.name] -= 1
            self._ledger.settle(self._account.carrier_id, group.name)

    def before_exchange(self, call: Call) -> None:
        """The slot's time has come."""
        self._held.check()


@dataclass(frozen=True, slots=True)
class _Check:
    """A card whose due steps are to run, with all that is known of it."""

    begun: Begun
    card: CardFacts
    rules: Rules
    held: HeldLease
    account: Account


class CardExecutor:
    """Executes claims of any account; belongs to one loop."""

    def __init__(  # noqa: PLR0913  each is a part of its own
        self,
        client: Redis,
        pool: Executor,
        gateway: AsyncGateway,
        directory: AccountDirectory,
        *,
        ledger: Ledger,
        counts: Counts,
        also_renew: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._pool = pool
        self._gateway = gateway
        self._directory = directory
        self._ledger = ledger
        self._counts = counts
        self._lease_s = conf.lease_ms() / 1000
        # An executor id is unique per execution: one random half per executor, one that counts.
        self._process_half, self._executions = os.urandom(8).hex(), itertools.count()
        self._interrupted: list[Completion] = []
        self.keeper = LeaseKeeper(client, pool, lease_ms=conf.lease_ms(), also_renew=also_renew)
        self._suspects = asyncio.Lock()
        self._intake: Batcher[ExecRequest, Begun] = Batcher(
            pool,
            partial(intake.begin, client, lease_ms=conf.lease_ms()),
            linger_ms=INTAKE_LINGER_MS,
            start_at=INTAKE_START_AT,
            max_items=200,
            max_running=2,
        )
        self._endings: Batcher[Ending, bool] = Batcher(
            pool,
            partial(ending.end, client),
            linger_ms=ENDING_LINGER_MS,
            start_at=ENDING_START_AT,
            max_items=500,
        )

    async def execute(self, claim: Claim) -> None:
        """Execute a claim to its end; a claim that is not (or no longer) ours is left alone."""
        executor_id = f"{self._process_half}{next(self._executions):016x}"
        begun = await self._take(claim, executor_id)
        if begun is None:
            return
        held = self.keeper.hold(claim, executor_id, begun.taken_at_s)
        try:
            await self._run(begun, held)
        except ClaimLost:
            self._counts.add(claim.carrier_id, "lost")
        except asyncio.CancelledError:
            if not held.is_lost or held.task is None:
                self._interrupted.append(Completion(claim, executor_id, FieldChanges()))
                raise
            held.task.uncancel()
            self._counts.add(claim.carrier_id, "lost")
        finally:
            self.keeper.drop(held)

    def take_interrupted(self) -> list[Completion]:
        """The executions that were cut off by a stop, to be ended without a result; each is given once."""
        interrupted, self._interrupted = self._interrupted, []
        return interrupted

    async def _take(self, claim: Claim, executor_id: str) -> Begun | None:
        """Take the exec right; while another executor holds it, or Redis or SQL is away, try again within the lease."""
        give_up_at_s = clock.monotonic() + self._lease_s
        while clock.monotonic() < give_up_at_s:
            try:
                begun = await self._intake.ask(ExecRequest(claim, executor_id))
            except (RedisError, DatabaseError) as error:
                logger.warning("claim not begun yet: %s", type(error).__name__)
                await asyncio.sleep(OUTAGE_RETRY_S)
                continue
            if begun.right is ExecRight.TAKEN:
                return begun
            if begun.right is ExecRight.LOST:
                self._counts.add(claim.carrier_id, "stale")
                return None
            await asyncio.sleep(BUSY_RETRY_S)
        self._counts.add(claim.carrier_id, "lost")
        return None

    async def _run(self, begun: Begun, held: HeldLease) -> None:
        claim = held.claim
        account = self._directory.get(claim.carrier_id)
        if account is not None and not account.is_enabled:
            await self._finish(Completion(claim, held.executor_id, FieldChanges()), held)
        elif account is None or begun.card is None or begun.rules is None:
            self._counts.add(claim.carrier_id, "gone")
            gone = Completion(claim, held.executor_id, FieldChanges(), is_removed=True)
            await self._finish(gone, held)
        elif not begun.entry.has_any_due:
            self._counts.add(claim.carrier_id, "reenrolled")
            changes = planning.enrolment(begun.rules, claim.card_id, clock.now_ms())
            await self._finish(Completion(claim, held.executor_id, changes), held)
        elif begun.crashes >= crashes.CRASHES_TO_BACK_OFF:
            await self._back_off(begun, held)
        elif begun.crashes:
            async with self._suspects:
                await self._mark_running(held)
                await self._check(_Check(begun, begun.card, begun.rules, held, account))
        else:
            await self._check(_Check(begun, begun.card, begun.rules, held, account))

    async def _check(self, check: "_Check") -> None:
        """Run the due steps, record what they found, and finish with the next due times."""
        begun, held = check.begun, check.held
        results, facts = await self._run_due_steps(check)
        for result in results:
            # Before the finish: whoever kills this process then loses the claim, but not the request.
            if result.follow_up is not None:
                await self._request(held.claim, result.follow_up)
        plan = self._plan(begun.entry, facts, results, held.claim)
        done = Completion(
            held.claim,
            held.executor_id,
            plan.changes,
            is_removed=plan.leaves_polling,
            is_forgiven=begun.crashes > 0,
        )
        found = tuple(result for result in results if result.facts)
        card = check.card
        record = Recording(card.id, card.carrier_id, found, clock.now()) if found else None
        is_in_time = await self._finish(done, held, record)
        self._counts.add(held.claim.carrier_id, "finished" if is_in_time else "late")

    async def _run_due_steps(self, check: "_Check") -> tuple[list[StepResult], CardFacts]:
        """Run the due steps in the configured order, each within its step timeout and all within the total timeout.

        Gives their results, and the card as it is known then.
        """
        rules, held, account = check.rules, check.held, check.account
        due = set(check.begun.entry.due_types(clock.now_ms())) & set(rules.intervals_s)
        owed = _calls_per_group(account, due)
        self._ledger.owe(account.carrier_id, owed)
        observer = _Observer(held, account, owed, self._ledger)
        loop = asyncio.get_running_loop()
        ends_at_s = loop.time() + rules.total_timeout_s
        facts = check.card
        results: list[StepResult] = []
        try:
            for check_type in (step for step in rules.step_order if step in due):
                held.check()
                if loop.time() >= ends_at_s:
                    break
                if check_type is CheckType.PACKAGE and any(r.package_evaluated for r in results):
                    results.append(StepResult(check_type, Outcome.SKIPPED))
                    continue
                deadline = min(loop.time() + rules.step_timeout_s, ends_at_s)
                gateway = self._gateway.client(account, deadline=deadline, observer=observer)
                result = await _run_step(check_type, facts, gateway, deadline)
                facts = facts.updated(result.facts)
                results.append(result)
        finally:
            for group, calls in owed.items():
                self._ledger.settle(account.carrier_id, group, calls)
        return results, facts

    def _plan(
        self, entry: DueEntry, facts: CardFacts, results: list[StepResult], claim: Claim
    ) -> Plan:
        """Next due times, by the configuration that fits the card as it is now."""
        rules = configuration.current().match(
            facts.carrier_id, facts.status, facts.realname_verified
        )
        return planning.plan(
            results,
            entry,
            rules,
            now_ms=clock.now_ms(),
            from_priority=claim.from_priority,
            jitter=random.random,
        )

    async def _finish(
        self, done: Completion, held: HeldLease, record: Recording | None = None
    ) -> bool:
        """Bring what was found to SQL and end the claim; False where that came late.

        While SQL or Redis is away, wait for it as long as the lease can be kept. A finish whose reply was lost is repeated: a
        second one changes nothing.
        """
        asked, pause_s = Ending(done, record), OUTAGE_RETRY_S
        while True:
            held.check()
            try:
                is_in_time = await self._endings.ask(asked)
            except (DatabaseError, RedisConnectionError, RedisTimeoutError) as error:
                logger.warning("execution not ended yet: %s", type(error).__name__)
                self._counts.add(held.claim.carrier_id, "end_retries")
                await asyncio.sleep(pause_s)
                pause_s = min(2 * pause_s, OUTAGE_RETRY_CAP_S)
            except RedisError:
                logger.exception("execution not ended", extra={"card_id": held.claim.card_id})
                return False
            else:
                self._counts.add(held.claim.carrier_id, "refused", int(asked.is_refused))
                return is_in_time

    async def _back_off(self, begun: Begun, held: HeldLease) -> None:
        """A card that crashed its executor again and again is not run but put off."""
        claim = held.claim
        logger.error(
            "card backed off after crashes",
            extra={"carrier_id": claim.carrier_id, "card_id": claim.card_id},
        )
        self._counts.add(claim.carrier_id, "crashing")
        plan = planning.plan_crashing(
            begun.entry, begun.rules, now_ms=clock.now_ms(), crashes=begun.crashes
        )
        done = Completion(claim, held.executor_id, plan.changes, is_forgiven=True)
        await self._finish(done, held)

    async def _mark_running(self, held: HeldLease) -> None:
        held.check()
        tokens = {held.claim.carrier_id: {held.claim.card_id: held.claim.token}}
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, crashes.mark_running, self._client, tokens)

    async def _request(self, claim: Claim, follow_up: FollowUp) -> None:
        request = partial(
            state.request_check,
            self._client,
            claim.carrier_id,
            claim.card_id,
            [follow_up.check_type],
            now_ms=clock.now_ms(),
            confirmations=follow_up.confirmations_s,
            expected=follow_up.expected,
        )
        try:
            await asyncio.get_running_loop().run_in_executor(self._pool, request)
        except RedisError:
            logger.exception("follow-up check not requested", extra={"card_id": claim.card_id})


async def _run_step(
    check_type: CheckType, facts: CardFacts, gateway: AsyncGatewayClient, deadline: float
) -> StepResult:
    """One step; whatever goes wrong inside is that step's failure, and the next step still runs."""
    try:
        async with asyncio.timeout_at(deadline + STEP_GRACE_S):
            return await steps.REGISTRY[check_type](facts, gateway, clock.now())
    except ClaimLost:
        raise
    except TimeoutError:
        return StepResult(check_type, Outcome.FAILED, category=Category.TIMEOUT)
    except Exception as error:
        logger.exception("step failed", extra={"check_type": check_type, "card_id": facts.id})
        return StepResult(
            check_type, Outcome.FAILED, category=Category.INTERNAL, message=type(error).__name__
        )


def _calls_per_group(account: Account, due: set[CheckType]) -> dict[str, int]:
    """How many calls the due checks will make, per rate-limit group."""
    calls: dict[str, int] = {}
    for check_type in due:
        group = account.group_of(check_type) if check_type.calls_gateway else None
        if group is not None:
            calls[group.name] = calls.get(group.name, 0) + 1
    return calls
