"""The simulator in a thread of its own."""

import socket
import threading

import pytest

from carriers.simulator import FaultSpec, running_simulator
from carriers.simulator.faults import FaultSpecError
from tests.carriers.simulator.wire import read_wire, request_bytes

CARD = "/v1/cards/89860012345678901239/status"


def get(port, path=CARD):
    """One answer of the simulator on this port."""
    with socket.create_connection(("127.0.0.1", port), timeout=10) as sock:
        sock.sendall(request_bytes("GET", path))
        return read_wire(sock)


def test_two_simulators_answer_alike():
    with running_simulator() as first, running_simulator() as second:
        assert get(first.port).raw == get(second.port).raw


def test_nothing_listens_and_no_thread_is_left_afterwards():
    with running_simulator() as simulator, socket.create_connection(("127.0.0.1", simulator.port)):
        pass

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", simulator.port), timeout=5)
    assert "gateway-simulator" not in {thread.name for thread in threading.enumerate()}


def test_an_open_connection_is_cut_at_the_end():
    with running_simulator() as simulator:
        sock = socket.create_connection(("127.0.0.1", simulator.port), timeout=10)
        sock.sendall(request_bytes("GET", CARD, connection="keep-alive"))
        assert sock.recv(65_536).startswith(b"HTTP/1.1 200")

    with sock:
        assert read_wire(sock).raw == b""


def test_faults_are_given_as_text_or_value_and_replaced_while_it_runs():
    with running_simulator(faults=[FaultSpec("code_1002", 1)]) as simulator:
        assert get(simulator.port).json["code"] == 1002
        simulator.set_faults("code_1003:0.5", "code_1001:0.5")
        assert get(simulator.port).json["code"] in (1001, 1003)
        simulator.set_faults()
        assert get(simulator.port).json["code"] == 0


def test_an_unknown_fault_starts_nothing():
    with pytest.raises(FaultSpecError, match="nonsense"), running_simulator(faults=["nonsense"]):
        pass
