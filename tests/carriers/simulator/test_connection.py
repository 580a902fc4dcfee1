"""One client's connection, over a real socket."""

import asyncio

import pytest

from carriers.simulator.connection import Ending, HttpConnection, Reply
from tests.carriers.simulator.wire import read_wire, request_bytes

CARD = "/v1/cards/89860012345678901239/status"
KEEP = {"connection": "keep-alive"}


def test_a_request_that_comes_byte_by_byte_is_answered(open_socket):
    sock = open_socket()

    for byte in request_bytes("GET", CARD):
        sock.sendall(bytes([byte]))

    assert read_wire(sock).status == 200


def test_pipelined_requests_are_answered_in_order_on_one_connection(open_socket):
    pages = ("status", "usage", "realname") * 50
    paths = [f"/v1/cards/89860012345678901239/{page}" for page in pages]
    sock = open_socket()

    sock.sendall(b"".join(request_bytes("GET", path, **KEEP) for path in paths))
    sock.sendall(request_bytes("GET", "/nowhere"))

    raw = read_wire(sock).raw
    words = [b'"online"', b'"used_bytes"', b'"verified"'] * 50
    answers = raw.split(b"HTTP/1.1 ")[1:-1]
    assert all(word in answer for word, answer in zip(words, answers, strict=True))
    assert raw.count(b"200 OK") == 150
    assert raw.count(b"404 Not Found") == 1


def test_pipelined_requests_wait_for_a_slow_answer(simulator, open_socket):
    simulator.api.latency_ms = 20
    sock = open_socket()

    sock.sendall(request_bytes("GET", CARD, **KEEP) * 4 + request_bytes("GET", CARD))

    assert read_wire(sock).raw.count(b"200 OK") == 5
    assert simulator.statistics()["acme"]["overlapping_calls_of_a_card"] == 0


def test_hundreds_of_connections_are_served_at_once(simulator, open_socket):
    simulator.api.latency_ms = 100
    sockets = [open_socket() for _ in range(450)]

    for sock in sockets:
        sock.sendall(request_bytes("GET", CARD))

    assert {read_wire(sock).status for sock in sockets} == {200}
    assert simulator.statistics()["acme"]["calls"] == 450


def test_head_gets_a_header_and_no_body(open_socket):
    sock = open_socket()

    sock.sendall(request_bytes("HEAD", CARD))

    answer = read_wire(sock)
    assert (answer.status, answer.body, answer.headers["allow"]) == (405, b"", "GET")


def test_nonsense_is_refused_and_the_connection_closed(open_socket):
    sock = open_socket()

    sock.sendall(b"\x16\x03\x01 TLS hello\r\n\r\n")

    assert read_wire(sock).status == 400


async def hang_up_on(moves):
    """Serve one call with these moves, hang up on it, and wait until it is known to be over."""
    over = asyncio.Event()
    reply = Reply(moves, on_end=over.set)
    server = await asyncio.get_running_loop().create_server(
        lambda: HttpConnection(lambda _request: reply, set()), "127.0.0.1", 0
    )
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        writer.write(request_bytes("GET", CARD))
        await writer.drain()
        writer.close()
        await asyncio.wait_for(over.wait(), 5)
        await writer.wait_closed()


@pytest.mark.parametrize(
    "moves",
    [
        pytest.param([Ending.HANG], id="hangs"),
        pytest.param([b"HTTP/1.1 200 OK", 3600.0], id="drips"),
        pytest.param([b"x" * 65_536] * 1_000, id="sends more than anybody reads"),
    ],
)
def test_a_call_is_over_when_its_client_has_gone_while_the_answer(moves):
    asyncio.run(hang_up_on(iter(moves)))
