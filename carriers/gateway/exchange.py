"""One HTTP exchange as values: what adapters build and read, and transports carry."""

from dataclasses import dataclass, field
from datetime import UTC
from email.utils import parsedate_to_datetime

from redis import RedisError

from cardpolling import clock

MAX_BODY_BYTES = 1024 * 1024
MAX_INTERIM_ANSWERS = 100
"""Answers before the final one (1xx) that are passed over; a gateway that sends more of them does not speak the protocol."""

LONGEST_RETRY_AFTER_MS = 24 * 3_600_000


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request; its headers hold the account's token and are in no repr."""

    method: str
    url: str
    headers: dict[str, str] = field(repr=False)
    body: bytes | None = None

    @property
    def is_idempotent(self) -> bool:
        """Whether sending it twice does no more than sending it once."""
        return self.method == "GET"


@dataclass(frozen=True, slots=True)
class HttpReply:
    """An answer; ``is_whole`` is False where reading stopped at ``MAX_BODY_BYTES``."""

    status: int
    body: bytes
    content_type: str = ""
    retry_after: str = ""
    is_whole: bool = True


def retry_after_ms(text: str) -> int | None:
    """How long a ``Retry-After`` header (seconds or a date) asks to wait; None where it says nothing that can be read."""
    text = text.strip()
    if text.isascii() and text.isdigit():
        return min(int(text[:9]) * 1000, LONGEST_RETRY_AFTER_MS)
    try:
        at = parsedate_to_datetime(text)
        wait_s = (at.replace(tzinfo=at.tzinfo or UTC) - clock.now()).total_seconds()
    except (ValueError, TypeError, IndexError, OverflowError, RedisError):
        return None
    return min(max(0, round(wait_s * 1000)), LONGEST_RETRY_AFTER_MS)
