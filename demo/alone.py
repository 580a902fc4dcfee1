"""One demonstration per folder at a time, by locks that the kernel releases however the holder ended.

``supervisor.lock`` belongs to the running demonstration. ``processes.lock`` is inherited by all that it starts: while somebody
holds that one alone, a demonstration that was killed is still ending.
"""

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from demo.notready import NotReady

ENDING_TIMEOUT_S = 40.0
POLL_S = 0.1


@contextmanager
def alone_in(folder: Path) -> Iterator[int]:
    """Be the only one; gives the file descriptor that started processes inherit. Raises ``NotReady`` where another runs."""
    with (
        (folder / "supervisor.lock").open("a+") as own,
        (folder / "processes.lock").open("a") as all_,
    ):
        if not _took(own):
            own.seek(0)
            raise NotReady(
                f"a demonstration runs in {folder.parent} already (process {own.read().strip()}); "
                "stop it, or choose another folder with --var DIR"
            )
        own.truncate(0)
        own.write(str(os.getpid()))
        own.flush()
        _wait_for(all_)
        yield all_.fileno()


def _wait_for(lock: IO[str]) -> None:
    deadline_s = time.monotonic() + ENDING_TIMEOUT_S
    while not _took(lock):
        if time.monotonic() > deadline_s:
            raise NotReady(
                f"processes of the last demonstration are still running: see {lock.name}"
            )
        time.sleep(POLL_S)


def _took(lock: IO[str]) -> bool:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
