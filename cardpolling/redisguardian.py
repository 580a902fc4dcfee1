"""The process above the embedded server: ``python redisguardian.py FOLDER BINARY``, started by ``embedded`` and by nobody else.

It starts the server, starts it again should it die, and stops it when the last user's lock is gone. It is a script of the
standard library alone, without Django, so that it starts within milliseconds and takes little memory.
"""

import ctypes
import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import FrameType
from typing import IO

POLL_S = 0.1
STOP_TIMEOUT_S = 10.0
LOCK_TIMEOUT_S = 2.0
QUICK_DEATH_S = 1.0
QUICK_DEATHS = 3
"""So many deaths in a row, each within a second of the start: there is no use in trying on."""

PR_SET_PDEATHSIG = 1


class _Told:
    """Whether this process was told to stop."""

    is_told = False

    def stop(self, _number: int, _frame: FrameType | None) -> None:
        self.is_told = True


def main() -> int:
    """Guard until the last user is gone; the first process returns once the guard stands."""
    folder, binary = Path(sys.argv[1]), sys.argv[2]
    # The order matters: a process that dies closes its files in the order of their opening, and whoever finds the lock of
    # the users free must find that of the guardian free too.
    guardian, users, server = (
        (folder / name).open("a") for name in ("guardian", "users", "server")
    )
    if not _took(guardian, LOCK_TIMEOUT_S):
        return 0
    if os.fork():
        # The child holds the lock from here on; skip everything that would flush or close.
        os._exit(0)
    told = _Told()
    signal.signal(signal.SIGTERM, told.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.chdir("/")
    _end_orphan(folder, server)
    status = _guard(folder, binary, users=users, server=server, told=told)
    guardian.close()
    users.close()
    return status


def _guard(folder: Path, binary: str, *, users: IO[str], server: IO[str], told: _Told) -> int:
    deaths = 0
    while deaths < QUICK_DEATHS:
        process, started_s = _start(folder, binary, server), time.monotonic()
        while process.poll() is None:
            if told.is_told or _took(users, 0):
                _stop(process)
                return 0
            time.sleep(POLL_S)
        deaths = deaths + 1 if time.monotonic() - started_s < QUICK_DEATH_S else 0
    return 1


def _start(folder: Path, binary: str, server: IO[str]) -> "subprocess.Popen[bytes]":
    guardian_pid = os.getpid()

    def die_with_guardian() -> None:
        if sys.platform == "linux":
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != guardian_pid:
                os._exit(1)

    process = subprocess.Popen(
        [binary, str(folder / "redis.conf")],
        stdin=subprocess.DEVNULL,
        cwd=folder,
        pass_fds=[server.fileno()],
        preexec_fn=die_with_guardian,  # noqa: PLW1509  this process has one thread
    )
    (folder / "server.pid").write_text(str(process.pid))
    return process


def _end_orphan(folder: Path, server: IO[str]) -> None:
    """Wait for a server whose guardian was killed, which ends it; on other systems than Linux tell it to."""
    if _took(server, LOCK_TIMEOUT_S):
        return
    # The lock says that it lives, so the number is still its own.
    os.kill(int((folder / "server.pid").read_text()), signal.SIGTERM)
    if not _took(server, STOP_TIMEOUT_S):
        os.kill(int((folder / "server.pid").read_text()), signal.SIGKILL)
        _took(server, STOP_TIMEOUT_S)


def _stop(process: "subprocess.Popen[bytes]") -> None:
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _took(lock: IO[str], timeout_s: float) -> bool:
    """Take a lock within the time."""
    deadline_s = time.monotonic() + timeout_s
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline_s:
                return False
            time.sleep(POLL_S / 10)
        else:
            return True


if __name__ == "__main__":
    sys.exit(main())
