"""SQL on threads of our own: a unit of work, and the end of the threads of a pool."""

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress

from django.db import close_old_connections, connections

CLOSE_TIMEOUT_S = 2.0


@contextmanager
def unit_of_work() -> Iterator[None]:
    """Give the block a usable connection: one that broke since is closed first, one that breaks now is closed after."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()


def close_connections(pool: ThreadPoolExecutor, threads: int) -> None:
    """Close the connections of all ``threads`` of a pool; one that is busy for longer than a moment keeps its own."""
    together = threading.Barrier(threads)

    def close() -> None:
        # Nobody goes on before all are here, so each thread closes once.
        with suppress(threading.BrokenBarrierError):
            together.wait(CLOSE_TIMEOUT_S)
        connections.close_all()

    wait([pool.submit(close) for _ in range(threads)], CLOSE_TIMEOUT_S)
