"""Measures the whole way of a check: claims, RQ jobs, limiter, HTTP, SQL, finish.

    .venv/bin/python bench/executor.py --accounts 1 --rate 200 --latency-ms 100 --workers 1 --seconds 30

Starts a Redis server, the simulator and worker processes of its own, makes cards that are all due, lets the system settle and
then counts at the gateway. Prints the use of the limit, the most calls seen in any sliding second, and CPU per call.
Nothing else should run on the machine meanwhile.
"""

import argparse
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
SETTLE_S = 12


def main() -> None:
    """Run one measurement and print it as one JSON object."""
    options = _options()
    folder = Path(tempfile.mkdtemp(prefix="cardpolling-bench-"))
    started: list[subprocess.Popen[bytes]] = []
    try:
        print(json.dumps(_measure(options, folder, started), indent=1))  # noqa: T201
    finally:
        for process in reversed(started):
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--accounts", type=int, default=1)
    parser.add_argument("--rate", type=float, default=200.0, help="calls a second per account")
    parser.add_argument("--latency-ms", type=int, default=100)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--seconds", type=int, default=30)
    parser.add_argument("--database-url", default="")
    parser.add_argument("--hang", type=int, default=0, help="so many accounts never answer")
    parser.add_argument("--log", default="", help="folder for the workers' output")
    return parser.parse_args()


def _measure(
    options: argparse.Namespace, folder: Path, started: list[subprocess.Popen[bytes]]
) -> dict[str, object]:
    redis_port, gateway_port = _free_port(), _free_port()
    redis_server = shutil.which("redis-server") or shutil.which("valkey-server")
    if redis_server is None:
        raise SystemExit("needs redis-server or valkey-server on PATH")
    started.append(
        subprocess.Popen(
            [redis_server, "--port", str(redis_port), "--dir", str(folder), "--save", ""],
            stdout=subprocess.DEVNULL,
        )
    )
    os.environ["REDIS_URL"] = os.environ["POLLING_REDIS_URL"] = f"redis://127.0.0.1:{redis_port}/0"
    os.environ["DATABASE_URL"] = options.database_url or f"sqlite:///{folder / 'db.sqlite3'}"
    os.environ["DEBUG"] = "0"
    time.sleep(1)
    gateway = _manage("simulate_gateway", "--port", str(gateway_port), *_faults(options))
    started.append(gateway)
    gateway_url = f"http://127.0.0.1:{gateway_port}"
    _fill(options, gateway_url)
    workers = [
        _manage("rqworker", "polling", "--verbosity", "0", log=_log(options, i))
        for i in range(options.workers)
    ]
    started.extend(workers)
    time.sleep(SETTLE_S)
    before = _reading(gateway_url, [w.pid for w in workers], started[0].pid)
    time.sleep(options.seconds)
    after = _reading(gateway_url, [w.pid for w in workers], started[0].pid)
    return _report(options, before, after)


def _faults(options: argparse.Namespace) -> list[str]:
    faults = [f"--fault=hang:1:bench-{i}" for i in range(options.hang)]
    return [f"--latency-ms={options.latency_ms}", *faults]


def _log(options: argparse.Namespace, number: int) -> str:
    return str(Path(options.log) / f"worker-{number}.log") if options.log else os.devnull


def _manage(*arguments: str, log: str = os.devnull) -> "subprocess.Popen[bytes]":
    with open(log, "ab") as output:
        return subprocess.Popen(
            [sys.executable, str(ROOT / "manage.py"), *arguments],
            cwd=ROOT,
            stdout=output,
            stderr=output,
        )


def _fill(options: argparse.Namespace, gateway_url: str) -> None:
    """Accounts, and for each enough cards that are due now to keep it at its limit."""
    sys.path.insert(0, str(ROOT))
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "cardpolling.settings")
    import django

    django.setup()
    from django.core.management import call_command

    from cardpolling import clock, connection, state
    from cardpolling.checktypes import CheckType
    from cardpolling.models import PollingConfig
    from carriers.models import Card, Carrier, RateLimitGroup

    call_command("migrate", verbosity=0)
    PollingConfig.objects.update(
        card_status_interval_s=3600,
        carddata_interval_s=None,
        realname_interval_s=None,
        package_interval_s=None,
    )
    per_account = int(options.rate * (options.seconds + SETTLE_S + 10))
    client = connection.polling_redis()
    for number in range(options.accounts):
        carrier = Carrier.objects.create(
            name=f"bench {number}",
            code=f"bench-{number}",
            gateway_url=gateway_url,
            gateway_token="t",
            max_in_flight=5000,
        )
        RateLimitGroup.objects.create(
            carrier=carrier,
            name="query",
            max_per_second=options.rate,
            operations=["card_status", "carddata", "realname"],
        )
        first = number * per_account
        cards = Card.objects.bulk_create(
            [Card(carrier=carrier, iccid=f"8986{first + i:015d}0") for i in range(per_account)],
            batch_size=1000,
        )
        now_ms = clock.now_ms()
        for start in range(0, len(cards), 1000):
            part = cards[start : start + 1000]
            for card in part:
                state.remove(client, carrier.pk, str(card.pk))
            state.enroll_many(
                client,
                carrier.pk,
                [(str(card.pk), {CheckType.CARD_STATUS: now_ms}) for card in part],
            )


def _reading(gateway_url: str, worker_pids: list[int], redis_pid: int) -> dict[str, object]:
    with urllib.request.urlopen(f"{gateway_url}/simulator/stats") as answer:  # noqa: S310
        accounts = json.load(answer)["accounts"]
    return {
        "at": time.monotonic(),
        "accounts": accounts,
        "worker_cpu_s": sum(_cpu_s(pid) for pid in worker_pids),
        "redis_cpu_s": _cpu_s(redis_pid),
        "rss_mb": [_rss_mb(pid) for pid in worker_pids],
    }


def _report(
    options: argparse.Namespace, before: dict[str, object], after: dict[str, object]
) -> dict[str, object]:
    seconds = after["at"] - before["at"]  # type: ignore[operator]
    calls = {
        code: account["calls"] - before["accounts"].get(code, {"calls": 0})["calls"]  # type: ignore[attr-defined]
        for code, account in after["accounts"].items()  # type: ignore[attr-defined]
    }
    well = [n for code, n in calls.items() if int(code.rsplit("-", 1)[1]) >= options.hang]
    total = sum(calls.values())
    target = options.rate * (options.accounts - options.hang) * seconds
    worker_cpu_s = after["worker_cpu_s"] - before["worker_cpu_s"]  # type: ignore[operator]
    redis_cpu_s = after["redis_cpu_s"] - before["redis_cpu_s"]  # type: ignore[operator]
    most = [account["most_in_a_second"] for account in after["accounts"].values()]  # type: ignore[attr-defined]
    return {
        "calls_per_s": round(total / seconds, 1),
        "use_of_limit": round(sum(well) / target, 4),
        "least_use_of_an_account": round(min(well) / (options.rate * seconds), 4),
        "most_in_a_sliding_second": max(most),
        "worker_cpu_ms_per_call": round(1000 * worker_cpu_s / max(1, total), 3),
        "worker_cores": round(worker_cpu_s / seconds, 2),
        "redis_cpu_ms_per_call": round(1000 * redis_cpu_s / max(1, total), 3),
        "overlapping_calls_of_a_card": sum(
            a["overlapping_calls_of_a_card"]
            for a in after["accounts"].values()  # type: ignore[attr-defined]
        ),
        "rss_mb": after["rss_mb"],
    }


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICKS_PER_S


def _rss_mb(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) // 1024
    return 0


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


if __name__ == "__main__":
    main()
