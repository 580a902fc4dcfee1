"""The thread that runs the reconciler every few minutes: in one of all worker processes, whichever comes first.

The key ``polling:reconciled`` stands for as long as nobody is to reconcile again. It goes with everything else when Redis is
emptied, so that the rebuild begins within seconds.
"""

import logging
import threading

from django.db import DatabaseError
from redis import Redis, RedisError

from cardpolling import conf, keys, reconciler
from cardpolling.errors import ConfigurationUnavailable
from cardpolling.units import unit_of_work

logger = logging.getLogger(__name__)

LOOK_INTERVAL_S = 3.0
RETRY_AFTER_S = 30


class ReconcileLoop:
    """Looks every few seconds whether it is time; whatever fails, the next look comes."""

    def __init__(self, client: Redis, *, process_id: str) -> None:
        self._client = client
        self._process_id = process_id
        self._is_stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="polling-reconcile", daemon=True)

    def start(self) -> None:
        """Start looking."""
        self._thread.start()

    def stop(self) -> None:
        """Look no more; a comparison under way is not waited for, since it may end at any point."""
        self._is_stopping.set()

    def run_if_due(self) -> bool:
        """Reconcile where nobody has within the interval; whether this process did. Raises what keeps it from doing so."""
        interval_s = conf.reconcile_interval_s()
        if not self._client.set(keys.RECONCILED, self._process_id, nx=True, ex=interval_s):
            return False
        try:
            with unit_of_work():
                reconciler.reconcile(self._client)
        except BaseException:
            self._client.expire(keys.RECONCILED, min(RETRY_AFTER_S, interval_s))
            raise
        return True

    def _run(self) -> None:
        while not self._is_stopping.wait(LOOK_INTERVAL_S):
            try:
                self.run_if_due()
            except (RedisError, DatabaseError, ConfigurationUnavailable) as error:
                logger.warning("not reconciled: %s", type(error).__name__)
            except Exception:  # the next look comes whatever happened in this one
                logger.exception("not reconciled")
