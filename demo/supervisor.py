"""Starts programs, starts those again that die, and stops all of them. Linux stops them too should this process be killed."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from demo.processes import ROOT, Program

TETHER = Path(__file__).with_name("tether.py")
STOP_TIMEOUT_S = 20.0
POLL_S = 0.05
SHORT_LIFE_S = 10.0
LONGEST_PAUSE_S = 15.0


def pause_s(short_lives: int) -> float:
    """How long a program that has died waits for its next start: longer with every short life in a row."""
    return float(min(2 ** max(0, short_lives - 1), LONGEST_PAUSE_S))


@dataclass(slots=True)
class _Running:
    """A program, and what became of it; times in seconds of the monotonic clock."""

    program: Program
    process: "subprocess.Popen[bytes] | None" = None
    started_s: float = 0.0
    short_lives: int = 0
    start_again_s: float = 0.0


class Supervisor:
    """Runs programs; what they write goes to a file of their own in ``log_folder``."""

    def __init__(
        self,
        programs: Sequence[Program],
        *,
        log_folder: Path,
        inherited_fd: int,
        on_event: Callable[[str], None],
    ) -> None:
        self._all = [_Running(program) for program in programs]
        self._log_folder = log_folder
        self._inherited_fd = inherited_fd
        self._on_event = on_event
        for running in self._all:
            self._log_of(running.program).write_bytes(b"")

    def start(self, stage: int) -> None:
        """Start the programs of a stage."""
        for running in self._all:
            if running.program.stage == stage:
                self._start(running)

    def tend(self) -> None:
        """Look after all that was started; to be called several times a second."""
        for running in self._all:
            if running.process is not None and running.process.poll() is not None:
                self._bury(running, running.process.returncode)
            elif running.process is None and 0 < running.start_again_s <= time.monotonic():
                self._start(running)

    def pids(self) -> dict[str, int]:
        """Process ids of what runs, by name."""
        return {r.program.name: r.process.pid for r in self._all if r.process is not None}

    def missing(self) -> list[str]:
        """Names of what does not run at this moment."""
        return [
            r.program.name for r in self._all if r.process is None or r.process.poll() is not None
        ]

    def stop(self, *, is_hurried: Callable[[], bool] = lambda: False) -> None:
        """Stop all of it, the highest stage first; what does not end in time, or at all once in a hurry, is killed."""
        for stage in sorted({r.program.stage for r in self._all}, reverse=True):
            processes = [r.process for r in self._all if r.process and r.program.stage == stage]
            _stop(processes, is_hurried)
        for running in self._all:
            running.process = None

    def _start(self, running: _Running) -> None:
        with self._log_of(running.program).open("ab") as log:
            running.process = subprocess.Popen(
                [sys.executable, "-I", "-S", TETHER, str(os.getpid()), *running.program.command],
                cwd=ROOT,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[self._inherited_fd],
                # Ctrl-C of the terminal reaches this process alone, which stops the others in their order.
                start_new_session=True,
            )
        running.started_s, running.start_again_s = time.monotonic(), 0.0

    def _bury(self, running: _Running, status: int) -> None:
        lived_s = time.monotonic() - running.started_s
        running.short_lives = running.short_lives + 1 if lived_s < SHORT_LIFE_S else 0
        wait_s = pause_s(running.short_lives)
        running.process, running.start_again_s = None, time.monotonic() + wait_s
        how = signal.Signals(-status).name if status < 0 else f"exit code {status}"
        log = self._log_of(running.program)
        self._on_event(
            f"{running.program.name} ended ({how}), starts again in {wait_s:g} s; its output: {log}"
        )

    def _log_of(self, program: Program) -> Path:
        return self._log_folder / f"{program.name}.log"


def _stop(processes: "Sequence[subprocess.Popen[bytes]]", is_hurried: Callable[[], bool]) -> None:
    for process in processes:
        process.terminate()
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    while any(process.poll() is None for process in processes):
        if time.monotonic() > deadline_s or is_hurried():
            break
        time.sleep(POLL_S)
    for process in processes:
        # Each leads a group of its own: what it has started itself goes with it.
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
