"""The executor's event loop on a thread of its own, and the door through which jobs enter it."""

import asyncio
import concurrent.futures
import contextvars
import logging
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor

from redis import Redis, RedisError

from cardpolling import completion, conf
from cardpolling.counting import Counts
from cardpolling.executor import CardExecutor
from cardpolling.ledger import Ledger
from cardpolling.state import Claim
from cardpolling.units import close_connections
from carriers.gateway import AccountDirectory, AsyncGateway

logger = logging.getLogger(__name__)

THREADS = 8
"""Threads for Redis and SQL batches: intake 2, records 1, completions 1, leases 1, slots 2, one spare."""

STATISTICS_INTERVAL_S = 1.0


class Engine:
    """Executes claims side by side until stopped; its methods may be called from any thread.

    ``also_renew`` is called on a thread each time the leases were renewed (about each third of the lease).
    """

    def __init__(
        self,
        client: Redis,
        directory: AccountDirectory,
        *,
        ledger: Ledger,
        counts: Counts,
        also_renew: Callable[[], None] | None = None,
    ) -> None:
        self._client = client
        self._directory = directory
        self._ledger = ledger
        self._counts = counts
        self._also_renew = also_renew
        self._tasks: set[asyncio.Task[None]] = set()
        self._background: list[asyncio.Task[None]] = []
        self._pool = ThreadPoolExecutor(THREADS, thread_name_prefix="polling-batch")
        self._loop = asyncio.new_event_loop()
        self._is_ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="polling-loop", daemon=True)

    def start(self) -> None:
        """Start the loop; returns when claims can be submitted."""
        self._thread.start()
        self._is_ready.wait()

    def submit(self, claims: Sequence[Claim]) -> "Future[None]":
        """Execute claims side by side; the future is done when the last of them has ended, and never fails."""
        # In a context of its own: an exemption that the caller happens to be in is never inherited.
        submit = contextvars.Context().run
        return submit(asyncio.run_coroutine_threadsafe, self._execute_all(claims), self._loop)

    def stop(self, grace_s: float) -> None:
        """Let running executions end within ``grace_s``, give the claims of the rest back, end the loop; once is enough."""
        if not self._thread.is_alive():
            return
        stopping = asyncio.run_coroutine_threadsafe(self._stop(grace_s), self._loop)
        try:
            stopping.result(grace_s + 10)
        except concurrent.futures.TimeoutError:
            logger.error("executor did not stop within its grace period")
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(5)
        close_connections(self._pool, THREADS)
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._open())
        self._is_ready.set()
        self._loop.run_forever()
        self._loop.close()

    async def _open(self) -> None:
        self._gateway = AsyncGateway(self._client, self._pool, conf.concurrency())
        self._executor = CardExecutor(
            self._client,
            self._pool,
            self._gateway,
            self._directory,
            ledger=self._ledger,
            counts=self._counts,
            also_renew=self._also_renew,
        )
        self._background = [
            asyncio.create_task(self._executor.keeper.run()),
            asyncio.create_task(self._flush_statistics()),
        ]

    async def _execute_all(self, claims: Sequence[Claim]) -> None:
        tasks = [asyncio.create_task(self._execute(claim)) for claim in claims]
        self._tasks.update(tasks)
        await asyncio.wait(tasks)
        self._tasks.difference_update(tasks)

    async def _execute(self, claim: Claim) -> None:
        try:
            await self._executor.execute(claim)
        except Exception:
            logger.exception("execution broke", extra={"card_id": claim.card_id})
            self._counts.add(claim.carrier_id, "broken")
        finally:
            self._ledger.leave(claim.carrier_id)

    async def _flush_statistics(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(STATISTICS_INTERVAL_S)
            await loop.run_in_executor(self._pool, self._flush_once)

    def _flush_once(self) -> None:
        try:
            self._gateway.statistics.flush(self._client)
            self._counts.flush(self._client)
        except RedisError as error:
            logger.warning("statistics not written yet: %s", type(error).__name__)

    async def _stop(self, grace_s: float) -> None:
        for task in self._background[1:]:
            task.cancel()
        if self._tasks:
            _, unfinished = await asyncio.wait(self._tasks, timeout=grace_s)
            for task in unfinished:
                task.cancel()
            await asyncio.gather(*unfinished, return_exceptions=True)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._pool, self._give_back)
        await self._gateway.close()
        self._background[0].cancel()
        await asyncio.gather(*self._background, return_exceptions=True)

    def _give_back(self) -> None:
        """End the claims of executions that were cut off, so that their cards are due at once and not when the leases end."""
        cut_off = self._executor.take_interrupted()
        try:
            if cut_off:
                completion.complete(self._client, cut_off)
        except RedisError:
            logger.warning("claims not given back: redis is away", extra={"claims": len(cut_off)})
        self._flush_once()
