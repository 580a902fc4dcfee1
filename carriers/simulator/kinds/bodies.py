"""HTTP 200 with a body that is not the protocol, or is wrapped in an odd way."""

import gzip
from collections.abc import Iterator, Mapping
from typing import Any

from carriers.simulator import envelopes, http1
from carriers.simulator.connection import Move
from carriers.simulator.kinds.registry import Exchange, kind
from carriers.simulator.kinds.texts import BUSINESS_CODE, BUSINESS_TEXT, HTML_PAGE, HTML_TYPE

HUGE_BODY_BYTES = 8 * 1024 * 1024
CHUNK = b" " * 65_536


@kind("html_200")
def _html_200(_exchange: Exchange) -> bytes:
    """HTTP 200 with an HTML page."""
    return http1.render_answer(200, HTML_PAGE, content_type=HTML_TYPE)


@kind("not_json_content")
def _not_json_content(_exchange: Exchange) -> bytes:
    """HTTP 200 declared as JSON whose body is plain words."""
    return http1.render_answer(200, b"OK, but the service is busy")


@kind("json_as_text")
def _json_as_text(exchange: Exchange) -> bytes:
    """A good answer declared as text/plain."""
    body = envelopes.as_json(exchange.make_envelope())
    return http1.render_answer(200, body, content_type="text/plain")


@kind("empty_body")
def _empty_body(_exchange: Exchange) -> bytes:
    """HTTP 200 with an empty body."""
    return http1.render_answer(200, b"")


@kind("truncated_json")
def _truncated_json(exchange: Exchange) -> bytes:
    """HTTP 200 with the first half of the JSON, its length declared truly."""
    body = envelopes.as_json(exchange.make_envelope())
    return http1.render_answer(200, body[: len(body) // 2])


@kind("json_list")
def _json_list(exchange: Exchange) -> bytes:
    """HTTP 200 with the good answer inside a list."""
    return http1.render_answer(200, envelopes.as_json([exchange.make_envelope()]))


@kind("deep_json")
def _deep_json(_exchange: Exchange) -> bytes:
    """HTTP 200 with JSON nested 100,000 deep."""
    return http1.render_answer(200, b"[" * 100_000 + b"]" * 100_000)


@kind("code_string")
def _code_string(exchange: Exchange) -> bytes:
    """A good answer whose code is the string "0"."""
    envelope = exchange.make_envelope()
    return envelopes.render(envelope | {"code": str(envelope["code"])})


@kind("missing_data")
def _missing_data(_exchange: Exchange) -> bytes:
    """Code 0 without data."""
    return envelopes.render({"code": 0, "message": "success"})


@kind("null_data")
def _null_data(_exchange: Exchange) -> bytes:
    """Code 0 with data null."""
    return envelopes.render({"code": 0, "message": "success", "data": None})


@kind("gbk")
def _gbk(_exchange: Exchange) -> bytes:
    """A business error in GBK, with the charset in the header."""
    return _in_gbk(
        envelopes.business_error(BUSINESS_CODE, BUSINESS_TEXT), "application/json; charset=GBK"
    )


@kind("gbk_no_charset")
def _gbk_no_charset(_exchange: Exchange) -> bytes:
    """A business error in GBK, without a charset in the header."""
    return _in_gbk(envelopes.business_error(BUSINESS_CODE, BUSINESS_TEXT), "application/json")


@kind("gbk_success")
def _gbk_success(exchange: Exchange) -> bytes:
    """A good answer with a Chinese message in GBK, without a charset."""
    return _in_gbk(exchange.make_envelope() | {"message": "查询成功"}, "application/json")


def _in_gbk(envelope: Mapping[str, Any], content_type: str) -> bytes:
    body = envelopes.as_json(envelope).decode().encode("gbk")
    return http1.render_answer(200, body, content_type=content_type)


@kind("huge_body")
def _huge_body(exchange: Exchange) -> Iterator[Move]:
    """A good answer behind 8 MiB of spaces."""
    tail = envelopes.as_json(exchange.make_envelope())
    yield http1.render_answer(200, b"", content_length=HUGE_BODY_BYTES + len(tail))
    for _ in range(HUGE_BODY_BYTES // len(CHUNK)):
        yield CHUNK
    yield tail


@kind("gzip_bomb")
def _gzip_bomb(exchange: Exchange) -> bytes:
    """The same 8 MiB, compressed to a few kilobytes."""
    tail = envelopes.as_json(exchange.make_envelope())
    body = gzip.compress(b" " * HUGE_BODY_BYTES + tail, compresslevel=1, mtime=0)
    return http1.render_answer(200, body, headers=(("Content-Encoding", "gzip"),))
