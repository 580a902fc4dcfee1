"""RQ's record of the jobs that this process executes: started, alive, ended.

The same keys as RQ's own workers write, in one pipeline each instead of some thirty round trips: our jobs have no result, no
dependents, no retries and no callbacks. On one thread of its own, in order, so that it never delays a card. Nothing is ever
concluded from this record; when Redis is away it is simply not written, and RQ cleans up by itself.
"""

import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from redis import RedisError
from rq.executions import Execution, cleanup_execution
from rq.job import Job
from rq.worker import BaseWorker

logger = logging.getLogger(__name__)


class JobBook:
    """Writes the record of a worker's running jobs; may be called from any thread."""

    def __init__(self, worker: BaseWorker) -> None:
        self._worker = worker
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="polling-jobs")
        self._running: dict[str, tuple[Job, Execution | None]] = {}

    def start(self, job: Job) -> None:
        """Record that a job's cards are being executed from now on."""
        self._running[job.id] = (job, None)
        self._thread.submit(self._safely, self._started, job)

    def end(self, job: Job) -> None:
        """Record that the last of a job's cards has ended: the job is deleted."""
        self._thread.submit(self._safely, self._ended, job)

    def beat(self) -> None:
        """Extend the heartbeats of all running jobs."""
        for job, execution in list(self._running.values()):
            if execution is not None:
                self._thread.submit(self._safely, self._beaten, job)

    def close(self) -> None:
        """Write what is left and end the thread."""
        self._thread.shutdown(wait=True)

    def _safely(self, write: Callable[[Job], None], job: Job) -> None:
        try:
            write(job)
        except RedisError as error:
            logger.warning("job not recorded: %s", type(error).__name__, extra={"job_id": job.id})
        except Exception:  # noqa: BLE001  the thread serves the jobs to come
            logger.exception("job not recorded", extra={"job_id": job.id})

    def _started(self, job: Job) -> None:
        with self._worker.connection.pipeline() as pipe:
            ttl_s = self._worker.get_heartbeat_ttl(job)
            execution = Execution.create(job, ttl_s, pipeline=pipe, worker_name=self._worker.name)
            job.prepare_for_execution(self._worker.name, pipeline=pipe)
            # The ttl of a waiting job is its lease; a running one lives as long as its heartbeats.
            pipe.expire(job.key, ttl_s)
            pipe.execute()
        self._worker.executions[execution.id] = execution
        self._running[job.id] = (job, execution)

    def _ended(self, job: Job) -> None:
        _, execution = self._running.pop(job.id, (job, None))
        with self._worker.connection.pipeline() as pipe:
            cleanup_execution(self._worker, job, pipe, execution)
            pipe.delete(job.key, job.execution_registry.key)
            self._worker.increment_successful_job_count(pipeline=pipe)
            pipe.execute()

    def _beaten(self, job: Job) -> None:
        _, execution = self._running.get(job.id, (job, None))
        if execution is not None:
            self._worker.maintain_heartbeats(job, execution)
