"""One client's connection: requests in, answers out in order, whole or as badly as a fault wants them."""

import asyncio
import enum
import functools
import socket
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import cast

from carriers.simulator import http1
from carriers.simulator.http1 import BadRequestError, Request

RESET_ON_CLOSE = struct.pack("ii", 1, 0)
MAX_WAITING_BYTES = 256 * 1024


class Ending(enum.Enum):
    """How an answer that does not end well ends."""

    RESET = enum.auto()
    CLOSE = enum.auto()
    HANG = enum.auto()


# What an answer does on the wire: send these bytes, pause for these seconds, or end like this.
Move = bytes | float | Ending


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer on its way: when it starts, what it does on the wire, whom to tell when it is over."""

    moves: bytes | Iterator[Move]
    delay_s: float = 0.0
    on_end: Callable[[], None] | None = None


Responder = Callable[[Request], Reply]


class HttpConnection(asyncio.Protocol):
    """Serves one connection with keep-alive and pipelining, one request at a time.

    Flow: ``data_received`` collects, ``_serve_waiting`` takes requests off the buffer, ``_deliver`` starts the answer and
    ``_play`` makes its moves; while an answer is under way the connection is busy and later requests wait in the buffer.
    """

    def __init__(self, respond: Responder, connections: set["HttpConnection"]) -> None:
        self._respond = respond
        self._connections = connections
        self._buffer = bytearray()
        self._reply: Reply | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._is_full = False
        self._go_on: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", transport)
        self._connections.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._connections.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        self._go_on = None
        self._buffer.clear()
        self._end_reply()

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._reply is None:
            self._serve_waiting()
        elif len(self._buffer) > MAX_WAITING_BYTES:
            self._transport.pause_reading()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        go_on, self._go_on = self._go_on, None
        if go_on is not None:
            go_on()

    def abort(self) -> None:
        """Cut the connection at once."""
        self._transport.abort()

    def _serve_waiting(self) -> None:
        while self._reply is None and self._buffer and not self._transport.is_closing():
            try:
                request = http1.parse_request(self._buffer)
            except BadRequestError as error:
                self._refuse(error)
                return
            if request is None:
                return
            self._serve(request)

    def _serve(self, request: Request) -> None:
        self._reply = reply = self._respond(request)
        if reply.delay_s > 0:
            self._timer = self._loop.call_later(reply.delay_s, self._deliver, request, reply.moves)
        else:
            self._deliver(request, reply.moves)

    def _refuse(self, error: BadRequestError) -> None:
        body = b'{"code": 2400, "message": "request not understood", "data": null}'
        answer = http1.render_answer(error.status, body, headers=(("Connection", "close"),))
        self._transport.write(answer)
        self._transport.close()

    def _deliver(self, request: Request, moves: bytes | Iterator[Move]) -> None:
        if isinstance(moves, bytes):
            answer = http1.without_body(moves) if request.method == "HEAD" else moves
            self._transport.write(answer)
            self._finish(request)
        else:
            self._play(request, moves)

    def _play(self, request: Request, moves: Iterator[Move]) -> None:
        """Make moves until one of them waits: for time to pass, for the client to read, or for ever."""
        for move in moves:
            if isinstance(move, bytes):
                self._transport.write(move)
                if self._is_full:
                    self._go_on = functools.partial(self._play, request, moves)
                    return
            elif isinstance(move, Ending):
                self._end_badly(move)
                return
            else:
                self._timer = self._loop.call_later(move, self._play, request, moves)
                return
        self._finish(request)

    def _end_badly(self, ending: Ending) -> None:
        if ending is Ending.RESET:
            sock = self._transport.get_extra_info("socket")
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_ON_CLOSE)
            self._transport.abort()
        elif ending is Ending.CLOSE:
            self._transport.close()

    def _finish(self, request: Request) -> None:
        self._end_reply()
        if not request.keeps_alive:
            self._transport.close()
        elif self._buffer:
            self._transport.resume_reading()
            # Not called straight from here: a long pipeline must not become a deep stack.
            self._loop.call_soon(self._serve_waiting)

    def _end_reply(self) -> None:
        reply, self._reply = self._reply, None
        if reply is not None and reply.on_end is not None:
            reply.on_end()
