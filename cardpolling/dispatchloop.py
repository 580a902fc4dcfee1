"""The thread that keeps a worker process ticking: heartbeat and dispatch."""

import logging
import os
import socket
import threading

from redis import Redis, RedisError

from cardpolling import __version__, clock, conf, heartbeat
from cardpolling.counting import Counts
from cardpolling.dispatcher import Dispatcher
from cardpolling.eviction import EvictionWatch
from cardpolling.heartbeat import WorkerBeat
from cardpolling.ledger import Ledger
from cardpolling.units import unit_of_work
from carriers.gateway import AccountDirectory

logger = logging.getLogger(__name__)

OUTAGE_PAUSE_S = 1.0


class DispatchLoop:
    """Ticks every ``POLLING_DISPATCH_INTERVAL_MS`` until stopped; whatever fails, the next tick comes."""

    def __init__(
        self,
        client: Redis,
        rq_connection: Redis,
        directory: AccountDirectory,
        *,
        process_id: str,
        ledger: Ledger,
        counts: Counts,
    ) -> None:
        self._client = client
        self._directory = directory
        self._process_id = process_id
        self._ledger = ledger
        self._started_ms = 0
        self._is_stopping = threading.Event()
        self._eviction = EvictionWatch(client)
        self._dispatcher = Dispatcher(
            client, rq_connection, process_id=process_id, ledger=ledger, counts=counts
        )
        self._thread = threading.Thread(target=self._run, name="polling-dispatch", daemon=True)

    def start(self) -> None:
        """Start ticking."""
        self._thread.start()

    def stop(self) -> None:
        """Stop ticking, give the locks up and take the heartbeat back."""
        self._is_stopping.set()
        if self._thread.is_alive():
            self._thread.join(timeout=10)
        try:
            self._dispatcher.stop()
            heartbeat.withdraw(self._client, self._process_id)
        except RedisError:
            logger.warning("locks not given up: redis is away; they end by themselves")

    def tick(self) -> int:
        """One tick; gives the number of cards published. On a Redis that evicts keys nothing is claimed."""
        self._directory.refresh()
        accounts = self._directory.enabled()
        policy = self._eviction.policy()
        self._beat(f"redis evicts keys ({policy})" if policy else "")
        if policy:
            logger.error("nothing is claimed: redis evicts keys (%s), set noeviction", policy)
            self._is_stopping.wait(OUTAGE_PAUSE_S)
            return 0
        beats = heartbeat.workers(self._client, clock.now_ms())
        return self._dispatcher.tick(accounts, beats)

    def _run(self) -> None:
        interval_s = conf.dispatch_interval_ms() / 1000
        next_s = clock.monotonic()
        while not self._is_stopping.wait(max(0.0, next_s - clock.monotonic())):
            # A tick that came late is not made up for: the next one is a whole interval away.
            next_s = max(next_s + interval_s, clock.monotonic())
            try:
                with unit_of_work():
                    self.tick()
            except RedisError as error:
                logger.warning("no dispatch: redis is away (%s)", type(error).__name__)
                self._is_stopping.wait(OUTAGE_PAUSE_S)
            except Exception:
                logger.exception("tick failed")
                self._is_stopping.wait(OUTAGE_PAUSE_S)

    def _beat(self, refusal: str) -> None:
        now_ms = clock.now_ms()
        self._started_ms = self._started_ms or now_ms
        beat = WorkerBeat(
            process_id=self._process_id,
            host=socket.gethostname(),
            pid=os.getpid(),
            version=__version__,
            started_ms=self._started_ms,
            beat_ms=now_ms,
            places=conf.concurrency(),
            busy=self._ledger.held(),
            loads=self._ledger.loads(),
            refusal=refusal,
        )
        heartbeat.publish(self._client, beat)
