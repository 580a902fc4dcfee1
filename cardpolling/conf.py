"""The knobs of the polling engine, typed and with their unit in the name, read from the settings when asked.

Names, defaults and the environment variables behind them stand in ``settings``, their permitted ranges in ``checks``. What
belongs to one account (limits, places in flight) is a field of that account and not here.
"""

from django.conf import settings


def lease_ms() -> int:
    """How long a claim lasts unless it is renewed: the time after which a dead worker's cards run again."""
    return int(settings.POLLING_LEASE_MS)


def dispatch_interval_ms() -> int:
    """Time between two ticks of the dispatcher of one account."""
    return int(settings.POLLING_DISPATCH_INTERVAL_MS)


def concurrency() -> int:
    """Cards that one worker process executes side by side."""
    return int(settings.POLLING_CONCURRENCY)


def cards_per_job() -> int:
    """Claims that one RQ job carries at most."""
    return int(settings.POLLING_CARDS_PER_JOB)


def grace_s() -> int:
    """How long a worker that was told to stop waits for its running executions."""
    return int(settings.POLLING_GRACE_S)


def reconcile_interval_s() -> int:
    """Time between two comparisons of SQL with the polling state, by whichever worker."""
    return int(settings.POLLING_RECONCILE_INTERVAL_S)
