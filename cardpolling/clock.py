"""The only source of time: that of the Redis server, so that hosts with wrong clocks do no harm.

The offset between the server's TIME and this process's monotonic clock is read now and then and advanced in between by the
monotonic clock, which no adjustment of a host's clock moves. Tests set the time here.
"""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from redis import RedisError

from cardpolling import connection

RESYNC_INTERVAL_US = 10_000_000
RETRY_INTERVAL_US = 1_000_000

_lock = threading.Lock()
_offset_us: int | None = None
_due_us = 0
_frozen_us: int | None = None


def now_us() -> int:
    """Epoch microseconds by the Redis server's clock.

    Only the first reading waits for the server: later ones read it anew on a thread. While Redis is away the last offset is used;
    raises ``RedisError`` where there has been none.
    """
    if _frozen_us is not None:
        return _frozen_us
    monotonic_us = time.monotonic_ns() // 1000
    if _offset_us is None:
        resync()
        monotonic_us = time.monotonic_ns() // 1000
    elif monotonic_us >= _due_us:
        _resync_apart()
    return monotonic_us + (_offset_us or 0)


def now_ms() -> int:
    """Epoch milliseconds by the Redis server's clock."""
    return now_us() // 1000


def now() -> datetime:
    """The same as an aware datetime in UTC."""
    return datetime.fromtimestamp(now_us() / 1_000_000, UTC)


def monotonic() -> float:
    """Seconds of this process's monotonic clock: for deadlines and durations within one process."""
    return time.monotonic()


def resync() -> None:
    """Read the server's time.

    The server read its clock at some moment of the round trip: the first offset takes the middle for it, and a later one is moved
    no further than the round trip proves. So a reply that was slow to be read, by 20 ms on a busy worker, shifts no slots.
    """
    global _offset_us, _due_us  # noqa: PLW0603  one offset per process
    with _lock:
        before_us = time.monotonic_ns() // 1000
        try:
            seconds, microseconds = connection.polling_redis().time()
        except RedisError:
            _due_us = time.monotonic_ns() // 1000 + RETRY_INTERVAL_US
            if _offset_us is None:
                raise
            return
        after_us = time.monotonic_ns() // 1000
        server_us = seconds * 1_000_000 + microseconds
        least_us, most_us = server_us - after_us, server_us - before_us
        middle_us = (least_us + most_us) // 2
        known_us = middle_us if _offset_us is None else _offset_us
        _offset_us = min(max(known_us, least_us), most_us)
        _due_us = after_us + RESYNC_INTERVAL_US


def _resync_apart() -> None:
    """Resync on a thread of its own, one at a time: a Redis that hangs must not make anybody wait for the time."""
    global _due_us  # noqa: PLW0603  one offset per process
    _due_us = time.monotonic_ns() // 1000 + RESYNC_INTERVAL_US
    threading.Thread(target=resync, name="polling-clock", daemon=True).start()


def forget() -> None:
    """Drop the offset: the next reading asks the server."""
    global _offset_us  # noqa: PLW0603  one offset per process
    _offset_us = None


# The child of a fork has the offset; its lock may have been held by a thread that it has not.
def _after_fork() -> None:
    global _lock  # noqa: PLW0603  one lock per process
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def freeze(at_ms: int) -> None:
    """Stand still at ``at_ms`` until :func:`unfreeze`; the monotonic clock runs on."""
    global _frozen_us  # noqa: PLW0603  one clock per process
    _frozen_us = at_ms * 1000


def advance(by_ms: float) -> None:
    """Move a frozen clock on."""
    global _frozen_us  # noqa: PLW0603  one clock per process
    if _frozen_us is None:
        raise RuntimeError("only a frozen clock can be advanced")
    _frozen_us += round(by_ms * 1000)


def unfreeze() -> None:
    """Follow the server's time again."""
    global _frozen_us  # noqa: PLW0603  one clock per process
    _frozen_us = None


@contextmanager
def frozen(at_ms: int) -> Iterator[None]:
    """Stand still at ``at_ms`` within the block."""
    freeze(at_ms)
    try:
        yield
    finally:
        unfreeze()
