"""HTTP answers with a status or a header that is no good answer's."""

import re
from collections.abc import Iterator
from email.utils import formatdate

from carriers.simulator import envelopes, http1, ownclock
from carriers.simulator.connection import Ending, Move
from carriers.simulator.kinds.registry import Exchange, kind
from carriers.simulator.kinds.texts import HTML_PAGE, HTML_TYPE

RETRY_AFTER_S = 2
PORT = re.compile(r":\d+$")


@kind("http429")
def _http429(_exchange: Exchange) -> bytes:
    """HTTP 429 without Retry-After."""
    return http1.render_answer(
        429, envelopes.as_json(envelopes.business_error(429, "too many requests"))
    )


@kind("http429_retry_after")
def _http429_retry_after(_exchange: Exchange) -> bytes:
    """HTTP 429 with Retry-After in seconds."""
    return http1.render_answer(429, b"", headers=(("Retry-After", str(RETRY_AFTER_S)),))


@kind("http429_retry_date")
def _http429_retry_date(_exchange: Exchange) -> bytes:
    """HTTP 429 with Retry-After as a date."""
    date = formatdate(ownclock.wall_s() + RETRY_AFTER_S, usegmt=True)
    return http1.render_answer(429, b"", headers=(("Retry-After", date),))


@kind("http500_html")
def _http500_html(_exchange: Exchange) -> bytes:
    """HTTP 500 with an HTML page."""
    return http1.render_answer(500, HTML_PAGE, content_type=HTML_TYPE)


@kind("http502_html")
def _http502_html(_exchange: Exchange) -> bytes:
    """HTTP 502 with an HTML page."""
    return http1.render_answer(502, HTML_PAGE, content_type=HTML_TYPE)


@kind("http503_retry_after")
def _http503_retry_after(_exchange: Exchange) -> bytes:
    """HTTP 503 with an HTML page and Retry-After in seconds."""
    retry = (("Retry-After", str(RETRY_AFTER_S)),)
    return http1.render_answer(503, HTML_PAGE, content_type=HTML_TYPE, headers=retry)


@kind("http401_json")
def _http401_json(_exchange: Exchange) -> bytes:
    """HTTP 401 with a JSON body."""
    return http1.render_answer(
        401, envelopes.as_json(envelopes.business_error(401, "unauthorized"))
    )


@kind("http403_html")
def _http403_html(_exchange: Exchange) -> bytes:
    """HTTP 403 with an HTML page."""
    return http1.render_answer(403, HTML_PAGE, content_type=HTML_TYPE)


@kind("redirect")
def _redirect(exchange: Exchange) -> bytes:
    """HTTP 302 to another host name, where this simulator logs whoever follows."""
    other = "127.0.0.1" if exchange.host.startswith("localhost") else "localhost"
    port = PORT.search(exchange.host)
    location = f"http://{other}{port[0] if port else ''}/redirected{exchange.path}"
    return http1.render_answer(302, b"", headers=(("Location", location),))


@kind("broken_header")
def _broken_header(_exchange: Exchange) -> Iterator[Move]:
    """A status line and headers that are no HTTP."""
    yield b"HTTP/9.9 OK fine\r\n\x00\x01 no colon here\r\n\r\n"
    yield Ending.CLOSE
