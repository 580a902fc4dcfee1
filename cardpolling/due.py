"""The fields of a card's due hash: what they are called, what they mean, how they are written. Pure.

Anything may stand in Redis. What cannot be read is taken for the harmless value: a due time that is no number is due now, a
count that is none is 0, so that one bad field never costs more than one check too many.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from cardpolling.checktypes import CheckType

LARGEST = 2**53
"""Lua counts in doubles: above this not every integer exists."""

ERROR_BYTES = 63
"""A hash value of 64 bytes and more triples the memory of the card."""

_INTEGER = re.compile(r"[0-9]{1,16}", re.ASCII)


def due_field(check_type: CheckType) -> str:
    """When the type is next due, ms."""
    return f"due:{check_type}"


def ok_field(check_type: CheckType) -> str:
    """Last success, ms."""
    return f"ok:{check_type}"


def fail_field(check_type: CheckType) -> str:
    """Consecutive failures."""
    return f"fail:{check_type}"


def ffail_field(check_type: CheckType) -> str:
    """First failure of the present run, ms."""
    return f"ffail:{check_type}"


def err_field(check_type: CheckType) -> str:
    """Last error, as :func:`error_value` writes it."""
    return f"err:{check_type}"


def cfm_field(check_type: CheckType) -> str:
    """Pending confirmation delays, seconds, comma separated."""
    return f"cfm:{check_type}"


def exp_field(check_type: CheckType) -> str:
    """Expected result that ends the confirmation."""
    return f"exp:{check_type}"


def req_field(check_type: CheckType) -> str:
    """How often the type was requested."""
    return f"req:{check_type}"


@dataclass(frozen=True, slots=True)
class Guarded:
    """A due time that is written only if nobody has requested or recorded the type since it was read (``finish.lua``)."""

    value: int
    seen_requests: int
    seen_due: str

    def __str__(self) -> str:
        return f"{self.value}|{self.seen_requests}|{self.seen_due}"


@dataclass(frozen=True, slots=True)
class FieldChanges:
    """What a finish writes to the due hash: pairs to set, then fields to delete."""

    pairs: Mapping[str, str | int | Guarded] = field(default_factory=dict)
    deletions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TypeState:
    """What the due hash says of one check type; ``due`` is the text as it stands, ``due_ms`` None where it is absent or no number."""

    due: str | None = None
    due_ms: int | None = None
    ok_ms: int | None = None
    failures: int = 0
    first_failure_ms: int | None = None
    error: str = ""
    confirmations: tuple[int, ...] = ()
    expected: str = ""
    requests: int = 0

    def is_due(self, now_ms: int) -> bool:
        """Whether the type is to be checked now; one without a due field is not."""
        return self.due is not None and (self.due_ms is None or self.due_ms <= now_ms)


@dataclass(frozen=True, slots=True)
class DueEntry:
    """A due hash; ``types`` holds the check types of which any field stands."""

    types: Mapping[CheckType, TypeState]
    is_priority: bool = False
    carrier: str = ""

    @classmethod
    def decode(cls, fields: Mapping[str, str]) -> "DueEntry":
        """Read a hash as it came from Redis; never raises."""
        named = {name.partition(":")[2] for name in fields}
        types = {t: _decode_type(t, fields) for t in CheckType if t in named}
        return cls(types, fields.get("prio") == "1", fields.get("carrier", ""))

    @property
    def has_any_due(self) -> bool:
        """Whether any check type has a due field; a card without one is in no schedule."""
        return any(state.due is not None for state in self.types.values())

    def due_types(self, now_ms: int) -> list[CheckType]:
        """The check types that are due now."""
        return [check_type for check_type, state in self.types.items() if state.is_due(now_ms)]


def _decode_type(check_type: CheckType, fields: Mapping[str, str]) -> TypeState:
    due = fields.get(due_field(check_type))
    return TypeState(
        due=due,
        due_ms=_integer(due),
        ok_ms=_integer(fields.get(ok_field(check_type))),
        failures=_integer(fields.get(fail_field(check_type))) or 0,
        first_failure_ms=_integer(fields.get(ffail_field(check_type))),
        error=fields.get(err_field(check_type), ""),
        confirmations=_delays(fields.get(cfm_field(check_type), "")),
        expected=fields.get(exp_field(check_type), ""),
        requests=_integer(fields.get(req_field(check_type))) or 0,
    )


def _integer(text: str | None) -> int | None:
    if text is None or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if number < LARGEST else None


def _delays(text: str) -> tuple[int, ...]:
    if not text:
        return ()
    numbers = (_integer(part) for part in text.split(","))
    return tuple(number for number in numbers if number is not None)


def error_value(category: str, code: str, message: str) -> str:
    """``category|provider code|start of the message``, under 64 bytes of UTF-8, cut between characters."""
    start = f"{category}|{code.replace('|', '/')}|{message}"
    printable = "".join(c if c.isprintable() else " " for c in start)
    return printable.encode()[:ERROR_BYTES].decode(errors="ignore")
