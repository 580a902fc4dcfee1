"""The thread that has the reconciler run every few minutes: by one of all worker processes, whichever comes first.

It runs in a process of its own (``manage.py polling_reconcile``): comparing 300,000 cards takes the interpreter for most of a
minute, in which calls of a worker would miss their slots. The key ``polling:reconciled`` stands for as long as nobody is to
reconcile again. It goes with everything else when Redis is emptied, so that the rebuild begins within seconds.
"""

import logging
import subprocess
import sys
import threading

from django.conf import settings
from redis import Redis, RedisError

from cardpolling import conf, keys

logger = logging.getLogger(__name__)

COMMAND = "polling_reconcile"
LOOK_INTERVAL_S = 3.0
RETRY_AFTER_S = 30
POLL_S = 0.2
STOP_TIMEOUT_S = 5.0


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
        """Look no more, and end a comparison under way: it may end at any point."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(STOP_TIMEOUT_S)

    def run_if_due(self) -> bool:
        """Reconcile where nobody has within the interval; whether this process did. Raises ``RedisError``."""
        interval_s = conf.reconcile_interval_s()
        if not self._client.set(keys.RECONCILED, self._process_id, nx=True, ex=interval_s):
            return False
        status = self._reconcile()
        if status != 0:
            # The command has said why; the next try, by whichever worker, comes soon.
            self._client.expire(keys.RECONCILED, min(RETRY_AFTER_S, interval_s))
        return True

    def _reconcile(self) -> int:
        """Run the command; its exit code, or that of its end where this process stops meanwhile."""
        process = subprocess.Popen(
            [sys.executable, "-m", "django", COMMAND, "--settings", settings.SETTINGS_MODULE],
            cwd=settings.BASE_DIR,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        with process:
            while process.poll() is None:
                if self._is_stopping.wait(POLL_S):
                    process.terminate()
                    break
        return process.returncode

    def _run(self) -> None:
        while not self._is_stopping.wait(LOOK_INTERVAL_S):
            try:
                self.run_if_due()
            except RedisError as error:
                logger.warning("not reconciled: %s", type(error).__name__)
            except Exception:  # the next look comes whatever happened in this one
                logger.exception("not reconciled")
