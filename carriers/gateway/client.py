"""The clients: the gateway's operations, written once, over two drivers that step the attempts of :mod:`.attempts`.

``GatewayClient`` blocks (admin, commands, the rest of the platform), ``AsyncGatewayClient`` waits on the executor's loop. All
methods raise ``GatewayError`` and nothing else.
"""

import asyncio
import contextlib
import functools
import os
import threading
import time
from collections.abc import Awaitable
from concurrent.futures import Executor, Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any, Generic, Protocol, TypeVar

from redis import Redis, RedisError
from redis import TimeoutError as RedisTimeoutError

from cardpolling import clock, connection
from carriers.choices import Operation
from carriers.gateway import attempts, limiter, slots
from carriers.gateway.accounts import Account, AccountDirectory, directory
from carriers.gateway.answers import AcceptedAnswer, RealnameAnswer, StatusAnswer, UsageAnswer
from carriers.gateway.attempts import MAX_ATTEMPTS, Method, Step
from carriers.gateway.call import Call
from carriers.gateway.exchange import HttpReply
from carriers.gateway.guard import Guard, SlotWanted
from carriers.gateway.limiter import LATE_TOLERANCE_MS, Limit, Want
from carriers.gateway.slots import Slot, SlotReserver
from carriers.gateway.statistics import Statistics
from carriers.gateway.transport import RequestsTransport
from carriers.gateway.transport_async import AiohttpTransport

LIMITER_ANSWER_S = 1.0
"""So long a blocking client waits for the limiter's answer; a Redis that takes longer counts as away."""

TIMEOUT_S = 30.0
"""What a method of the blocking client may take where its maker said nothing."""

_S = TypeVar("_S")
_U = TypeVar("_U")
_R = TypeVar("_R")
_A = TypeVar("_A")


class _Operations(Generic[_S, _U, _R, _A]):
    """The operations of a gateway on one card, by its ICCID; the four types are those of their answers."""

    def card_status(self, iccid: str) -> _S:
        """Whether the card is active, and online."""
        return self._perform(Operation.CARD_STATUS, iccid)  # type: ignore[no-any-return]

    def carddata(self, iccid: str) -> _U:
        """Bytes used in the current billing cycle."""
        return self._perform(Operation.CARDDATA, iccid)  # type: ignore[no-any-return]

    def realname(self, iccid: str) -> _R:
        """Whether the holder's identity is verified."""
        return self._perform(Operation.REALNAME, iccid)  # type: ignore[no-any-return]

    def suspend(self, iccid: str, reason: str) -> _A:
        """Suspend the card; it takes effect later."""
        return self._perform(Operation.SUSPEND, iccid, reason)  # type: ignore[no-any-return]

    def resume(self, iccid: str, reason: str) -> _A:
        """Resume the card; it takes effect later."""
        return self._perform(Operation.RESUME, iccid, reason)  # type: ignore[no-any-return]

    def _perform(self, operation: Operation, iccid: str, reason: str = "") -> Any:
        raise NotImplementedError


class GatewayClient(_Operations[StatusAnswer, UsageAnswer, RealnameAnswer, AcceptedAnswer]):
    """Blocks until there is an answer; may be shared by threads.

    ``account`` None = the account is that of ``with_carrier`` or of the card. ``guard`` None = neither limited nor counted.
    ``timeout_s`` bounds a method as a whole: the wait for slots, all attempts, each whole exchange.
    """

    def __init__(
        self,
        account: Account | None,
        *,
        guard: Guard | None,
        transport: RequestsTransport,
        client: Redis | None = None,
        timeout_s: float = TIMEOUT_S,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self._account = account
        self._guard = guard
        self._transport = transport
        self._client = client
        self._timeout_s = timeout_s
        self._max_attempts = max_attempts

    def _perform(self, operation: Operation, iccid: str, reason: str = "") -> Any:
        deadline_s = clock.monotonic() + self._timeout_s
        method = Method(operation, iccid, self._account, self._guard, reason, self._max_attempts)
        steps = attempts.run(method)
        reply: HttpReply | None = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    step = steps.send(reply) if error is None else steps.throw(error)
                except StopIteration as end:
                    return end.value
                reply, error = None, None
                try:
                    reply = self._do(step, deadline_s)
                except BaseException as raised:  # noqa: BLE001  the attempts decide what it means
                    error = raised
        finally:
            # Else the error would keep this frame and its own, with all that they hold, until the collector comes.
            error = None

    def _do(self, step: Step, deadline_s: float) -> HttpReply | None:
        if not isinstance(step, SlotWanted):
            return self._transport.carry(step, deadline_s=deadline_s)
        if step.limit is not None:
            client = self._client or connection.polling_redis()
            _take_slot(client, step, step.limit, deadline_s)
        return None


def _take_slot(client: Redis, wanted: SlotWanted, limit: Limit, deadline_s: float) -> None:
    """Take a slot and wait for its time; raises ``GatewayError`` (``rate_limited``)."""
    ends_s = min(deadline_s, clock.monotonic() + (wanted.wait_s or 0.0))
    while True:
        try:
            at_us = _reserve(client, wanted, limit, ends_s, deadline_s)
        except RedisError:
            if wanted.is_exempt:
                return
            raise slots.refusal() from None
        if at_us is None:
            raise slots.refusal()
        if wanted.is_exempt:
            return
        time.sleep(max(0.0, (at_us - clock.now_us()) / 1_000_000))
        if clock.now_us() - at_us <= LATE_TOLERANCE_MS * 1000 or not wanted.wait_s:
            return
        # Slept too long: the provider counts starts and not slots, so this one may not be used any more.
        try:
            limiter.give_back(client, {limit: [at_us]})
        except RedisError:
            raise slots.refusal() from None


def _reserve(
    client: Redis, wanted: SlotWanted, limit: Limit, ends_s: float, deadline_s: float
) -> int | None:
    """Ask the limiter on a thread, since a Redis that hangs would keep the caller past its deadline; raises ``RedisError``.

    Half of the time that is left, at most, goes into asking: an exempt call is to pass all the same.
    """
    answer: Future[int | None] = Future()

    def ask() -> None:
        try:
            answer.set_result(limiter.reserve(client, limit, _want(wanted, ends_s)))
        except Exception as error:  # noqa: BLE001  whoever asked is told
            answer.set_exception(error)

    threading.Thread(target=ask, name="gateway-slot", daemon=True).start()
    try:
        left_s = deadline_s - clock.monotonic()
        return answer.result(max(0.0, min(LIMITER_ANSWER_S, left_s / 2)))
    except FutureTimeoutError:
        if not wanted.is_exempt:
            answer.add_done_callback(functools.partial(_give_back_late, client, limit))
        raise RedisTimeoutError("the limiter does not answer") from None


def _give_back_late(client: Redis, limit: Limit, answer: "Future[int | None]") -> None:
    """Return a slot that came when its caller had gone."""
    if answer.exception() is None and (at_us := answer.result()) is not None:
        with contextlib.suppress(RedisError):
            limiter.give_back(client, {limit: [at_us]})


def _want(wanted: SlotWanted, ends_s: float) -> Want | int:
    if wanted.is_exempt:
        return Want.EXEMPT
    if not wanted.wait_s:
        return Want.NOW
    return clock.now_us() + round((ends_s - clock.monotonic()) * 1_000_000)


class AttemptObserver(Protocol):
    """Is told of each attempt of an asynchronous client; what it raises ends the method."""

    def on_slot(self, call: Call) -> None:
        """A slot is in the limiter's record for the call; its time may be still to come."""
        ...

    def before_exchange(self, call: Call) -> None:
        """The slot's time has come; the request leaves as soon as this returns."""
        ...


class AsyncGatewayClient(
    _Operations[
        Awaitable[StatusAnswer],
        Awaitable[UsageAnswer],
        Awaitable[RealnameAnswer],
        Awaitable[AcceptedAnswer],
    ]
):
    """Waits on a loop; made by :class:`AsyncGateway`.

    ``deadline`` (seconds of the loop's clock) bounds all that it does: waits for slots, attempts and whole exchanges.
    """

    def __init__(  # noqa: PLR0913  each is a part of its own, all by name
        self,
        account: Account | None,
        *,
        guard: Guard | None,
        transport: AiohttpTransport,
        reserver: SlotReserver,
        deadline: float,
        observer: AttemptObserver | None,
        max_attempts: int,
    ) -> None:
        self._account = account
        self._guard = guard
        self._transport = transport
        self._reserver = reserver
        self._deadline = deadline
        self._observer = observer
        self._max_attempts = max_attempts

    async def _perform(self, operation: Operation, iccid: str, reason: str = "") -> Any:
        method = Method(operation, iccid, self._account, self._guard, reason, self._max_attempts)
        steps = attempts.run(method)
        reply: HttpReply | None = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    step = steps.send(reply) if error is None else steps.throw(error)
                except StopIteration as end:
                    return end.value
                reply, error = None, None
                try:
                    reply = await self._do(step)
                except BaseException as raised:  # noqa: BLE001  the attempts decide what it means
                    error = raised
        finally:
            # Else the error would keep this frame and its own, with all that they hold, until the collector comes.
            error = None

    async def _do(self, step: Step) -> HttpReply | None:
        if not isinstance(step, SlotWanted):
            return await self._transport.carry(step, deadline_s=self._deadline)
        await self._take_slot(step)
        return None

    async def _take_slot(self, wanted: SlotWanted) -> None:
        """Take a slot, wait for its time, and leave it to others where the observer stops the call."""
        slot = await self._slot(wanted)
        if self._observer is None:
            return
        try:
            self._observer.before_exchange(wanted.call)
        except BaseException:
            if slot is not None and wanted.limit is not None:
                self._reserver.release(wanted.limit, slot)
            raise

    async def _slot(self, wanted: SlotWanted) -> Slot | None:
        limit = wanted.limit
        if limit is None or wanted.is_exempt:
            if limit is not None:
                self._reserver.enter_exempt(limit)
            self._tell_slot(wanted.call)
            return None
        if wanted.wait_s == 0:
            slot = await self._reserver.take_now(limit)
            self._tell_slot(wanted.call)
            return slot
        latest_s = self._deadline
        if wanted.wait_s is not None:
            latest_s = min(latest_s, asyncio.get_running_loop().time() + wanted.wait_s)
        on_slot = functools.partial(self._tell_slot, wanted.call)
        return await self._reserver.take(limit, latest_s=latest_s, on_slot=on_slot)

    def _tell_slot(self, call: Call) -> None:
        if self._observer is not None:
            self._observer.on_slot(call)


class AsyncGateway:
    """All that the clients of one loop share: connections, slots, counts. To be made on the loop.

    ``pool`` runs the limiter's round trips; ``concurrency`` is how many calls may be under way.
    """

    def __init__(
        self,
        client: Redis,
        pool: Executor,
        concurrency: int,
        *,
        accounts: AccountDirectory = directory,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> None:
        self.statistics = Statistics()
        self._transport = AiohttpTransport(concurrency)
        self._reserver = SlotReserver(client, pool)
        self._guard = Guard(accounts, self.statistics, self._reserver.throttle)
        self._max_attempts = max_attempts

    def client(
        self, account: Account | None, *, deadline: float, observer: AttemptObserver | None
    ) -> AsyncGatewayClient:
        """A client for calls that end by ``deadline`` (seconds of the loop's clock)."""
        return AsyncGatewayClient(
            account,
            guard=self._guard,
            transport=self._transport,
            reserver=self._reserver,
            deadline=deadline,
            observer=observer,
            max_attempts=self._max_attempts,
        )

    async def close(self) -> None:
        """Refuse who waits, give back slots to come, close the connections."""
        await self._reserver.close()
        await self._transport.close()


class SyncGateway:
    """All that the blocking clients of one process share; its counts reach Redis within a second."""

    def __init__(self, *, accounts: AccountDirectory = directory) -> None:
        self.statistics = _FlushingStatistics()
        self._transport = RequestsTransport()
        self._guard = Guard(accounts, self.statistics, _throttle)

    def client(
        self,
        account: Account | None = None,
        *,
        timeout_s: float = TIMEOUT_S,
        max_attempts: int = MAX_ATTEMPTS,
    ) -> GatewayClient:
        """A guarded client; without an account each call finds its own."""
        return GatewayClient(
            account,
            guard=self._guard,
            transport=self._transport,
            timeout_s=timeout_s,
            max_attempts=max_attempts,
        )

    def close(self) -> None:
        """Close the kept connections, write what was counted."""
        self._transport.close()
        self.statistics.flush_now(connection.polling_redis())


class _FlushingStatistics(Statistics):
    """Counts of a process that has no loop to flush them."""

    def _add(self, call: Call, outcome: str, seconds: float) -> None:
        super()._add(call, outcome, seconds)
        self.flush_soon(connection.polling_redis())


def _throttle(carrier_id: int, retry_after_ms: int | None) -> None:
    limiter.throttle(connection.polling_redis(), carrier_id, retry_after_ms)


gateway = SyncGateway()
"""The blocking gateway that all of a process shares."""

os.register_at_fork(after_in_child=gateway.statistics.begin_anew)
