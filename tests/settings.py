"""Settings of the tests: those of the product, on a private Redis server and a database of their own.

Each test process has a server and a folder of its own, gone when the process ends. ``DATABASE_URL`` may name a PostgreSQL
server; SQLite is tested in a file, as it runs in production, and not in memory.
"""

import atexit
import os
import shutil
import socket
import subprocess
import tempfile

FOLDER = tempfile.mkdtemp(prefix="cardpolling-test-")


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


def _start_redis(port: int) -> "subprocess.Popen[bytes]":
    from cardpolling import embedded

    return subprocess.Popen(
        [
            *(embedded.server_binary(), "--port", str(port), "--bind", "127.0.0.1"),
            *("--dir", FOLDER, "--save", "", "--enable-debug-command", "yes"),
        ],
        stdout=subprocess.DEVNULL,
    )


def _stop() -> None:
    redis_process.kill()
    redis_process.wait()
    shutil.rmtree(FOLDER, ignore_errors=True)


redis_port = _free_port()
redis_process = _start_redis(redis_port)
atexit.register(_stop)
os.environ["VAR_DIR"] = FOLDER
os.environ["REDIS_URL"] = os.environ["POLLING_REDIS_URL"] = f"redis://127.0.0.1:{redis_port}/0"
os.environ["SECRET_KEY"] = "tests-only"
os.environ.pop("FIELD_ENCRYPTION_KEYS", None)

from cardpolling.settings import *  # noqa: E402, F403
from cardpolling.settings import DATABASES  # noqa: E402

PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
if DATABASES["default"]["ENGINE"] == "django.db.backends.sqlite3":
    DATABASES["default"]["TEST"] = {"NAME": f"{FOLDER}/test.sqlite3"}
