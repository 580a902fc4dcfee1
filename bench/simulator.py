"""Measures how many calls a second one core of the simulator serves.

    .venv/bin/python bench/simulator.py --connections 100 --seconds 10 [--latency-ms 50] [--fault KIND:SHARE]...

Starts the simulator as a process of its own and keeps every connection busy with one call after another. Calls per second of the
simulator's CPU is the figure that does not depend on what else the machine does. One JSON object on stdout.
"""

import argparse
import asyncio
import json
import os
import re
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from typing import IO, cast

ROOT = Path(__file__).resolve().parent.parent
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
PAGES = ("status", "usage", "realname")
HEAD_END = b"\r\n\r\n"
LENGTH = re.compile(rb"Content-Length: (\d+)")


class Caller(asyncio.Protocol):
    """One connection that makes a call as soon as the one before is answered."""

    calls = count()
    answered = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._buffer = b""
        self._call()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head_end = self._buffer.find(HEAD_END)
        length = LENGTH.search(self._buffer)
        if head_end < 0 or length is None:
            return
        if len(self._buffer) >= head_end + len(HEAD_END) + int(length[1]):
            self._buffer = b""
            Caller.answered += 1
            self._call()

    def _call(self) -> None:
        number = next(Caller.calls)
        path = f"/v1/cards/{898600 * 10**14 + number // 3:020}/{PAGES[number % 3]}"
        self._transport.write(
            f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer bench\r\n"
            f"X-Carrier-Account: bench-{number % 10}\r\nAccept: application/json\r\n"
            f"User-Agent: cardpolling/bench\r\nX-Request-Id: {number:032x}\r\n\r\n".encode()
        )


def main() -> None:
    """Run one measurement and print it."""
    options = _options()
    command = [sys.executable, "manage.py", "simulate_gateway", "--port", "0"]
    command += ["--latency-ms", str(options.latency_ms)]
    command += [argument for fault in options.fault for argument in ("--fault", fault)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as simulator:
        try:
            port = _port(cast("IO[bytes]", simulator.stdout).readline())
            figures = asyncio.run(_measure(options, simulator.pid, port))
        finally:
            simulator.terminate()
    print(json.dumps(figures, indent=1))  # noqa: T201 - the figures are the output


async def _measure(options: argparse.Namespace, pid: int, port: int) -> dict[str, float]:
    loop = asyncio.get_running_loop()
    for _ in range(options.connections):
        await loop.create_connection(Caller, "127.0.0.1", port)
    await asyncio.sleep(options.warm_up)
    begun_s, begun_calls, begun_cpu_s = time.monotonic(), Caller.answered, _cpu_s(pid)
    await asyncio.sleep(options.seconds)
    seconds, calls = time.monotonic() - begun_s, Caller.answered - begun_calls
    cpu_s = _cpu_s(pid) - begun_cpu_s
    return {
        "connections": options.connections,
        "calls_per_s": round(calls / seconds),
        "simulator_cpu_share": round(cpu_s / seconds, 2),
        "calls_per_cpu_s": round(calls / cpu_s) if cpu_s else 0,
        "simulator_rss_mb": _rss_mb(pid),
    }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _rss_mb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int(re.findall(r"VmRSS:\s+(\d+) kB", status)[0]) // 1024


def _port(line: bytes) -> int:
    found = re.search(rb":(\d+)", line)
    if found is None:
        raise SystemExit(f"the simulator did not start: {line!r}")
    return int(found[1])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=100)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--warm-up", type=float, default=2)
    parser.add_argument("--latency-ms", type=float, default=0)
    parser.add_argument("--fault", action="append", default=[], metavar="KIND:SHARE")
    return parser.parse_args()


if __name__ == "__main__":
    main()
