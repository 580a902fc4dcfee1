"""``manage.py simulate_gateway`` as an operator runs it."""

import re
import signal
import socket
import subprocess
import sys

import pytest
from django.core.management import CommandError, call_command

from carriers.simulator import KINDS
from tests.carriers.simulator.wire import read_wire, request_bytes

COMMAND = [sys.executable, "manage.py", "simulate_gateway"]


@pytest.mark.parametrize("stop", [signal.SIGTERM, signal.SIGINT])
def test_the_command_answers_until_it_is_stopped(stop):
    with subprocess.Popen([*COMMAND, "--port", "0"], stdout=subprocess.PIPE, text=True) as process:
        port = int(re.search(r":(\d+)", process.stdout.readline())[1])
        with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
            sock.sendall(request_bytes("GET", "/v1/cards/89860012345678901239/realname"))
            answer = read_wire(sock)
        process.send_signal(stop)

        assert answer.json["code"] == 0
        assert process.wait(10) == 0


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (["--fault", "nonsense:1"], "unknown kind"),
        (["--fault", "hang:2"], "between 0 and 1"),
        (["--fault", "hang"], "KIND:SHARE"),
        (["--fault", "hang:0.7", "--fault", "gbk:0.7"], "add up to"),
        (["--limit", "acme"], "CARRIER:N"),
        (["--limit", "acme:0"], "CARRIER:N"),
        (["--limit", ":5"], "CARRIER:N"),
        (["--latency-ms", "-1"], "--latency-ms"),
        (["--jitter-ms", "nan"], "--jitter-ms"),
        (["--port", "70000"], "--port"),
        (["--host", "no.such.host.invalid"], "Cannot listen"),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(arguments, reason):
    with pytest.raises(CommandError, match=re.escape(reason)):
        call_command("simulate_gateway", "--port", "0", *arguments)


def test_a_port_in_use_is_named():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]

        with pytest.raises(CommandError, match=f"port {port}"):
            call_command("simulate_gateway", "--port", str(port))


def test_the_help_explains_every_fault(capsys):
    with pytest.raises(SystemExit):
        call_command("simulate_gateway", "--help")

    text = capsys.readouterr().out
    assert all(kind.name in text and kind.meaning in text for kind in KINDS.values())
