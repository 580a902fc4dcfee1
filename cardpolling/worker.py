"""``PollingWorker``: the RQ worker class behind ``manage.py rqworker polling``.

One process, several threads. The **main** thread pops jobs, from the queues of those accounts that may take a place, and hands
their claims to the engine. The engine's **loop** executes cards side by side; its batch **threads** do the Redis and SQL work.
The **dispatch** thread ticks. RQ's record of jobs is kept on a thread of its own, off everybody's way, and jobs of another kind
that stand in the queues named on the command line run one at a time on theirs.

The signal handler only sets a flag: RQ's own acts between pop and start, and loses the job.
"""

import gc
import logging
import sys
import threading
import uuid
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import FrameType
from typing import Any

import redis.exceptions
from redis import RedisError
from rq import Queue, worker_registration
from rq.exceptions import NoSuchJobError
from rq.job import Job
from rq.serializers import JSONSerializer
from rq.timeouts import BaseDeathPenalty
from rq.utils import as_text
from rq.worker import SimpleWorker

from cardpolling import bulkhead, clock, conf, connection, publishing, state
from cardpolling.bookkeeping import JobBook
from cardpolling.counting import Counts
from cardpolling.dispatchloop import DispatchLoop
from cardpolling.engine import Engine
from cardpolling.ledger import Ledger
from cardpolling.reconcileloop import ReconcileLoop
from cardpolling.state import Claim
from cardpolling.units import unit_of_work
from carriers.gateway import directory

logger = logging.getLogger(__name__)

POP_TIMEOUT_S = 1.0
"""How long a pop waits at most: within it a new account's queue is listened to and a stop is seen."""

FULL_POP_TIMEOUT_S = 0.05
"""The same while some accounts have no place free: they are listened to again as soon as one is."""

OUTAGE_PAUSE_S = 1.0
SIGN_ON_INTERVAL_S = 15.0
CLAIMS_RECORD_TTL_S = 90
GIL_SWITCH_S = 0.001
"""The loop waits for the interpreter lock behind batch threads; Python's 5 ms would make calls miss their slots."""


class NoDeathPenalty(BaseDeathPenalty):
    """No asynchronous exceptions and no SIGALRM: executions have deadlines of their own."""

    def setup_death_penalty(self) -> None:
        """Set nothing up."""

    def cancel_death_penalty(self) -> None:
        """Cancel nothing."""


class PollingWorker(SimpleWorker):
    """Executes cards side by side, dispatches, and follows the accounts as they come and go."""

    death_penalty_class = NoDeathPenalty

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        # Claims travel as JSON whatever serializer the command line names: a pickle from Redis is code.
        kwargs["serializer"] = JSONSerializer
        super().__init__(*args, **kwargs)
        self.process_id = uuid.uuid4().hex
        self._own_queues = list(self.queues)
        self._turn = 0
        self._stopping = threading.Event()
        self._signed_on_s = 0.0

    @property
    def dequeue_timeout(self) -> int:
        """Bounds the socket timeout too, so that a Redis that hangs is noticed within seconds."""
        return int(POP_TIMEOUT_S)

    def work(  # type: ignore[override]  # noqa: PLR0913  RQ's signature
        self,
        burst: bool = False,
        logging_level: str | None = None,
        date_format: str = "%H:%M:%S",
        log_format: str = "%(asctime)s %(message)s",
        max_jobs: int | None = None,
        max_idle_time: int | None = None,
        with_scheduler: bool = False,
        **_strategy: Any,
    ) -> bool:
        """Work until told to stop, or with ``burst`` until nothing is due and nothing waits.

        ``with_scheduler`` is passed over: polling has its own dispatcher, and RQ's scheduler forks.
        """
        del with_scheduler
        self._install_signal_handlers()  # type: ignore[no-untyped-call]
        self.bootstrap(logging_level, date_format, log_format)
        switch_interval_s = sys.getswitchinterval()
        sys.setswitchinterval(GIL_SWITCH_S)
        self._open()
        try:
            return self._work(burst=burst, max_jobs=max_jobs, max_idle_s=max_idle_time)
        finally:
            self._close()
            sys.setswitchinterval(switch_interval_s)

    def _open(self) -> None:
        client = connection.polling_redis()
        self._ledger, self._counts = Ledger(), Counts()
        self._book = JobBook(self)
        self._other_jobs = ThreadPoolExecutor(1, thread_name_prefix="polling-other-jobs")
        self._other_job: Future[None] | None = None
        self._engine = Engine(
            client,
            directory,
            ledger=self._ledger,
            counts=self._counts,
            also_renew=self._book.beat,
        )
        self._dispatch = DispatchLoop(
            client,
            self.connection,
            directory,
            process_id=self.process_id,
            ledger=self._ledger,
            counts=self._counts,
        )
        self._reconcile = ReconcileLoop(client, process_id=self.process_id)
        self._client = client
        # What is loaded stays: going through all of it again and again takes 50 ms each time, in which calls miss their slots.
        gc.collect()
        gc.freeze()
        self._engine.start()

    def _close(self) -> None:
        """Stop in order: no new claims, running executions to their end, the record, RQ's registration."""
        self._reconcile.stop()
        self._dispatch.stop()
        self._engine.stop(conf.grace_s())
        self._other_jobs.shutdown(wait=True)
        self._book.close()
        try:
            self.teardown()  # type: ignore[no-untyped-call]
        except RedisError as error:
            logger.warning("worker not signed off: %s", type(error).__name__)

    def _work(self, *, burst: bool, max_jobs: int | None, max_idle_s: int | None) -> bool:
        if burst:
            self._dispatch.tick()
        else:
            self._dispatch.start()
            self._reconcile.start()
        jobs, idle_since_s = 0, clock.monotonic()
        while not self._stopping.is_set() and (max_jobs is None or jobs < max_jobs):
            is_worked = self._look_for_work(burst=burst)
            if is_worked is None:
                self._stopping.wait(OUTAGE_PAUSE_S)
            elif is_worked:
                jobs, idle_since_s = jobs + 1, clock.monotonic()
            elif self._is_busy():
                idle_since_s = clock.monotonic()
            elif burst and not self._dispatch.tick():
                break
            elif max_idle_s is not None and clock.monotonic() - idle_since_s >= max_idle_s:
                break
        return jobs > 0

    def _look_for_work(self, *, burst: bool) -> bool | None:
        """Take one job; None where something was in the way, whatever it was."""
        try:
            self._sign_on()
            return self._take_one(burst=burst)
        except (redis.exceptions.ConnectionError, redis.exceptions.TimeoutError) as error:
            logger.warning("no jobs: redis is away (%s)", type(error).__name__)
            self._signed_on_s = 0.0
        except Exception:  # the next job comes whatever happened to this one
            logger.exception("job not taken")
        return None

    def _is_busy(self) -> bool:
        other = self._other_job
        return self._ledger.held() > 0 or (other is not None and not other.done())

    def _take_one(self, *, burst: bool) -> bool:
        """Pop one job and start it; False when there was none."""
        queues, is_everyone_heard = self._queues_with_room()
        if not queues:
            self._stopping.wait(FULL_POP_TIMEOUT_S)
            return False
        timeout_s = POP_TIMEOUT_S if is_everyone_heard and not burst else FULL_POP_TIMEOUT_S
        popped = self.connection.blpop([queue.key for queue in queues], timeout_s)
        if popped is None:
            return False
        queue_key, job_id = as_text(popped[0]), as_text(popped[1])
        job = self._fetch(job_id)
        if job is None:
            return False
        queue = next(queue for queue in queues if queue.key == queue_key)
        if job.func_name == publishing.EXECUTE_CLAIMS:
            self._start_claims(job)
        else:
            self._perform(job, queue)
        return True

    def _queues_with_room(self) -> tuple[list[Queue], bool]:
        """The queues to pop from, each account's in its turn, and whether no account had to be left out."""
        directory.refresh()
        accounts = directory.enabled()
        places, held = conf.concurrency(), self._ledger.held()
        open_to = [
            account.carrier_id
            for account in accounts
            if bulkhead.may_take(
                held=self._ledger.held_by(account.carrier_id),
                free=places - held,
                places=places,
                accounts=len(accounts),
                wanted=conf.cards_per_job(),
            )
        ]
        self._turn += 1
        start = self._turn % len(open_to) if open_to else 0
        in_turn = open_to[start:] + open_to[:start]
        queues = [publishing.queue_of(carrier_id, self.connection) for carrier_id in in_turn]
        is_free = self._other_job is None or self._other_job.done()
        own = self._own_queues if is_free else []
        return own + queues, is_free and len(open_to) == len(accounts)

    def _fetch(self, job_id: str) -> Job | None:
        """Read a popped job; one that has outlived its lease is gone, one that cannot be read is dropped."""
        try:
            job = Job.fetch(job_id, connection=self.connection, serializer=JSONSerializer)
            # The call is read only when it is asked for, and may be anything.
            _ = job.func_name
        except NoSuchJobError:
            return None
        except RedisError:
            raise
        except Exception as error:  # noqa: BLE001  whatever stands in a job, the worker lives
            logger.error("unreadable job dropped: %s", type(error).__name__)
            self.connection.delete(Job.key_for(job_id))
            return None
        else:
            return job

    def _start_claims(self, job: Job) -> None:
        """Hand a job's claims to the engine; the job ends with the last of them."""
        try:
            claims = publishing.decode(*job.args)
            carrier_id = claims[0].carrier_id
        except Exception as error:  # noqa: BLE001  whatever stands in a job, the worker lives
            logger.error("job dropped: %s", type(error).__name__, extra={"job_id": job.id})
            job.delete(remove_from_queue=False)
            return
        if self._stopping.is_set():
            self._release(job, claims)
            return
        self._ledger.hold(carrier_id, len(claims))
        self._book.start(job)
        self._engine.submit(claims).add_done_callback(lambda _done: self._book.end(job))

    def _release(self, job: Job, claims: Sequence[Claim]) -> None:
        """A stop came between pop and start: the claims are begun by nobody, their cards are due again at once."""
        state.release_many(self._client, claims, now_ms=clock.now_ms())
        job.delete(remove_from_queue=False)

    def _perform(self, job: Job, queue: Queue) -> None:
        """Run a job of another kind as RQ does, beside the cards."""

        def perform() -> None:
            try:
                with unit_of_work():
                    self.perform_job(job, queue, self.prepare_execution(job))
            except RedisError as error:
                logger.warning("job not recorded: %s", type(error).__name__)

        self._other_job = self._other_jobs.submit(perform)

    def get_heartbeat_ttl(self, job: Job, working_time: float = 0.0) -> int:
        """How long RQ's record of a job outlives its last heartbeat: little for jobs of claims, which are kept alive."""
        if job.func_name == publishing.EXECUTE_CLAIMS:
            return max(CLAIMS_RECORD_TTL_S, conf.lease_ms() // 1000)
        return super().get_heartbeat_ttl(job, working_time)

    def _sign_on(self) -> None:
        """Keep this worker in RQ's list, also after Redis lost it."""
        if clock.monotonic() - self._signed_on_s < SIGN_ON_INTERVAL_S:
            return
        accounts = directory.enabled()
        self.queues = self._own_queues + [
            publishing.queue_of(account.carrier_id, self.connection) for account in accounts
        ]
        with self.connection.pipeline() as pipe:
            self.heartbeat(pipeline=pipe)
            pipe.hset(self.key, mapping=self.serialize())
            worker_registration.register(self, pipe)
            pipe.execute()
        if self.should_run_maintenance_tasks:
            self.run_maintenance_tasks()  # type: ignore[no-untyped-call]
        self._signed_on_s = clock.monotonic()

    def request_stop(self, signum: int, frame: FrameType | None) -> None:
        """Take nothing new; the loop sees the flag within a second."""
        del signum, frame
        self._stopping.set()

    request_force_stop = request_stop
