"""``python tether.py PARENT_PID COMMAND...``: becomes the command, which on Linux is told to stop when its parent dies.

A process of its own and no ``preexec_fn``, which is unsafe where the parent has threads.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie, then become the command."""
    parent_pid, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent_pid:
            sys.exit("the parent is gone")
    os.execv(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
