"""Ground of the simulator's tests: a running simulator, and calls to it over raw sockets."""

import socket

import pytest

from carriers.simulator import running_simulator
from tests.carriers.simulator.wire import read_wire, request_bytes

PATHS = {"card_status": "status", "carddata": "usage"}


@pytest.fixture
def simulator():
    """A simulator that serves on loopback."""
    with running_simulator() as running:
        yield running


@pytest.fixture
def open_socket(simulator):
    """Open raw connections to the simulator."""
    opened = []

    def open_one(timeout_s=10):
        sock = socket.create_connection(("127.0.0.1", simulator.port), timeout=timeout_s)
        opened.append(sock)
        return sock

    yield open_one
    for sock in opened:
        sock.close()


@pytest.fixture
def call(open_socket):
    """Make one call on a connection of its own and read the raw answer."""

    def make(
        operation, iccid="89860012345678901239", *, method=None, most=None, timeout_s=10, **kw
    ):
        switch = operation in ("suspend", "resume")
        path = f"/v1/cards/{iccid}/{PATHS.get(operation, operation)}"
        kw.setdefault("body", b'{"reason": "test"}' if switch else b"")
        sock = open_socket(timeout_s)
        sock.sendall(request_bytes(method or ("POST" if switch else "GET"), path, **kw))
        return read_wire(sock, most)

    return make
