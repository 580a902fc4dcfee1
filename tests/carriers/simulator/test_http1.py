"""HTTP/1.1 as bytes."""

import pytest

from carriers.simulator import http1
from carriers.simulator.http1 import BadRequestError

POST = b"POST /a?x=1 HTTP/1.1\r\nHost: h\r\ncontent-length: 4\r\n\r\nbody"


def test_a_request_is_taken_off_the_buffer_and_what_follows_stays():
    buffer = bytearray(POST + b"GET ")

    request = http1.parse_request(buffer)

    assert (request.method, request.path, request.body) == ("POST", "/a", b"body")
    assert (request.header(b"host"), request.header(b"absent")) == ("h", "")
    assert buffer == b"GET "


@pytest.mark.parametrize("length", range(len(POST)))
def test_a_partial_request_is_left_in_the_buffer(length):
    buffer = bytearray(POST[:length])

    assert http1.parse_request(buffer) is None
    assert buffer == POST[:length]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        pytest.param(b"NONSENSE\r\n\r\n", 400, id="no request line"),
        pytest.param(b"GET / HTTP/2.0\r\n\r\n", 400, id="another protocol"),
        pytest.param(b"GET / HTTP/1.1\r\nno colon\r\n\r\n", 400, id="a header without a colon"),
        pytest.param(b"GET / HTTP/1.1\r\nContent-Length: -1\r\n\r\n", 400, id="a negative length"),
        pytest.param(b"GET / HTTP/1.1\r\nContent-Length: 70000\r\n\r\n", 413, id="a huge body"),
        pytest.param(b"GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", 411, id="chunks"),
        pytest.param(b"GET /" + b"x" * 20_000, 431, id="a header without an end"),
    ],
)
def test_bytes_that_are_no_request_are_refused(raw, status):
    with pytest.raises(BadRequestError) as caught:
        http1.parse_request(bytearray(raw))

    assert caught.value.status == status


@pytest.mark.parametrize(
    ("version", "connection", "keeps"),
    [("1.1", "", True), ("1.1", "Close", False), ("1.0", "", False), ("1.0", "Keep-Alive", True)],
)
def test_the_connection_is_kept_as_the_version_and_the_client_say(version, connection, keeps):
    raw = f"GET / HTTP/{version}\r\nConnection: {connection}\r\n\r\n".encode()

    assert http1.parse_request(bytearray(raw)).keeps_alive is keeps
