"""Ground of the tests: a private Redis server, empty for each test."""

import os
import shutil
import socket
import subprocess
import tempfile
import time


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


_folder = tempfile.mkdtemp(prefix="cardpolling-test-")
_port = _free_port()
_server = subprocess.Popen(
    ["redis-server", "--port", str(_port), "--dir", _folder, "--save", ""],
    stdout=subprocess.DEVNULL,
)
os.environ["REDIS_URL"] = os.environ["POLLING_REDIS_URL"] = f"redis://127.0.0.1:{_port}/0"

import pytest  # noqa: E402
import redis  # noqa: E402


def pytest_unconfigure() -> None:
    """Stop the private server."""
    _server.kill()
    _server.wait()
    shutil.rmtree(_folder, ignore_errors=True)


@pytest.fixture
def client():
    """The polling state, empty, script cache included."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    connection = redis.Redis(port=_port, decode_responses=True, retry=Retry(NoBackoff(), 0))
    for _ in range(100):
        try:
            connection.ping()
            break
        except redis.ConnectionError:
            time.sleep(0.05)
    connection.flushall()
    connection.script_flush()
    yield connection
    connection.close()
