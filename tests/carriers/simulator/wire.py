"""A caller that reads raw bytes."""

import json
from dataclasses import dataclass

SILENCE_S = 0.3
GOOD_TOKEN = "secret"


@dataclass(frozen=True)
class WireAnswer:
    """What came over the wire until its end: ``closed``, ``reset``, or ``silence``."""

    raw: bytes
    end: str

    @property
    def status(self):
        return int(self.raw.split(b" ", 2)[1])

    @property
    def headers(self):
        lines = self.raw.partition(b"\r\n\r\n")[0].decode().split("\r\n")[1:]
        return {name.lower(): value for name, _, value in (x.partition(": ") for x in lines)}

    @property
    def body(self):
        return self.raw.partition(b"\r\n\r\n")[2]

    @property
    def is_whole(self):
        return self.end == "closed" and len(self.body) == int(self.headers["content-length"])

    @property
    def json(self):
        return json.loads(self.body)

    @property
    def data(self):
        return self.json["data"]


def read_wire(sock, most=None):
    """Read until the end, silence, or ``most`` bytes."""
    raw = b""
    try:
        while most is None or len(raw) < most:
            piece = sock.recv(65_536)
            if not piece:
                return WireAnswer(raw, "closed")
            raw += piece
    except ConnectionResetError:
        return WireAnswer(raw, "reset")
    except TimeoutError:
        return WireAnswer(raw, "silence")
    return WireAnswer(raw, "enough")


def request_bytes(method, path, *, body=b"", connection="close", carrier="acme", token=GOOD_TOKEN):
    """A request of the standard protocol."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:80\r\nConnection: {connection}\r\n"
        f"X-Carrier-Account: {carrier}\r\nX-Request-Id: r1\r\nContent-Length: {len(body)}\r\n"
    )
    return (head + (f"Authorization: Bearer {token}\r\n" if token else "") + "\r\n").encode() + body
