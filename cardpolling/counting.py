"""Running totals of what happened to an account's claims, gathered in memory and written with the heartbeat."""

import threading
from collections import Counter

from redis import Redis

from cardpolling.keys import AccountKeys


class Counts:
    """Thread-safe counters per account; :meth:`flush` adds them to ``polling:{c<id>}:counts`` in one round trip."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: Counter[tuple[int, str]] = Counter()

    def add(self, carrier_id: int, name: str, number: int = 1) -> None:
        """Count ``number`` events of one kind."""
        if number:
            with self._lock:
                self._pending[carrier_id, name] += number

    def flush(self, client: Redis) -> None:
        """Write what has been gathered; when Redis refuses it is kept for the next time."""
        with self._lock:
            pending, self._pending = self._pending, Counter()
        if not pending:
            return
        pipe = client.pipeline(transaction=False)
        for (carrier_id, name), number in pending.items():
            pipe.hincrby(AccountKeys(carrier_id).counts, name, number)
        try:
            pipe.execute()
        except BaseException:
            with self._lock:
                self._pending.update(pending)
            raise
