"""``./run`` on hosts where something is missing: one clear line each."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from launch import environment

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def checkout(tmp_path):
    """A copy of what prepares the environment, without an environment."""
    shutil.copy(ROOT / "run", tmp_path)
    shutil.copytree(ROOT / "launch", tmp_path / "launch")
    (tmp_path / "requirements.txt").write_text("Django==5.2.19\n")
    return tmp_path


def run(folder, *arguments, **variables):
    return subprocess.run(
        ["./run", *arguments],
        cwd=folder,
        env={"PATH": os.environ["PATH"], "HOME": str(folder), "PYTHON": sys.executable} | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def script(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def test_without_a_command_the_usage_is_shown():
    answer = run(ROOT)

    assert answer.returncode == 0
    assert "./run demo" in answer.stdout
    assert "./run test" in answer.stdout


def test_an_unknown_command_is_refused():
    answer = run(ROOT, "dance")

    assert (answer.returncode, answer.stdout) == (2, "")
    assert answer.stderr.startswith("usage:")


def test_a_python_that_is_too_old_is_named(checkout):
    old = script(checkout / "old-python", '[ "$1" = --version ] && echo "Python 3.9.2"; exit 1')

    answer = run(checkout, "demo", PYTHON=old)

    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1
    assert "needs Python 3.11 or later; found: Python 3.9.2" in answer.stderr


def test_without_any_python_that_is_said(checkout):
    answer = run(checkout, "demo", PYTHON="no-such-python")

    assert answer.returncode == 1
    assert answer.stderr.count("\n") == 1
    assert "needs Python 3.11 or later" in answer.stderr


@pytest.mark.timeout(150)
def test_without_a_network_that_is_the_last_line(checkout):
    answer = run(
        checkout, "demo", PIP_INDEX_URL="http://127.0.0.1:9/simple", PIP_CONFIG_FILE="/dev/null"
    )

    assert answer.returncode == 1
    assert answer.stdout == ""
    assert answer.stderr.splitlines()[-1] == f"run: {environment.NO_NETWORK}"
    assert "Traceback" not in answer.stderr


def test_a_host_without_ensurepip_is_told_which_package_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(environment, "PYTHON", tmp_path / ".venv/bin/python")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)

    with pytest.raises(environment.NotReady, match="apt-get install python3-venv"):
        environment.ready(ROOT / "requirements.txt")


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ("ERROR: Could not install packages: [Errno 28] No space left on device", "disk is full"),
        ("WARNING: Retrying (Retry(total=1)) after ...\nERROR: No matching", "no network"),
        ("ERROR: No matching distribution found for x==9\nhint", "ERROR: No matching distribution"),
        ("", "no reason given"),
    ],
)
def test_what_pip_says_becomes_one_line(said, reason):
    line = environment._why_not_installed(said)

    assert reason in line
    assert "\n" not in line


def test_what_is_installed_is_left_alone(tmp_path, monkeypatch):
    requirements = tmp_path / "requirements.txt"
    requirements.write_text("")
    installed = []
    for name, value in (("ROOT", tmp_path), ("VENV", tmp_path)):
        monkeypatch.setattr(environment, name, value)
    monkeypatch.setattr(environment, "PYTHON", Path(sys.executable))
    real_run = subprocess.run

    def noting_run(command, **options):
        installed.extend(command[2:4] if "install" in command else ())
        return real_run(command, **options)

    monkeypatch.setattr(subprocess, "run", noting_run)
    monkeypatch.setenv("PIP_BREAK_SYSTEM_PACKAGES", "1")

    environment.ready(requirements)
    environment.ready(requirements)
    assert installed == ["-m", "pip"]

    requirements.write_text("# another\n")
    environment.ready(requirements)
    assert installed == ["-m", "pip"] * 2
