"""Keeps the leases of all claims that this process executes, and stops an execution whose lease is lost.

A lease is lost when Redis says so, or when no renewal got through before it ended by this process's own monotonic clock: a
process that was stopped for longer than its leases makes no further call and writes nothing when it goes on.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from redis import Redis, RedisError

from cardpolling import clock, state
from cardpolling.errors import ClaimLost
from cardpolling.state import Claim

logger = logging.getLogger(__name__)

RETRY_AFTER_S = 0.5


class HeldLease:
    """The lease of one claim, as its executor sees it."""

    def __init__(self, claim: Claim, executor_id: str, valid_until_s: float) -> None:
        self.claim = claim
        self.executor_id = executor_id
        self.valid_until_s = valid_until_s
        self.is_lost = False
        self.task = asyncio.current_task()

    def check(self) -> None:
        """Raise :class:`ClaimLost` unless the lease still stands; asked before every step, HTTP attempt and write."""
        if self.is_lost or clock.monotonic() >= self.valid_until_s:
            raise ClaimLost

    def lose(self) -> None:
        """Mark the lease as lost and cancel what its execution waits for: also a call on the wire."""
        if not self.is_lost:
            self.is_lost = True
            if self.task is not None:
                self.task.cancel()


class LeaseKeeper:
    """Renews every held lease about each third of ``lease_ms``, all of them in one pipeline."""

    def __init__(
        self,
        client: Redis,
        pool: Executor,
        *,
        lease_ms: int,
        also_renew: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._pool = pool
        self._lease_ms = lease_ms
        self._also_renew = also_renew
        self._held: set[HeldLease] = set()

    def hold(self, claim: Claim, executor_id: str, taken_at_s: float) -> HeldLease:
        """Keep a lease from now on; ``taken_at_s`` is the monotonic time before it was last extended."""
        held = HeldLease(claim, executor_id, taken_at_s + self._lease_ms / 1000)
        self._held.add(held)
        return held

    def drop(self, held: HeldLease) -> None:
        """Keep a lease no longer: its execution has ended."""
        self._held.discard(held)

    async def run(self) -> None:
        """Renew until cancelled."""
        pause_s = self._lease_ms / 3000
        while True:
            await asyncio.sleep(pause_s)
            is_renewed = await self._renew_all()
            pause_s = self._lease_ms / 3000 if is_renewed else RETRY_AFTER_S

    async def _renew_all(self) -> bool:
        """Renew once; False when Redis could not be asked, so that the next try comes soon."""
        loop = asyncio.get_running_loop()
        held = list(self._held)
        asked_at_s = clock.monotonic()
        try:
            answers = await loop.run_in_executor(self._pool, self._renew, held)
        except RedisError:
            logger.warning("leases not renewed: redis is away", extra={"leases": len(held)})
            answers = [RedisError()] * len(held)
        for lease, answer in zip(held, answers, strict=True):
            if answer is True:
                lease.valid_until_s = asked_at_s + self._lease_ms / 1000
            elif lease in self._held and (
                answer is False or clock.monotonic() >= lease.valid_until_s
            ):
                lease.lose()
        return not any(isinstance(answer, Exception) for answer in answers)

    def _renew(self, held: Sequence[HeldLease]) -> Sequence[bool | Exception]:
        answers = state.renew_many(
            self._client,
            [(lease.claim, lease.executor_id) for lease in held],
            lease_ms=self._lease_ms,
            now_ms=clock.now_ms(),
        )
        if self._also_renew is not None:
            self._also_renew()
        return answers
