"""Connections that break, drip or hang."""

from collections.abc import Iterator

from carriers.simulator import http1
from carriers.simulator.connection import Ending, Move
from carriers.simulator.kinds.registry import Exchange, kind

DRIP_PAUSE_S = 0.5
SETTLE_S = 0.02


@kind("reset_before_header")
def _reset_before_header(_exchange: Exchange) -> Iterator[Move]:
    """The connection is reset instead of an answer."""
    yield Ending.RESET


@kind("reset_in_header")
def _reset_in_header(exchange: Exchange) -> Iterator[Move]:
    """The connection is reset within the header."""
    yield exchange.answer()[:40]
    yield SETTLE_S
    yield Ending.RESET


@kind("reset_in_body")
def _reset_in_body(exchange: Exchange) -> Iterator[Move]:
    """The connection is reset within the body, after the header."""
    yield exchange.answer()[:-10]
    yield SETTLE_S
    yield Ending.RESET


@kind("close_before_header")
def _close_before_header(_exchange: Exchange) -> Iterator[Move]:
    """The connection is closed in good order instead of an answer."""
    yield Ending.CLOSE


@kind("close_in_body")
def _close_in_body(exchange: Exchange) -> Iterator[Move]:
    """The connection is closed in good order within the body."""
    yield exchange.answer()[:-10]
    yield Ending.CLOSE


@kind("slow_drip")
def _slow_drip(_exchange: Exchange) -> Iterator[Move]:
    """A header, then a byte of the body every half second for ever."""
    yield http1.render_answer(200, b"", content_length=1_000_000)
    while True:
        yield b" "
        yield DRIP_PAUSE_S


@kind("slow_drip_header")
def _slow_drip_header(_exchange: Exchange) -> Iterator[Move]:
    """A header that goes on a byte every half second for ever."""
    yield b"HTTP/1.1 200 OK\r\nX-Padding: "
    while True:
        yield b"x"
        yield DRIP_PAUSE_S


@kind("hang")
def _hang(_exchange: Exchange) -> Iterator[Move]:
    """No answer at all, the connection stays open."""
    yield Ending.HANG
