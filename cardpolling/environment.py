"""Reads environment variables into types, for ``settings`` alone; what cannot be read is one clear line.

The message names the variable, what is wanted and how to mend it. It never quotes the value, which may be a secret.
"""

from typing import Any
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import environ
from django.core.exceptions import ImproperlyConfigured

_env = environ.Env()

REDIS_SCHEMES = ("redis", "rediss", "unix")
DATABASE_SCHEMES = ("postgres", "postgresql", "sqlite")
TRUE_WORDS = ("1", "true", "yes", "on")
FALSE_WORDS = ("0", "false", "no", "off")


def text(name: str, default: str = "") -> str:
    """A text; a variable that is set but empty counts as unset."""
    value: str = _env.str(name, default="")
    return value.strip() or default


def words(name: str, default: list[str] | None = None) -> list[str]:
    """A list of texts that stand between commas."""
    found = [word.strip() for word in text(name).split(",")]
    return [word for word in found if word] or list(default or ())


def number(name: str, default: int) -> int:
    """A whole number; its range is judged by the system checks."""
    value = text(name)
    try:
        return int(value) if value else default
    except ValueError:
        raise _refusal(name, "a whole number", str(default)) from None


def flag(name: str, *, default: bool) -> bool:
    """A yes or no."""
    value = text(name).lower()
    if value and value not in TRUE_WORDS + FALSE_WORDS:
        raise _refusal(name, "1 or 0", "1")
    return value in TRUE_WORDS if value else default


def time_zone(name: str, default: str) -> str:
    """Name of a time zone."""
    value = text(name, default)
    try:
        ZoneInfo(value)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise _refusal(name, "the name of a time zone", "Asia/Shanghai") from None
    return value


def redis_url(name: str) -> str:
    """Address of a Redis server; empty where the variable is not set."""
    value = text(name)
    if value and not _is_url(value, REDIS_SCHEMES):
        raise _refusal(name, "the address of a Redis server", "redis://127.0.0.1:6379/0")
    return value


def database(name: str, default: str) -> dict[str, Any]:
    """Django's description of the database at an address."""
    value = text(name, default)
    example = "postgres://user:password@127.0.0.1:5432/cardpolling"
    if not _is_url(value, DATABASE_SCHEMES):
        raise _refusal(name, "the address of a PostgreSQL or SQLite database", example)
    described: dict[str, Any] = environ.Env.db_url_config(value)
    return described


def _is_url(value: str, schemes: tuple[str, ...]) -> bool:
    try:
        parts = urlsplit(value)
        _ = parts.port
    except ValueError:
        return False
    is_somewhere = bool(parts.netloc or parts.path.strip("/"))
    return parts.scheme in schemes and is_somewhere and value.startswith(f"{parts.scheme}://")


def _refusal(name: str, wanted: str, example: str) -> ImproperlyConfigured:
    return ImproperlyConfigured(
        f"The environment variable {name} must be {wanted}, for example {name}={example}. "
        "Correct it, or unset it for the default."
    )
