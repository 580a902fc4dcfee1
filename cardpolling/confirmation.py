"""Confirmation: a check repeated at given delays until the expected result is seen. Pure.

A request may carry delays such as ``30,60,300`` and an expected result such as ``suspended``. The check runs at once and, while
the expected result is not seen, after each of the delays in turn.
"""

from dataclasses import dataclass
from enum import StrEnum


class Verdict(StrEnum):
    """Where a confirmation stands after a success."""

    NONE = "none"
    SEEN = "seen"
    WAITING = "waiting"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Progress:
    """What follows from a success: ``next_delay_s`` and ``remaining_s`` mean something only while waiting."""

    verdict: Verdict
    next_delay_s: int = 0
    remaining_s: tuple[int, ...] = ()


def is_pending(delays_s: tuple[int, ...], expected: str) -> bool:
    """Whether a check has a confirmation to go through; after the last delay only the expected result is left of it."""
    return bool(delays_s) or bool(expected)


def progress(delays_s: tuple[int, ...], expected: str, *, seen: str) -> Progress:
    """Judge a success that saw ``seen`` while ``delays_s`` and ``expected`` were pending.

    Without an expected result nothing can be seen or missed: the check is repeated after each delay and that is the end.
    """
    if not is_pending(delays_s, expected):
        return Progress(Verdict.NONE)
    if expected and seen == expected:
        return Progress(Verdict.SEEN)
    if delays_s:
        return Progress(Verdict.WAITING, delays_s[0], delays_s[1:])
    return Progress(Verdict.FAILED)


def delays_text(delays_s: tuple[int, ...]) -> str:
    """Delays as they stand in ``cfm:T``."""
    return ",".join(str(delay_s) for delay_s in delays_s)
