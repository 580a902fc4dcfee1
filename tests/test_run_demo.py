"""``./run demo`` as a user has it: started as a process, in a folder of its own."""

import json
import os
import signal
import socket
import subprocess
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
SECONDS = 8
DEADLINE_S = 120
OURS = (
    "DATABASE_URL",
    "DJANGO_SETTINGS_MODULE",
    "POLLING_REDIS_URL",
    "REDIS_URL",
    "SECRET_KEY",
    "VAR_DIR",
)

pytestmark = [
    pytest.mark.timeout(3 * DEADLINE_S),
    pytest.mark.skipif(
        not Path("/proc/self/environ").exists(), reason="looks at processes in /proc"
    ),
]


def command(folder, *options):
    return ["./run", "demo", "--headless", "--var", str(folder), *options]


def environment():
    return {name: value for name, value in os.environ.items() if name not in OURS}


def run(folder, *options):
    """Run one demonstration to its end."""
    ports = () if "--web-port" in options else ("--web-port", "0", "--gateway-port", "0")
    return subprocess.run(
        command(folder, *ports, *options),
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
        check=False,
    )


def processes_of(folder):
    """Process ids and command lines of all that has its data in the folder."""
    found = {}
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if f"VAR_DIR={folder}".encode() in (process / "environ").read_bytes().split(b"\0"):
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except (OSError, UnicodeDecodeError):
            continue
    return {pid: line for pid, line in found.items() if line}


def wait_until(holds, what):
    deadline_s = time.monotonic() + DEADLINE_S
    while not (answer := holds()):
        assert time.monotonic() < deadline_s, what
        time.sleep(0.1)
    return answer


@contextmanager
def running(folder):
    """A demonstration, from the moment when all of it runs; killed in the end if it is still there."""
    log = folder.parent / f"{folder.name}.log"
    with log.open("wb") as file:
        demo = subprocess.Popen(
            command(folder, "--seconds", "600", "--web-port", "0", "--gateway-port", "0"),
            cwd=ROOT,
            env=environment(),
            stdout=file,
            stderr=file,
        )
    try:
        wait_until(lambda: "all runs" in log.read_text() or demo.poll() is not None, "no start")
        assert demo.poll() is None, log.read_text()
        yield demo, log
    finally:
        demo.kill()
        demo.wait()
        wait_until(lambda: not processes_of(folder), "something is left")


def password_of(answer):
    return answer.stderr.split("password: ")[1].split()[0]


def test_a_demonstration_checks_cards_and_a_second_one_goes_on(tmp_path):
    first = run(tmp_path / "var", "--seconds", str(SECONDS))
    left = processes_of(tmp_path / "var")
    second = run(tmp_path / "var", "--seconds", "1")

    assert (first.returncode, second.returncode) == (0, 0), first.stderr + second.stderr
    assert left == processes_of(tmp_path / "var") == {}
    before, after = json.loads(first.stdout), json.loads(second.stdout)
    assert [a["limit_per_second"] for a in before["accounts"]] == [20, 100, 50]
    assert [a["cards"] for a in before["accounts"]] == [1000, 1000, 1000]
    assert all(a["calls_last_minute"] > 0 for a in before["accounts"])
    assert len(before["workers"]) == 2
    for old, new in zip(before["accounts"], after["accounts"], strict=True):
        assert new["cards"] == old["cards"]
        assert new["claimed"] >= old["claimed"] > 0
    assert password_of(first) == password_of(second)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_all_of_it(tmp_path, number):
    with running(tmp_path / "var") as (demo, log):
        demo.send_signal(number)
        status = demo.wait(DEADLINE_S)

        assert processes_of(tmp_path / "var") == {}
    assert status == 0, log.read_text()
    assert json.loads(log.read_text().split("stopped\n")[1])["accounts"]


def test_nothing_outlives_a_demonstration_that_is_killed(tmp_path):
    with running(tmp_path / "var") as (demo, _log):
        assert len(processes_of(tmp_path / "var")) >= 6
        demo.kill()

        wait_until(lambda: not processes_of(tmp_path / "var"), "something is left")


def test_a_program_that_dies_is_named_and_started_again(tmp_path):
    with running(tmp_path / "var") as (_demo, log):
        workers = [p for p, line in processes_of(tmp_path / "var").items() if "rqworker" in line]
        os.kill(workers[0], signal.SIGKILL)

        wait_until(lambda: "ended (SIGKILL), starts again in" in log.read_text(), "not named")
        now = wait_until(
            lambda: (
                len(
                    w := {
                        p
                        for p, line in processes_of(tmp_path / "var").items()
                        if "rqworker" in line
                    }
                )
                == 2
                and w
            ),
            "not started again",
        )
        assert now != set(workers)


def test_a_second_one_at_the_same_time_is_refused_in_one_line(tmp_path):
    with running(tmp_path / "var") as (demo, _log):
        answer = run(tmp_path / "var", "--seconds", "1")

        assert answer.returncode == 1
        assert answer.stdout == ""
        line = answer.stderr.strip()
        assert "\n" not in line
        assert f"runs in {tmp_path / 'var'} already (process {demo.pid})" in line


@pytest.mark.parametrize("option", ["--web-port", "--gateway-port"])
def test_a_port_in_use_is_one_line(tmp_path, option):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = str(taken.getsockname()[1])
        ports = {"--web-port": "0", "--gateway-port": "0"} | {option: port}
        answer = run(
            tmp_path / "var", "--seconds", "1", *(word for pair in ports.items() for word in pair)
        )

    assert answer.returncode == 1
    assert answer.stdout == ""
    line = answer.stderr.strip()
    assert "\n" not in line
    assert port in line
    assert f"choose another one: {option} PORT" in line
    assert processes_of(tmp_path / "var") == {}
