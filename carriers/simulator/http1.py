"""HTTP/1.1 as bytes: requests parsed from a buffer, answers rendered; no sockets."""

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus

MAX_HEAD_BYTES = 16 * 1024
MAX_BODY_BYTES = 64 * 1024
HEAD_END = b"\r\n\r\n"
JSON_TYPE = "application/json; charset=utf-8"

_STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n" for s in HTTPStatus}
_REQUEST_LINE_PARTS = 3


class BadRequestError(Exception):
    """The bytes are no request that this server reads; ``status`` is what to answer before closing."""

    def __init__(self, status: HTTPStatus) -> None:
        super().__init__(status.phrase)
        self.status = status


@dataclass(frozen=True, slots=True)
class Request:
    """One request, whole."""

    method: str
    path: str
    headers: dict[bytes, bytes]
    body: bytes
    keeps_alive: bool

    def header(self, name: bytes) -> str:
        """A header's value, empty where absent; ``name`` in lower case."""
        return self.headers.get(name, b"").decode("latin-1")


def parse_request(buffer: bytearray) -> Request | None:
    """Take the first request off the buffer; None, and nothing taken, while it is incomplete."""
    head_end = buffer.find(HEAD_END)
    if head_end < 0:
        if len(buffer) > MAX_HEAD_BYTES:
            raise BadRequestError(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE)
        return None
    lines = bytes(buffer[:head_end]).split(b"\r\n")
    method, target, version = _parse_request_line(lines[0])
    headers = _parse_headers(lines[1:])
    body_start = head_end + len(HEAD_END)
    body_end = body_start + _content_length(headers)
    if len(buffer) < body_end:
        return None
    body = bytes(buffer[body_start:body_end])
    del buffer[:body_end]
    return Request(
        method=method,
        path=target.partition("?")[0],
        headers=headers,
        body=body,
        keeps_alive=_keeps_alive(version, headers),
    )


def render_answer(
    status: int,
    body: bytes,
    *,
    content_type: str = JSON_TYPE,
    headers: Iterable[tuple[str, str]] = (),
    content_length: int | None = None,
) -> bytes:
    """An answer as it goes onto the wire; ``content_length`` only where it shall be a lie."""
    length = len(body) if content_length is None else content_length
    extra = "".join(f"{name}: {value}\r\n" for name, value in headers)
    head = (
        f"{_STATUS_LINES[status]}Content-Type: {content_type}\r\n"
        f"Content-Length: {length}\r\n{extra}\r\n"
    )
    return head.encode("latin-1") + body


def without_body(answer: bytes) -> bytes:
    """The head of a rendered answer, as HEAD asks for it."""
    return answer[: answer.index(HEAD_END) + len(HEAD_END)]


def _parse_request_line(line: bytes) -> tuple[str, str, bytes]:
    parts = line.split(b" ")
    if len(parts) != _REQUEST_LINE_PARTS or not parts[2].startswith(b"HTTP/1."):
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    return parts[0].decode("latin-1"), parts[1].decode("latin-1"), parts[2]


def _parse_headers(lines: list[bytes]) -> dict[bytes, bytes]:
    headers = {}
    for line in lines:
        name, colon, value = line.partition(b":")
        if not colon:
            raise BadRequestError(HTTPStatus.BAD_REQUEST)
        headers[name.lower()] = value.strip()
    return headers


def _content_length(headers: dict[bytes, bytes]) -> int:
    if b"transfer-encoding" in headers:
        raise BadRequestError(HTTPStatus.LENGTH_REQUIRED)
    text = headers.get(b"content-length", b"0")
    if not text.isdigit():
        raise BadRequestError(HTTPStatus.BAD_REQUEST)
    length = int(text[:20])
    if length > MAX_BODY_BYTES:
        raise BadRequestError(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
    return length


def _keeps_alive(version: bytes, headers: dict[bytes, bytes]) -> bool:
    wish = headers.get(b"connection", b"").lower()
    return wish == b"keep-alive" if version == b"HTTP/1.0" else wish != b"close"
