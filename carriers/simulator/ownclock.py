"""The simulator's own clock: it plays an outside system, so it needs no Redis and ignores the product's clock."""

import time


def wall_s() -> float:
    """Seconds since the epoch, by this host's clock."""
    return time.time()


def monotonic_s() -> float:
    """Seconds that never run backwards, comparable with ``asyncio`` loop time."""
    return time.monotonic()
