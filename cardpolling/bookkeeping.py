"""RQ's record of the jobs that this process executes: started, alive, ended.

The same keys as RQ's own workers write, but of many jobs in one pipeline instead of some thirty round trips for each: our jobs
have no result, no dependents, no retries and no callbacks. On one thread of its own, in order, so that it never delays a card.
Nothing is ever concluded from this record; when Redis is away it is simply not written, and RQ cleans up by itself.
"""

import logging
import queue
import threading
from collections.abc import Callable

from redis import RedisError
from redis.client import Pipeline
from rq.executions import Execution, cleanup_execution
from rq.job import Job
from rq.worker import BaseWorker

logger = logging.getLogger(__name__)

LINGER_S = 0.1
CLOSE_TIMEOUT_S = 10.0

_Entry = Callable[[Pipeline], None]


class JobBook:
    """Writes the record of a worker's running jobs; may be called from any thread."""

    def __init__(self, worker: BaseWorker) -> None:
        self._worker = worker
        self._running: dict[str, tuple[Job, Execution | None]] = {}
        self._entries: queue.SimpleQueue[_Entry | None] = queue.SimpleQueue()
        self._is_closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="polling-jobs", daemon=True)
        self._thread.start()

    def start(self, job: Job) -> None:
        """Record that a job's cards are being executed from now on."""
        self._running[job.id] = (job, None)
        self._entries.put(lambda pipe: self._started(job, pipe))

    def end(self, job: Job) -> None:
        """Record that the last of a job's cards has ended: the job is deleted."""
        self._entries.put(lambda pipe: self._ended(job, pipe))

    def beat(self) -> None:
        """Extend the heartbeats of all running jobs."""
        for job, execution in list(self._running.values()):
            if execution is not None:
                self._entries.put(lambda _pipe, job=job: self._beaten(job))  # type: ignore[misc]

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._is_closing.set()
        self._entries.put(None)
        self._thread.join(CLOSE_TIMEOUT_S)

    def _run(self) -> None:
        is_open = True
        while is_open:
            entries = [self._entries.get()]
            self._is_closing.wait(LINGER_S)
            while not self._entries.empty():
                entries.append(self._entries.get())
            is_open = None not in entries
            self._write([entry for entry in entries if entry is not None])

    def _write(self, entries: list[_Entry]) -> None:
        try:
            with self._worker.connection.pipeline() as pipe:
                for entry in entries:
                    entry(pipe)
                pipe.execute()
        except RedisError as error:
            logger.warning("jobs not recorded: %s", type(error).__name__)
        except Exception:  # the thread serves the jobs to come
            logger.exception("jobs not recorded")

    def _started(self, job: Job, pipe: Pipeline) -> None:
        ttl_s = self._worker.get_heartbeat_ttl(job)
        execution = Execution.create(job, ttl_s, pipeline=pipe, worker_name=self._worker.name)
        job.prepare_for_execution(self._worker.name, pipeline=pipe)
        # The ttl of a waiting job is its lease; a running one lives as long as its heartbeats.
        pipe.expire(job.key, ttl_s)
        self._worker.executions[execution.id] = execution
        self._running[job.id] = (job, execution)

    def _ended(self, job: Job, pipe: Pipeline) -> None:
        _, execution = self._running.pop(job.id, (job, None))
        cleanup_execution(self._worker, job, pipe, execution)
        pipe.delete(job.key, job.execution_registry.key)
        self._worker.increment_successful_job_count(pipeline=pipe)

    def _beaten(self, job: Job) -> None:
        _, execution = self._running.get(job.id, (job, None))
        if execution is not None:
            self._worker.maintain_heartbeats(job, execution)
