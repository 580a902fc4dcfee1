"""Does a data package still cover a card, and may the card be suspended for it? Pure.

Everything is in bytes; a package of 1,024 MB covers 1,073,741,823 bytes and is exhausted at 1,073,741,824.
"""

from datetime import date, datetime, timedelta

from carriers.choices import PackageState

# A usage older than this says nothing any more: a billing cycle may have ended since.
KNOWN_FOR = timedelta(days=1)
# Suspending a customer needs a usage that was read just now. Long enough to try again after one refused suspension, too short
# for a renewed package to be judged by the cycle before it.
ACTED_ON_FOR = timedelta(minutes=5)
# Another host wrote the time; its idea of now may be a little ahead.
_SKEW = timedelta(seconds=30)


def evaluate(
    *,
    allowance_bytes: int | None,
    used_bytes: int | None,
    cycle_start: date | None,
    usage_checked_at: datetime | None,
    now: datetime,
) -> PackageState:
    """Judge the package by the usage that is known; ``allowance_bytes`` None = the card has no package."""
    del cycle_start
    if allowance_bytes is None:
        return PackageState.NONE
    if used_bytes is None or not _is_within(KNOWN_FOR, usage_checked_at, now):
        return PackageState.UNKNOWN
    return PackageState.EXHAUSTED if used_bytes >= allowance_bytes else PackageState.COVERED


def may_suspend(
    *,
    allowance_bytes: int | None,
    used_bytes: int | None,
    cycle_start: date | None,
    usage_checked_at: datetime | None,
    now: datetime,
) -> bool:
    """Tell whether the card may be suspended for its usage: only on a fresh usage of a known cycle."""
    if cycle_start is None or not _is_within(ACTED_ON_FOR, usage_checked_at, now):
        return False
    state = evaluate(
        allowance_bytes=allowance_bytes,
        used_bytes=used_bytes,
        cycle_start=cycle_start,
        usage_checked_at=usage_checked_at,
        now=now,
    )
    return state is PackageState.EXHAUSTED


def _is_within(longest: timedelta, checked_at: datetime | None, now: datetime) -> bool:
    return checked_at is not None and -_SKEW <= now - checked_at <= longest
