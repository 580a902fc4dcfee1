"""The virtual environment ``.venv``: made once, filled with what a requirements file names, left alone while that is unchanged."""

import fcntl
import importlib.util
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from errno import ENOSPC
from hashlib import sha256
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"

DISK_FULL = "the disk is full; make room and start again."
NO_NETWORK = (
    "the requirements cannot be downloaded: no network, or the package index does not answer. "
    "Connect, or name a mirror with PIP_INDEX_URL, and start again."
)
_SIGNS_OF_NO_NETWORK = ("Retrying (", "Connection", "Max retries", "ReadTimeout", "ProxyError")


class NotReady(Exception):
    """Why there is no usable environment, in one line."""


def ready(requirements: Path) -> Path:
    """Path of the environment's Python, everything that the file names being installed.

    Raises ``NotReady``. Several processes may ask at a time: one works, the others wait.
    """
    try:
        with _alone():
            if not _has_pip():
                _create()
            if _stamp(requirements) != _digest(requirements):
                _install(requirements)
    except OSError as error:
        raise NotReady(DISK_FULL if error.errno == ENOSPC else _reason(error)) from None
    return PYTHON


@contextmanager
def _alone() -> Iterator[None]:
    # The lock is on a file of the checkout, since the environment may not exist yet.
    with (ROOT / "requirements.txt").open() as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _has_pip() -> bool:
    """False also for an environment that was left half made, or whose Python is gone from the host."""
    try:
        asked = subprocess.run(
            [PYTHON, "-I", "-c", "import pip"], stderr=subprocess.DEVNULL, check=False
        )
    except OSError:
        return False
    return asked.returncode == 0


def _create() -> None:
    if not (importlib.util.find_spec("venv") and importlib.util.find_spec("ensurepip")):
        raise NotReady(
            f"{sys.executable} has no venv or ensurepip module; on Debian and Ubuntu: apt-get install python3-venv"
        )
    _say(f"making the virtual environment {VENV.name} ...")
    made = subprocess.run(
        [sys.executable, "-I", "-m", "venv", "--clear", VENV],
        capture_output=True,
        text=True,
        check=False,
    )
    if made.returncode:
        shutil.rmtree(VENV, ignore_errors=True)
        said = made.stdout + made.stderr
        raise NotReady(
            DISK_FULL if os.strerror(ENOSPC) in said else f"no virtual environment: {_last(said)}"
        )


def _install(requirements: Path) -> None:
    _say(f"installing what {requirements.name} names ...")
    command: list[str | Path] = [
        PYTHON,
        "-I",
        "-m",
        "pip",
        "install",
        "--disable-pip-version-check",
        "--no-input",
    ]
    command += ["--retries", "2", "--requirement", requirements]
    if not sys.stderr.isatty():
        command.append("--quiet")
    # Standard output is the command's own; pip's progress goes where ours goes.
    pip = subprocess.run(command, stdout=sys.stderr, stderr=subprocess.PIPE, text=True, check=False)
    if pip.returncode:
        raise NotReady(_why_not_installed(pip.stderr))
    for part in (ROOT / "requirements.txt", requirements):
        _stamp_file(part).write_text(_digest(part))


def _why_not_installed(said: str) -> str:
    if os.strerror(ENOSPC) in said:
        return DISK_FULL
    if any(sign in said for sign in _SIGNS_OF_NO_NETWORK):
        return NO_NETWORK
    return f"the requirements cannot be installed: {_last(said)}"


def _stamp_file(requirements: Path) -> Path:
    return VENV / f"installed-{requirements.stem}"


def _stamp(requirements: Path) -> str:
    """What was installed last; empty where nothing was."""
    try:
        return _stamp_file(requirements).read_text()
    except FileNotFoundError:
        return ""


def _digest(requirements: Path) -> str:
    # The development requirements include the others.
    parts = dict.fromkeys((ROOT / "requirements.txt", requirements))
    return sha256(b"\0".join(part.read_bytes() for part in parts)).hexdigest()


def _reason(error: OSError) -> str:
    return f"{error.filename or VENV}: {error.strerror}"


def _last(said: str) -> str:
    """The last line that a program wrote about an error."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR")]
    return (errors or lines or ["no reason given"])[-1]


def _say(text: str) -> None:
    print(f"run: {text}", file=sys.stderr, flush=True)  # noqa: T201
