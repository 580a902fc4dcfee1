"""Every way in which a real gateway misbehaves, by name, and which calls meet it.

A kind is a function from an exchange to what happens on the wire. To add one, write the function under ``@kind``: the command's
``--fault`` and its help know it from then on, and the test that walks all kinds asks for its row.
"""

import gzip
import json
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from carriers.simulator import http1, ownclock
from carriers.simulator.connection import Ending, Move

RETRY_AFTER_S = 2
RETRY_AFTER_MS = 1_500
HUGE_BODY_BYTES = 8 * 1024 * 1024
CHUNK = b" " * 65_536
DRIP_PAUSE_S = 0.5
SETTLE_S = 0.02
UNKNOWN_STATUS = "待激活-PRE"
BUSINESS_CODE = 2_101
BUSINESS_TEXT = "卡号已停机保号，不能办理此业务"
HTML_PAGE = (
    b"<!DOCTYPE html>\n<html><head><title>Gateway error</title></head>"
    b"<body><h1>The service is busy</h1><hr>nginx</body></html>\n"
)
HTML_TYPE = "text/html; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call as a fault sees it: ``make_envelope`` gives the good answer, and carries out a suspend or resume."""

    operation: str
    iccid: str
    path: str
    host: str
    make_envelope: Callable[[], dict[str, Any]]

    def answer(self) -> bytes:
        """The good answer as bytes."""
        return render_envelope(self.make_envelope())


Play = Callable[[Exchange], bytes | Iterator[Move]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One named misbehaviour; ``operations`` empty = it can befall every operation."""

    name: str
    meaning: str
    play: Play
    operations: frozenset[str]


KINDS: dict[str, Kind] = {}


def kind(name: str, *, operations: Sequence[str] = ()) -> Callable[[Play], Play]:
    """Register a misbehaviour under a name; its docstring is what ``--help`` says."""

    def register(play: Play) -> Play:
        meaning = (play.__doc__ or "").rstrip(".")
        KINDS[name] = Kind(name, meaning, play, frozenset(operations))
        return play

    return register


class FaultSpecError(ValueError):
    """A fault that cannot be set, with the reason in words for the operator."""


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A share of the calls (of one account, or of all where ``carrier`` is empty) that meets one misbehaviour."""

    kind: str
    share: float
    carrier: str = ""

    @classmethod
    def parse(cls, text: str) -> "FaultSpec":
        """Read ``KIND:SHARE`` or ``KIND:SHARE:CARRIER``."""
        name, colon, rest = text.partition(":")
        share_text, _, carrier = rest.partition(":")
        if not colon:
            raise FaultSpecError(f"{text!r} is not of the form KIND:SHARE or KIND:SHARE:CARRIER")
        try:
            share = float(share_text)
        except ValueError:
            raise FaultSpecError(f"share {share_text!r} of {name} is no number") from None
        return cls(name, share, carrier)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise FaultSpecError(
                f"unknown kind {self.kind!r}; known are {', '.join(sorted(KINDS))}"
            )
        if not 0 <= self.share <= 1:
            raise FaultSpecError(f"share {self.share:g} of {self.kind} is not between 0 and 1")


@dataclass(slots=True)
class FaultPlan:
    """Decides which call meets which fault: the n-th call of an account meets the same with the same seed."""

    specs: Sequence[FaultSpec]
    seed: int = 0
    _dice: dict[str, random.Random] = field(default_factory=dict)

    def __post_init__(self) -> None:
        carriers = {spec.carrier for spec in self.specs}
        for carrier in carriers:
            total = sum(spec.share for spec in self.specs if spec.carrier in ("", carrier))
            if total > 1 + 1e-9:
                whose = carrier or "all accounts"
                raise FaultSpecError(f"the shares for {whose} add up to {total:g}, more than 1")

    def choose(self, carrier: str, operation: str) -> Kind | None:
        """The misbehaviour that this call meets, if any."""
        if not self.specs:
            return None
        dice = self._dice.get(carrier)
        if dice is None:
            dice = self._dice[carrier] = random.Random(f"{self.seed}:{carrier}")  # noqa: S311 - no secret
        point = dice.random()
        for spec in self.specs:
            chosen = KINDS[spec.kind]
            if spec.carrier not in ("", carrier):
                continue
            if chosen.operations and operation not in chosen.operations:
                continue
            if point < spec.share:
                return chosen
            point -= spec.share
        return None


def render_envelope(envelope: Mapping[str, Any]) -> bytes:
    """A gateway's own answer: HTTP 200 with a JSON object."""
    return http1.render_answer(200, _json(envelope))


def business_error(code: int, message: str, data: Any = None) -> dict[str, Any]:
    """The envelope of a provider error."""
    return {"code": code, "message": message, "data": data}


def _json(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


def _with_data(exchange: Exchange, **changes: Any) -> bytes:
    """The good answer with fields of its data replaced; an answer without data stays as it is."""
    envelope = exchange.make_envelope()
    if envelope["data"] is not None:
        envelope["data"] = envelope["data"] | changes
    return render_envelope(envelope)


def _used_bytes(exchange: Exchange) -> int:
    data = exchange.make_envelope()["data"] or {}
    return int(data.get("used_bytes", 0))


# --- HTTP status and headers


@kind("http429")
def _http429(_exchange: Exchange) -> bytes:
    """HTTP 429 without Retry-After."""
    return http1.render_answer(429, _json(business_error(429, "too many requests")))


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
    return http1.render_answer(401, _json(business_error(401, "unauthorized")))


@kind("http403_html")
def _http403_html(_exchange: Exchange) -> bytes:
    """HTTP 403 with an HTML page."""
    return http1.render_answer(403, HTML_PAGE, content_type=HTML_TYPE)


@kind("redirect")
def _redirect(exchange: Exchange) -> bytes:
    """HTTP 302 to another host name, where this simulator logs whoever follows."""
    name, _, port = exchange.host.partition(":")
    other = "127.0.0.1" if name == "localhost" else "localhost"
    location = f"http://{other}{':' + port if port else ''}/redirected{exchange.path}"
    return http1.render_answer(302, b"", headers=(("Location", location),))


@kind("broken_header")
def _broken_header(_exchange: Exchange) -> Iterator[Move]:
    """A status line and headers that are no HTTP."""
    yield b"HTTP/9.9 OK fine\r\n\x00\x01 no colon here\r\n\r\n"
    yield Ending.CLOSE


# --- HTTP 200 with a body that is not the protocol


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
    body = _json(exchange.make_envelope())
    return http1.render_answer(200, body, content_type="text/plain")


@kind("empty_body")
def _empty_body(_exchange: Exchange) -> bytes:
    """HTTP 200 with an empty body."""
    return http1.render_answer(200, b"")


@kind("truncated_json")
def _truncated_json(exchange: Exchange) -> bytes:
    """HTTP 200 with the first half of the JSON, its length declared truly."""
    body = _json(exchange.make_envelope())
    return http1.render_answer(200, body[: len(body) // 2])


@kind("json_list")
def _json_list(exchange: Exchange) -> bytes:
    """HTTP 200 with the good answer inside a list."""
    return http1.render_answer(200, _json([exchange.make_envelope()]))


@kind("deep_json")
def _deep_json(_exchange: Exchange) -> bytes:
    """HTTP 200 with JSON nested 100,000 deep."""
    return http1.render_answer(200, b"[" * 100_000 + b"]" * 100_000)


@kind("code_string")
def _code_string(exchange: Exchange) -> bytes:
    """A good answer whose code is the string "0"."""
    envelope = exchange.make_envelope()
    return render_envelope(envelope | {"code": str(envelope["code"])})


@kind("missing_data")
def _missing_data(_exchange: Exchange) -> bytes:
    """Code 0 without data."""
    return render_envelope({"code": 0, "message": "success"})


@kind("null_data")
def _null_data(_exchange: Exchange) -> bytes:
    """Code 0 with data null."""
    return render_envelope({"code": 0, "message": "success", "data": None})


@kind("gbk")
def _gbk(_exchange: Exchange) -> bytes:
    """A business error in GBK, with the charset in the header."""
    return _in_gbk(business_error(BUSINESS_CODE, BUSINESS_TEXT), "application/json; charset=GBK")


@kind("gbk_no_charset")
def _gbk_no_charset(_exchange: Exchange) -> bytes:
    """A business error in GBK, without a charset in the header."""
    return _in_gbk(business_error(BUSINESS_CODE, BUSINESS_TEXT), "application/json")


@kind("gbk_success")
def _gbk_success(exchange: Exchange) -> bytes:
    """A good answer with a Chinese message in GBK, without a charset."""
    return _in_gbk(exchange.make_envelope() | {"message": "查询成功"}, "application/json")


def _in_gbk(envelope: Mapping[str, Any], content_type: str) -> bytes:
    body = _json(envelope).decode().encode("gbk")
    return http1.render_answer(200, body, content_type=content_type)


@kind("huge_body")
def _huge_body(exchange: Exchange) -> Iterator[Move]:
    """A good answer behind 8 MiB of spaces."""
    tail = _json(exchange.make_envelope())
    yield http1.render_answer(200, b"", content_length=HUGE_BODY_BYTES + len(tail))
    for _ in range(HUGE_BODY_BYTES // len(CHUNK)):
        yield CHUNK
    yield tail


@kind("gzip_bomb")
def _gzip_bomb(exchange: Exchange) -> bytes:
    """The same 8 MiB, compressed to a few kilobytes."""
    tail = _json(exchange.make_envelope())
    body = gzip.compress(b" " * HUGE_BODY_BYTES + tail, compresslevel=1, mtime=0)
    return http1.render_answer(200, body, headers=(("Content-Encoding", "gzip"),))


# --- good answers with wrong facts


@kind("number_strings", operations=("carddata",))
def _number_strings(exchange: Exchange) -> bytes:
    """Usage as a string of digits."""
    return _with_data(exchange, used_bytes=str(_used_bytes(exchange)))


@kind("number_commas", operations=("carddata",))
def _number_commas(exchange: Exchange) -> bytes:
    """Usage as a string with thousands separators."""
    return _with_data(exchange, used_bytes=f"{_used_bytes(exchange) + 1_000:,}")


@kind("negative_usage", operations=("carddata",))
def _negative_usage(exchange: Exchange) -> bytes:
    """Usage of -1."""
    return _with_data(exchange, used_bytes=-1)


@kind("huge_number", operations=("carddata",))
def _huge_number(exchange: Exchange) -> bytes:
    """Usage of 5,000 digits."""
    text = _with_data(exchange, used_bytes="@").partition(http1.HEAD_END)[2]
    return http1.render_answer(200, text.replace(b'"@"', b"9" * 5_000))


@kind("usage_decrease", operations=("carddata",))
def _usage_decrease(exchange: Exchange) -> bytes:
    """Half the usage, in the same cycle."""
    return _with_data(exchange, used_bytes=_used_bytes(exchange) // 2)


@kind("unknown_status", operations=("card_status",))
def _unknown_status(exchange: Exchange) -> bytes:
    """A status word never seen before."""
    return _with_data(exchange, status=UNKNOWN_STATUS)


@kind("wrong_iccid")
def _wrong_iccid(exchange: Exchange) -> bytes:
    """An answer that names another card."""
    digit = "1" if exchange.iccid[-2:-1] == "0" else "0"
    return _with_data(exchange, iccid=exchange.iccid[:-2] + digit + exchange.iccid[-1:])


# --- the connection


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


# --- provider errors


@kind("code_1001")
def _code_1001(_exchange: Exchange) -> bytes:
    """Code 1001, card not found."""
    return render_envelope(business_error(1001, "card not found"))


@kind("code_1002")
def _code_1002(_exchange: Exchange) -> bytes:
    """Code 1002, card is locked by another operation."""
    return render_envelope(business_error(1002, "card is locked by another operation"))


@kind("code_1003")
def _code_1003(_exchange: Exchange) -> bytes:
    """Code 1003, token invalid or expired."""
    return render_envelope(business_error(1003, "token invalid or expired"))


@kind("code_1004")
def _code_1004(_exchange: Exchange) -> bytes:
    """Code 1004, the provider's own rate limit, without a time to wait."""
    return render_envelope(business_error(1004, "rate limit exceeded"))


@kind("code_1004_retry")
def _code_1004_retry(_exchange: Exchange) -> bytes:
    """Code 1004, the provider's own rate limit, with data.retry_after_ms."""
    data = {"retry_after_ms": RETRY_AFTER_MS}
    return render_envelope(business_error(1004, "rate limit exceeded", data))


@kind("business_chinese")
def _business_chinese(_exchange: Exchange) -> bytes:
    """A carrier's business error in Chinese."""
    return render_envelope(business_error(BUSINESS_CODE, BUSINESS_TEXT))


@kind("business_long")
def _business_long(_exchange: Exchange) -> bytes:
    """A business error of 20,000 characters with control characters among them."""
    text = "\x1b[31m" + (BUSINESS_TEXT + "\r\n\x00\x07") * 1_200
    return render_envelope(business_error(BUSINESS_CODE, text))
