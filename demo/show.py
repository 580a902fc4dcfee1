"""One run of the demonstration: prepare, start, show, stop."""

import argparse
import sys
import time
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from io import StringIO
from pathlib import Path

from django.conf import settings
from django.core.management import CommandError, call_command
from django.db import DatabaseError
from redis import RedisError
from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text

from cardpolling import connection, embedded
from cardpolling.management.outages import told_clearly
from demo import ports, preparation, table
from demo.figures import FiguresReader
from demo.notready import NotReady
from demo.processes import Program
from demo.signals import StopSignals
from demo.supervisor import Supervisor

READY_TIMEOUT_S = 60.0
POLL_S = 0.2
REFRESH_S = 1.0
PLAIN_REFRESH_S = 10.0
EVENTS_SHOWN = 5


class Show:
    """The demonstration from its first word to its last."""

    def __init__(
        self,
        asked: argparse.Namespace,
        folder: Path,
        programs: Sequence[Program],
        inherited_fd: int,
        stop_signals: StopSignals,
    ) -> None:
        self._asked = asked
        self._folder = folder
        self._programs = programs
        self._stop_signals = stop_signals
        self._events: deque[str] = deque(maxlen=EVENTS_SHOWN)
        self._on_event: Callable[[str], None] = _say
        log_folder = folder / "logs"
        log_folder.mkdir(exist_ok=True)
        self._supervisor = Supervisor(
            programs,
            log_folder=log_folder,
            inherited_fd=inherited_fd,
            on_event=lambda text: self._on_event(text),  # noqa: PLW0108  it changes
        )
        self._reader = FiguresReader(connection.polling_redis())

    def run(self) -> int:
        """Run all of it; gives the exit code."""
        answer, missing = "", []
        try:
            try:
                with told_clearly():
                    self._prepare()
            except CommandError as error:
                raise NotReady(str(error)) from None
            self._stop_signals.is_abrupt = False
            self._start()
            if self._asked.headless:
                self._wait(self._deadline_s())
                answer = _status()
            else:
                self._show(self._deadline_s())
            missing = self._supervisor.missing()
        finally:
            self._stop()
        if answer:
            print(answer)  # noqa: T201  the answer of the command
        if missing and not self._stop_signals.is_told():
            raise NotReady(f"at the end these did not run: {', '.join(missing)}")
        return 0

    def _prepare(self) -> None:
        _say("preparing the database ...")
        preparation.migrate()
        _say("loading three accounts and their cards ...")
        preparation.load(f"http://{ports.HOST}:{self._asked.gateway_port}")
        password = preparation.password(self._folder / "password")
        self._footer = (
            f"admin: http://localhost:{self._asked.web_port}/admin/   "
            f"user: {preparation.LOGIN}   password: {password or '(the one you have set)'}   "
            "Ctrl-C stops all"
        )
        _say(self._footer)

    def _start(self) -> None:
        """Start everything, each stage when the one before is there, and return when all is."""
        for stage in sorted({program.stage for program in self._programs}):
            self._supervisor.start(stage)
            awaited = [p.port for p in self._programs if p.stage == stage and p.port]
            self._wait_until(partial(_are_served, awaited))
        workers = [p for p in self._programs if p.name.startswith("worker")]
        self._wait_until(lambda: self._workers_alive() >= len(workers))
        _say("all runs")

    def _workers_alive(self) -> int:
        try:
            return len(self._reader.read().workers)
        except (RedisError, DatabaseError):
            return 0

    def _wait_until(self, is_there: Callable[[], bool]) -> None:
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        while not self._stop_signals.is_told() and not is_there():
            if time.monotonic() > deadline_s:
                raise NotReady(f"it did not start in time; {self._folder / 'logs'} says why")
            self._supervisor.tend()
            time.sleep(POLL_S)

    def _deadline_s(self) -> float:
        seconds: float | None = self._asked.seconds
        return time.monotonic() + (float("inf") if seconds is None else seconds)

    def _wait(self, deadline_s: float) -> None:
        """Look after the programs until the time is over or somebody says stop."""
        while not self._stop_signals.is_told() and (left_s := deadline_s - time.monotonic()) > 0:
            self._supervisor.tend()
            time.sleep(min(POLL_S, left_s))

    def _show(self, deadline_s: float) -> None:
        console = Console()
        if not console.is_terminal:
            self._show_plainly(console, deadline_s)
            return
        # What happens stands under the table; a line of its own would tear it.
        self._on_event = self._events.append
        with Live(console=console, auto_refresh=False) as live:
            while not self._is_over(deadline_s):
                live.update(self._screen(), refresh=True)
                self._wait(min(deadline_s, time.monotonic() + REFRESH_S))
        self._on_event = _say

    def _show_plainly(self, console: Console, deadline_s: float) -> None:
        while not self._is_over(deadline_s):
            console.print(self._screen())
            self._wait(min(deadline_s, time.monotonic() + PLAIN_REFRESH_S))

    def _is_over(self, deadline_s: float) -> bool:
        return self._stop_signals.is_told() or time.monotonic() >= deadline_s

    def _screen(self) -> RenderableType:
        try:
            figures = self._reader.read()
        except (RedisError, DatabaseError) as error:
            return Text(f"no figures at the moment: {type(error).__name__}", style="red")
        return table.screen(
            figures, pids=self._supervisor.pids(), footer=self._footer, events=self._events
        )

    def _stop(self) -> None:
        """Stop all of it, the embedded Redis server included; another signal makes it quick."""
        self._stop_signals.is_abrupt = False
        _say("stopping ...")
        self._supervisor.stop(is_hurried=self._stop_signals.is_told_again)
        connection.reset()
        embedded.leave(settings.VAR_DIR / "redis")
        _say("stopped")


def _are_served(numbers: Sequence[int]) -> bool:
    return all(ports.is_served(number) for number in numbers)


def _status() -> str:
    """The answer of ``manage.py polling_status --json``."""
    answer = StringIO()
    try:
        call_command("polling_status", json=True, stdout=answer)
    except CommandError as error:
        raise NotReady(str(error)) from None
    return answer.getvalue().strip()


def _say(text: str) -> None:
    print(f"demo: {text}", file=sys.stderr, flush=True)  # noqa: T201
