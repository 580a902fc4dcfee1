"""Slots for one event loop: callers of each limit stand in line, slots are reserved for all of them in bulk.

A round trip per call costs more than the call, so callers are gathered for a few milliseconds and reserved for by one pipeline
on a thread. Slots and callers of a limit are matched here, in their order, when a slot's time comes: a caller that goes away
leaves its slot to the next in line, one that cannot be used by anyone is given back, and one that would be used late is not
used, since the provider counts starts and not slots.
"""

import asyncio
import bisect
import logging
import math
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Any, TypeVar

from redis import Redis, RedisError

from cardpolling import clock
from carriers.gateway import limiter
from carriers.gateway.errors import Category, GatewayError
from carriers.gateway.limiter import Limit, Reservation, Want

logger = logging.getLogger(__name__)

GATHER_S = 0.005
WATCH_S = 0.5
NOW_TRIES = 3
GRID_S = 0.002
"""Slots are used at the next multiple of it: waking up costs more than a call, and this way all lines share a few wake-ups."""

LATE_TOLERANCE_S = limiter.LATE_TOLERANCE_MS / 1000

_T = TypeVar("_T")

Slot = tuple[float, int]
"""When a slot is: seconds of the loop's clock, and microseconds of Redis's."""


@dataclass(slots=True, eq=False)
class _Waiter:
    """A caller in line; ``turn`` is done when its slot's time has come."""

    turn: "asyncio.Future[Slot]"
    latest_s: float
    on_slot: Callable[[], None] | None = None

    def tell_slot(self) -> None:
        """A slot is in the record for it: said once, before its turn. What that raises is what it gets."""
        on_slot, self.on_slot = self.on_slot, None
        if on_slot is None or self.turn.done():
            return
        try:
            on_slot()
        except Exception as error:  # noqa: BLE001  the others in line have nothing to do with it
            self.turn.set_exception(error)

    def refuse(self) -> None:
        """Tell it that it gets no slot."""
        if not self.turn.done():
            self.turn.set_exception(refusal())


@dataclass(slots=True, eq=False)
class _Line:
    """One limit: who waits, which slots there are for them, and what is to be said to the limiter."""

    limit: Limit
    waiters: "deque[_Waiter]" = field(default_factory=deque)
    slots: list[Slot] = field(default_factory=list)
    asked: int = 0
    immediate: list[_Waiter] = field(default_factory=list)
    exempt: int = 0
    unused: list[int] = field(default_factory=list)
    timer: asyncio.TimerHandle | None = None

    @property
    def shortage(self) -> int:
        """Callers for whom no slot has been asked for yet."""
        return max(0, len(self.waiters) - len(self.slots) - self.asked)

    @property
    def has_business(self) -> bool:
        """Whether the limiter is to be told or asked something."""
        return bool(self.exempt or self.immediate or self.unused or self.shortage)

    @property
    def is_idle(self) -> bool:
        """Whether nobody would miss it."""
        return not (self.has_business or self.waiters or self.slots or self.asked)


@dataclass(slots=True)
class _Question:
    """What the limiter is asked for one line."""

    line: _Line
    exempt: int
    immediate: list[_Waiter]
    waiters: list[_Waiter]
    unused: list[int]


@dataclass(slots=True)
class _Reply:
    """The limiter's answers, one list of times per question (None = it failed), and how its clock maps to the loop's."""

    times: Sequence[Sequence[int | None] | None]
    ahead_us: float

    def slot(self, at_us: int) -> Slot:
        """The slot at this time."""
        return (at_us - self.ahead_us) / 1_000_000, at_us


class SlotReserver:
    """Takes slots for the callers of one loop; all methods but those named ``_ask...`` run on that loop."""

    def __init__(self, client: Redis, pool: Executor) -> None:
        self._client = client
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self._lines: dict[Limit, _Line] = {}
        self._busy: dict[_Line, None] = {}
        self._questions: list[_Question] = []
        self._is_closed = False
        self._throttled: dict[int, int | None] = {}
        self._gathering: asyncio.TimerHandle | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._asking: asyncio.Future[_Reply] | None = None

    async def take(
        self, limit: Limit, *, latest_s: float, on_slot: Callable[[], None] | None = None
    ) -> Slot:
        """Wait in line for a slot and until its time has come, at the latest at ``latest_s`` of the loop's clock.

        Raises ``GatewayError`` (``rate_limited``) as soon as it is known that no slot will come in time.
        """
        self._require_open()
        line = self._line(limit)
        waiter = _Waiter(self._loop.create_future(), latest_s, on_slot)
        line.waiters.append(waiter)
        while True:
            self._gather(line)
            slot = await self._turn(line, waiter)
            if self._loop.time() - slot[0] <= LATE_TOLERANCE_S:
                return slot
            # The loop was busy between the slot's time and now: first in line for the next one.
            line.unused.append(slot[1])
            self._require_open()
            waiter = _Waiter(self._loop.create_future(), latest_s)
            line.waiters.appendleft(waiter)

    async def take_now(self, limit: Limit) -> Slot:
        """Take a slot that is free right now; raises ``GatewayError`` (``rate_limited``) where there is none."""
        line = self._line(limit)
        for _ in range(NOW_TRIES):
            self._require_open()
            waiter = _Waiter(self._loop.create_future(), self._loop.time() + WATCH_S)
            line.immediate.append(waiter)
            self._gather(line)
            slot = await self._turn(line, waiter)
            if self._loop.time() - slot[0] <= LATE_TOLERANCE_S:
                return slot
            line.unused.append(slot[1])
        self._gather(line)
        raise refusal()

    def enter_exempt(self, limit: Limit) -> None:
        """Enter a call that passes the limit into the record."""
        line = self._line(limit)
        line.exempt += 1
        self._gather(line)

    def release(self, limit: Limit, slot: Slot) -> None:
        """Leave a slot that was taken, and is not used, to the next in line."""
        line = self._line(limit)
        bisect.insort(line.slots, slot)
        self._serve(line)

    def throttle(self, carrier_id: int, retry_after_ms: int | None) -> None:
        """Lower an account's rate because its provider refused a call."""
        known_ms = self._throttled.get(carrier_id) or 0
        self._throttled[carrier_id] = max(known_ms, retry_after_ms or 0)
        self._gather_soon()

    async def close(self) -> None:
        """Refuse who still waits and who comes from now on, and give back every slot to come."""
        self._is_closed = True
        for line in self._lines.values():
            for waiter in (*line.waiters, *line.immediate):
                waiter.refuse()
            line.waiters.clear()
            line.immediate.clear()
            self._serve(line)
        await self._hear_out()
        self._ask_now()
        await self._hear_out()
        for handle in (self._gathering, self._watch, *(ln.timer for ln in self._lines.values())):
            if handle is not None:
                handle.cancel()

    async def _hear_out(self) -> None:
        """Wait until the limiter is being asked nothing."""
        while self._asking is not None:
            await asyncio.wait([self._asking])
            await asyncio.sleep(0)

    def _line(self, limit: Limit) -> _Line:
        line = self._lines.get(limit)
        if line is None:
            self._forget_former(limit)
            line = self._lines[limit] = _Line(limit)
        return line

    def _forget_former(self, limit: Limit) -> None:
        """A limit that was changed leaves its former terms behind."""
        for former in [
            of for of in self._lines if of[0] == limit[0] and of[1].name == limit[1].name
        ]:
            if self._lines[former].is_idle:
                del self._lines[former]

    def _require_open(self) -> None:
        if self._is_closed:
            raise refusal()

    async def _turn(self, line: _Line, waiter: _Waiter) -> Slot:
        try:
            return await waiter.turn
        except asyncio.CancelledError:
            self._leave(line, waiter)
            raise

    def _gather(self, line: _Line) -> None:
        if line.has_business:
            self._busy[line] = None
            self._gather_soon()

    def _gather_soon(self) -> None:
        if self._gathering is None and self._asking is None and not self._is_closed:
            self._gathering = self._loop.call_later(GATHER_S, self._ask_now)

    def _ask_now(self) -> None:
        """Ask the limiter for all lines at once; one question at a time is under way, so that order is kept."""
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        questions = [_question_of(line) for line in self._busy if line.has_business]
        self._busy.clear()
        throttled, self._throttled = self._throttled, {}
        if not questions and not throttled:
            return
        try:
            future = self._loop.run_in_executor(self._pool, self._ask, questions, throttled)
        except RuntimeError:
            logger.exception("limiter not asked")
            self._settle_all(questions, None)
            return
        self._asking = future
        self._questions = questions
        self._watch = self._loop.call_later(WATCH_S, self._refuse_overdue)
        future.add_done_callback(lambda done: self._hear(questions, done))

    def _ask(self, questions: list[_Question], throttled: dict[int, int | None]) -> _Reply:
        """On a thread: tell what is unused or throttled, then reserve. Nothing that fails keeps the rest from being done."""
        for carrier_id, retry_after_ms in throttled.items():
            _attempt(limiter.throttle, self._client, carrier_id, retry_after_ms)
        unused = {q.line.limit: q.unused for q in questions if q.unused}
        if unused:
            _attempt(limiter.give_back, self._client, unused)
        now_us, now_s = clock.now_us(), clock.monotonic()
        ahead_us = now_us - now_s * 1_000_000
        asking = [i for i, q in enumerate(questions) if q.exempt or q.immediate or q.waiters]
        reservations = [_reservation(questions[i], ahead_us) for i in asking]
        times: list[Sequence[int | None] | None] = [None] * len(questions)
        answers = _attempt(limiter.reserve_many, self._client, reservations) or ()
        for i, answer in zip(asking, answers, strict=False):
            times[i] = None if isinstance(answer, Exception) else answer
        return _Reply(times, ahead_us)

    def _hear(self, questions: list[_Question], done: "asyncio.Future[_Reply]") -> None:
        """Hand out what the limiter answered; without an answer everybody who asked is refused."""
        self._asking = None
        self._questions = []
        if self._watch is not None:
            self._watch.cancel()
        reply = None
        if not done.cancelled():
            error = done.exception()
            if error is None:
                reply = done.result()
            elif not isinstance(error, RedisError):
                logger.error("limiter not asked", exc_info=error)
        self._settle_all(questions, reply)
        if self._throttled or self._busy:
            self._gather_soon()

    def _settle_all(self, questions: list[_Question], reply: _Reply | None) -> None:
        for i, question in enumerate(questions):
            self._settle(question, reply, None if reply is None else reply.times[i])

    def _settle(
        self, question: _Question, reply: _Reply | None, times: Sequence[int | None] | None
    ) -> None:
        line = question.line
        line.asked -= len(question.waiters)
        if reply is None or times is None:
            times = [None] * (question.exempt + len(question.immediate) + len(question.waiters))
        times = times[question.exempt :]
        for waiter, at_us in zip(question.immediate, times, strict=False):
            if reply is None or at_us is None:
                waiter.refuse()
            elif waiter.turn.done():
                bisect.insort(line.slots, reply.slot(at_us))
            else:
                waiter.turn.set_result(reply.slot(at_us))
        for waiter, at_us in zip(question.waiters, times[len(question.immediate) :], strict=True):
            if reply is None or at_us is None:
                self._refuse(line, waiter)
            else:
                bisect.insort(line.slots, reply.slot(at_us))
                waiter.tell_slot()
        self._serve(line)

    def _serve(self, line: _Line) -> None:
        """Give every slot whose time has come to the first in line, drop what nobody can use, and wake up for the next."""
        now_s = self._loop.time()
        while line.slots and line.waiters:
            slot, waiter = line.slots[0], line.waiters[0]
            if now_s - slot[0] > LATE_TOLERANCE_S:
                line.unused.append(line.slots.pop(0)[1])
            elif waiter.turn.done():
                line.waiters.popleft()
            elif waiter.latest_s < slot[0]:
                line.waiters.popleft().refuse()
            elif slot[0] > now_s:
                break
            else:
                waiter.tell_slot()
                line.waiters.popleft()
                if not waiter.turn.done():
                    line.slots.pop(0)
                    waiter.turn.set_result(slot)
        while len(line.slots) > len(line.waiters):
            line.unused.append(line.slots.pop()[1])
        self._set_timer(line)
        self._gather(line)

    def _set_timer(self, line: _Line) -> None:
        wake_s = math.ceil(line.slots[0][0] / GRID_S) * GRID_S if line.slots else None
        if line.timer is not None:
            if line.timer.when() == wake_s:
                return
            line.timer.cancel()
            line.timer = None
        if wake_s is not None:
            line.timer = self._loop.call_at(wake_s, self._wake, line)

    def _wake(self, line: _Line) -> None:
        line.timer = None
        self._serve(line)

    def _leave(self, line: _Line, waiter: _Waiter) -> None:
        """A caller goes away, perhaps just as its turn has come."""
        for others in (line.waiters, line.immediate):
            if waiter in others:
                others.remove(waiter)
        turn = waiter.turn
        if turn.done() and not turn.cancelled() and turn.exception() is None:
            bisect.insort(line.slots, turn.result())
        self._serve(line)

    def _refuse(self, line: _Line, waiter: _Waiter) -> None:
        if waiter in line.waiters:
            line.waiters.remove(waiter)
        waiter.refuse()

    def _refuse_overdue(self) -> None:
        """While the limiter does not answer: who can wait no longer is told so."""
        now_s = self._loop.time()
        for line in self._lines.values():
            for waiter in [w for w in line.waiters if w.latest_s < now_s]:
                self._refuse(line, waiter)
        for waiter in [w for q in self._questions for w in q.immediate if w.latest_s < now_s]:
            waiter.refuse()
        self._watch = self._loop.call_later(WATCH_S, self._refuse_overdue)


def refusal() -> GatewayError:
    """The error of a call that gets no slot."""
    return GatewayError(Category.RATE_LIMITED, "no slot within the rate limit", was_sent=False)


def _question_of(line: _Line) -> _Question:
    """Take what is to be said for a line out of it; the last in line are those for whom nothing was asked yet."""
    shortage = line.shortage
    waiters = list(line.waiters)[len(line.waiters) - shortage :]
    question = _Question(line, line.exempt, line.immediate, waiters, line.unused)
    line.asked += shortage
    line.exempt, line.immediate, line.unused = 0, [], []
    return question


def _reservation(question: _Question, ahead_us: float) -> Reservation:
    wants: list[Want | int] = [Want.EXEMPT] * question.exempt
    wants += [Want.NOW] * len(question.immediate)
    wants += [round(w.latest_s * 1_000_000 + ahead_us) for w in question.waiters]
    return Reservation(question.line.limit, wants)


def _attempt(function: Callable[..., _T], *arguments: Any) -> _T | None:
    """What the function gives; None where the limiter is out of reach."""
    try:
        return function(*arguments)
    except RedisError as error:
        logger.warning("limiter not reached: %s", type(error).__name__)
        return None
