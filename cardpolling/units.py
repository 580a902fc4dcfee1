"""A unit of SQL work on a thread of our own."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.db import close_old_connections


@contextmanager
def unit_of_work() -> Iterator[None]:
    """Give the block a usable connection: one that broke since is closed first, one that breaks now is closed after."""
    close_old_connections()
    try:
        yield
    finally:
        close_old_connections()
