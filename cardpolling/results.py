"""What a step reports of one check."""

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from cardpolling.checktypes import CheckType


class Outcome(StrEnum):
    """How a check ended; the rows of the planning table."""

    SUCCESS = "success"
    FAILED = "failed"
    RATE_LIMITED = "rate_limited"
    PROVIDER_RATE_LIMITED = "provider_rate_limited"
    SKIPPED = "skipped"
    GONE = "gone"


@dataclass(frozen=True, slots=True)
class FollowUp:
    """A check to be requested once this execution has ended, for example after an automatic suspend."""

    check_type: CheckType
    confirmations_s: tuple[int, ...]
    expected: str


@dataclass(frozen=True, slots=True)
class StepResult:
    """Result of one check of one card.

    ``facts`` are the ``Card`` fields that a success found (field name -> value), without the time fields.
    ``seen`` is the value that a confirmation compares with its expected result (for ``card_status`` the status word, for
    ``realname`` ``"verified"`` or ``"unverified"``, for ``package`` the package state, for ``carddata`` empty).
    ``package_evaluated`` says that the package was judged along with the usage, so that the due ``package`` step is skipped.
    ``category``, ``provider_code`` and ``message`` say why a check failed; ``retry_after_ms`` is what the gateway asked for.
    """

    check_type: CheckType
    outcome: Outcome
    facts: dict[str, Any] = field(default_factory=dict)
    seen: str = ""
    category: str = ""
    provider_code: str = ""
    message: str = ""
    retry_after_ms: int | None = None
    package_evaluated: bool = False
    follow_up: FollowUp | None = None
