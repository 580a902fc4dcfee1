"""From the bytes of an answer to typed facts, read strictly: what is not the protocol is ``bad_response``.

A wrong reading costs more than none: a bad answer must never overwrite a good fact.
"""

import json
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any, NoReturn

from carriers.choices import CardStatus
from carriers.gateway import exchange
from carriers.gateway.errors import ApplicationError, Category, GatewayError, clean_text
from carriers.gateway.exchange import LONGEST_RETRY_AFTER_MS, HttpReply

CODE_SUCCESS = 0
CODE_BAD_TOKEN = 1003
CODE_RATE_LIMITED = 1004
STATUS_UNAUTHORIZED = 401
STATUS_TOO_MANY = 429
MAX_RAW_STATUS_CHARACTERS = 100
BYTES_BOUND = 2**63

_CATEGORIES = {
    CODE_BAD_TOKEN: Category.AUTH,
    CODE_RATE_LIMITED: Category.PROVIDER_RATE_LIMITED,
}
_KNOWN_STATUSES = frozenset(CardStatus.values) - {CardStatus.UNKNOWN.value}
_CHARSET = re.compile(r"charset\s*=\s*\"?([\w.:-]{1,40})", re.ASCII)
_DIGITS = re.compile(r"[0-9]{1,19}", re.ASCII)
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


@dataclass(frozen=True, slots=True)
class StatusAnswer:
    """Answer of ``card_status``; a word never seen before is ``unknown`` and kept in ``raw_status``."""

    status: str
    raw_status: str
    is_online: bool
    changed_at: datetime | None


@dataclass(frozen=True, slots=True)
class UsageAnswer:
    """Answer of ``carddata``: bytes of the billing cycle that began at ``cycle_start``."""

    used_bytes: int
    cycle_start: date
    as_of: datetime | None


@dataclass(frozen=True, slots=True)
class RealnameAnswer:
    """Answer of ``realname``."""

    verified: bool
    verified_at: datetime | None


@dataclass(frozen=True, slots=True)
class AcceptedAnswer:
    """Answer of ``suspend`` and ``resume``: taken on, to take effect later."""

    accepted: bool


def read_data(reply: HttpReply, *, iccid: str, secret: str) -> dict[str, Any]:
    """The ``data`` of a good answer; raises ``GatewayError`` for every other. ``secret`` is kept out of messages."""
    _require_success_status(reply)
    if not reply.is_whole:
        _refuse(f"the answer is longer than {exchange.MAX_BODY_BYTES} bytes")
    envelope = _parse(_decode(reply.body, reply.content_type))
    data = envelope.get("data")
    _require_success_code(envelope, data, secret)
    if not isinstance(data, dict):
        _refuse("the answer carries no data")
    _require_same_card(data, iccid)
    return data


def read_status(data: dict[str, Any], *, secret: str = "") -> StatusAnswer:
    """Facts of ``card_status``; ``secret`` is kept out of the raw word."""
    word, online = data.get("status"), data.get("online")
    if not isinstance(word, str):
        _refuse("status is no text")
    if not isinstance(online, bool):
        _refuse("online is neither true nor false")
    return StatusAnswer(
        status=word if word in _KNOWN_STATUSES else CardStatus.UNKNOWN.value,
        raw_status=clean_text(word, MAX_RAW_STATUS_CHARACTERS, secret=secret),
        is_online=online,
        changed_at=_optional_time(data, "changed_at"),
    )


def read_usage(data: dict[str, Any]) -> UsageAnswer:
    """Facts of ``carddata``."""
    return UsageAnswer(
        used_bytes=_byte_count(data.get("used_bytes")),
        cycle_start=_date(data.get("cycle_start")),
        as_of=_optional_time(data, "as_of"),
    )


def read_realname(data: dict[str, Any]) -> RealnameAnswer:
    """Facts of ``realname``."""
    verified = data.get("verified")
    if not isinstance(verified, bool):
        _refuse("verified is neither true nor false")
    return RealnameAnswer(verified, _optional_time(data, "verified_at"))


def read_accepted(data: dict[str, Any]) -> AcceptedAnswer:
    """The one good answer to ``suspend`` and ``resume``: success that was not accepted contradicts itself."""
    if data.get("accepted") is not True:
        _refuse("the answer does not say that it was accepted")
    return AcceptedAnswer(accepted=True)


def _require_success_status(reply: HttpReply) -> None:
    status = reply.status
    if 200 <= status < 300:  # noqa: PLR2004  2xx
        return
    category = Category.HTTP
    if status == STATUS_TOO_MANY:
        category = Category.PROVIDER_RATE_LIMITED
    elif status == STATUS_UNAUTHORIZED:
        category = Category.AUTH
    raise GatewayError(
        category,
        f"HTTP status {status}",
        provider_code=str(status),
        http_status=status,
        retry_after_ms=exchange.retry_after_ms(reply.retry_after) if reply.retry_after else None,
    )


def _decode(body: bytes, content_type: str) -> str:
    """Text in UTF-8, else in the charset declared, else in GB18030: never guessed, which takes seconds on a megabyte."""
    declared = _CHARSET.search(content_type.lower())
    for charset in ("utf-8-sig", declared[1] if declared else "", "gb18030"):
        try:
            if charset:
                return body.decode(charset)
        except (UnicodeError, LookupError, ValueError):
            continue
    return _refuse("the answer is no text in UTF-8, the declared charset or GB18030")


def _parse(text: str) -> dict[str, Any]:
    envelope = None
    with suppress(ValueError, RecursionError):
        envelope = _DECODER.decode(text)
    if not isinstance(envelope, dict):
        _refuse("the answer is no JSON object")
    return envelope


def _require_success_code(envelope: dict[str, Any], data: Any, secret: str) -> None:
    code = envelope.get("code")
    if type(code) is not int:
        _refuse("code is no integer")
    if code == CODE_SUCCESS:
        return
    message = envelope.get("message")
    text = clean_text(message if isinstance(message, str) else "", secret=secret)
    raise GatewayError(
        _CATEGORIES.get(code, Category.PROVIDER),
        provider_code=str(code)[:20],
        provider_message=text,
        application_error=ApplicationError(str(code)[:20], text or f"provider code {code}"[:40]),
        retry_after_ms=_asked_wait_ms(data) if code == CODE_RATE_LIMITED else None,
    )


def _asked_wait_ms(data: Any) -> int | None:
    wait_ms = data.get("retry_after_ms") if isinstance(data, dict) else None
    if type(wait_ms) is not int or wait_ms < 0:
        return None
    return min(wait_ms, LONGEST_RETRY_AFTER_MS)


def _require_same_card(data: dict[str, Any], iccid: str) -> None:
    named = data.get("iccid")
    if named is not None and (not isinstance(named, str) or named.upper() != iccid):
        _refuse("the answer is about another card")


def _byte_count(value: Any) -> int:
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    if type(value) is not int or not 0 <= value < BYTES_BOUND:
        _refuse("used_bytes is no count of bytes")
    return value


def _date(text: Any) -> date:
    if isinstance(text, str) and _DATE.fullmatch(text):
        with suppress(ValueError):
            return date.fromisoformat(text)
    return _refuse("cycle_start is no date")


def _optional_time(data: dict[str, Any], name: str) -> datetime | None:
    text = data.get(name)
    if text is None:
        return None
    # What these quote is the gateway's text: it is not to be a refusal's context.
    with suppress(ValueError, TypeError, OverflowError):
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.astimezone(UTC)
    return _refuse(f"{name} is no time with a time zone")


def _refuse(reason: str) -> NoReturn:
    raise GatewayError(Category.BAD_RESPONSE, reason)
