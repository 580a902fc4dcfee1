"""Long sequences in pages of flat memory. Pure."""

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TypeVar

Item = TypeVar("Item")


def pages(items: Iterable[Item], size: int) -> Iterator[list[Item]]:
    """Cut into lists of ``size`` items, the last one shorter."""
    iterator = iter(items)
    while page := list(islice(iterator, size)):
        yield page
