"""What the demonstration starts, and in which order."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from demo.ports import HOST

ROOT = Path(__file__).resolve().parent.parent
WORKERS = 2
WEB_THREADS = 4


@dataclass(frozen=True, slots=True)
class Program:
    """A program under a name; ``port`` is where it listens, None where it does not.

    Those of a lower stage start first and stop last.
    """

    name: str
    command: Sequence[str]
    stage: int = 1
    port: int | None = None


def programs(*, web_port: int, gateway_port: int) -> list[Program]:
    """The simulated carriers, the web server, the workers."""
    workers = [
        Program(f"worker-{number + 1}", _manage("rqworker", "polling", "--verbosity", "0"))
        for number in range(WORKERS)
    ]
    return [
        Program("gateway", _gateway(gateway_port), stage=0, port=gateway_port),
        Program("web", _web(web_port), port=web_port),
        *workers,
    ]


def _gateway(port: int) -> list[str]:
    # A carrier as they are: it takes its time, and now and then something goes wrong.
    arguments = ["--port", str(port), "--latency-ms", "80", "--jitter-ms", "60"]
    return _manage(
        "simulate_gateway",
        *arguments,
        "--fault=http502_html:0.002",
        "--fault=reset_before_header:0.001",
    )


def _web(port: int) -> list[str]:
    return [
        *(sys.executable, "-m", "gunicorn", "--bind", f"{HOST}:{port}"),
        *("--worker-class", "gthread", "--threads", str(WEB_THREADS)),
        *("--no-control-socket", "--graceful-timeout", "3", "cardpolling.wsgi"),
    ]


def _manage(*arguments: str) -> list[str]:
    return [sys.executable, str(ROOT / "manage.py"), *arguments]
