"""What one HTTP attempt is about, and what the caller may set of it.

Three context managers set what the calls within them carry; they nest, and what a block sets ends with the block. They are
context variables: a task or thread started elsewhere, a queued job above all, inherits nothing.
"""

import itertools
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from enum import StrEnum


class ExemptSource(StrEnum):
    """Why a call may pass the limit; the values are counted and never change."""

    MANUAL = "manual"
    THRESHOLD = "threshold"
    RENEWAL = "renewal"
    REFRESH = "refresh"


def make_request_id() -> str:
    """Make an id that no other HTTP attempt has: one random half per process, one that counts."""
    return f"{_process_half}{next(_attempts):016x}"


def _begin_counting() -> None:
    global _process_half  # noqa: PLW0603  one per process, and another one in a forked child
    _process_half = os.urandom(8).hex()


_process_half = ""
_attempts = itertools.count()
_begin_counting()
os.register_at_fork(after_in_child=_begin_counting)


@dataclass(frozen=True, slots=True)
class Call:
    """One HTTP attempt, as the guard sees it; ``attempt`` counts from 1 within one method."""

    operation: str
    iccid: str
    carrier_id: int | None
    exempt_source: ExemptSource | None = None
    attempt: int = 1
    request_id: str = field(default_factory=make_request_id)


_carrier_id: ContextVar[int | None] = ContextVar("gateway_carrier_id", default=None)
_exempt_source: ContextVar[ExemptSource | None] = ContextVar("gateway_exempt_source", default=None)
_wait_s: ContextVar[float | None] = ContextVar("gateway_wait_s", default=None)


@contextmanager
def with_carrier(carrier_id: int | None) -> Iterator[None]:
    """Charge the calls within to this account; None = find the account by the card number again."""
    token = _carrier_id.set(carrier_id)
    try:
        yield
    finally:
        _carrier_id.reset(token)


@contextmanager
def with_rate_limit_exempt(source: ExemptSource | str | None) -> Iterator[None]:
    """Let the calls within pass the limit, for one of the four reasons; None = limited again. Raises ``ValueError``."""
    token = _exempt_source.set(None if source is None else ExemptSource(source))
    try:
        yield
    finally:
        _exempt_source.reset(token)


@contextmanager
def with_rate_limit_wait(seconds: float | None) -> Iterator[None]:
    """Let the calls within wait up to so long for their turn; 0 = refuse at once, None = the client's own rule."""
    if seconds is not None and not (math.isfinite(seconds) and seconds >= 0):
        raise ValueError("a wait is a number of seconds, 0 or more")
    token = _wait_s.set(seconds)
    try:
        yield
    finally:
        _wait_s.reset(token)


def current_carrier_id() -> int | None:
    """The account set by :func:`with_carrier`."""
    return _carrier_id.get()


def current_exempt_source() -> ExemptSource | None:
    """The reason set by :func:`with_rate_limit_exempt`."""
    return _exempt_source.get()


def current_wait_s() -> float | None:
    """The wait set by :func:`with_rate_limit_wait`, None where nothing is set."""
    return _wait_s.get()
