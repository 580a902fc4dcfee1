"""What a gateway call that gave no usable answer is told by.

    GatewayError(Exception)      a call without a usable answer: category, provider code and message, HTTP status, duration
    ApplicationError(Exception)  what the gateway itself answered: a business code and its text; wrapped by a GatewayError

There is one class and a category, not a class per kind: the category is data, stored in Redis and SQL.
"""

import re
from enum import StrEnum

MAX_MESSAGE_CHARACTERS = 500
REDACTED = "***"
SHORTEST_SECRET = 4

# Control, format (bidirectional overrides among them) and surrogate characters, line and paragraph separators.
_UNPRINTABLE = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff"
    "\ufff9-\ufffb\ufffe\uffff\U000e0000-\U000e007f]+"
)


class Category(StrEnum):
    """Why a call gave no usable answer; the values stand in Redis and SQL and never change."""

    RATE_LIMITED = "rate_limited"
    """Refused by our own guard: no request was sent."""

    PROVIDER_RATE_LIMITED = "provider_rate_limited"
    """The provider's own limit was hit."""

    TIMEOUT = "timeout"
    NETWORK = "network"

    HTTP = "http"
    """A status other than 2xx."""

    BAD_RESPONSE = "bad_response"
    """An answer that is not the protocol."""

    AUTH = "auth"
    """The token is not accepted: the whole account is affected."""

    PROVIDER = "provider"
    """A business error code."""

    CONFIG = "config"
    """The account is misconfigured: no request was sent."""

    INTERNAL = "internal"
    """Our own bug."""

    @property
    def counts_against_card(self) -> bool:
        """Whether such a failure adds to the card's consecutive failures: only one that a check really met."""
        return self not in _NOT_THE_CARDS

    @property
    def may_retry(self) -> bool:
        """Whether another attempt may help at once."""
        return self is Category.NETWORK


_NOT_THE_CARDS = frozenset({Category.RATE_LIMITED, Category.PROVIDER_RATE_LIMITED, Category.CONFIG})


class ApplicationError(Exception):
    """The gateway answered, and its answer is an error code with a text."""

    def __init__(self, code: str, text: str) -> None:
        super().__init__(text)
        self.code = code
        self.text = text


class GatewayError(Exception):
    """A gateway call that gave no usable answer.

    Where it wraps an application error, ``str()`` and ``code`` are those of the application error; otherwise ``text`` says what
    happened and ``code`` is the provider's code or the category. ``duration`` is in seconds and belongs to the failed attempt.
    ``was_sent`` is False only where the request surely never left.
    """

    def __init__(  # noqa: PLR0913  each is a fact of its own, all by name
        self,
        category: Category | str,
        text: str = "",
        *,
        provider_code: str = "",
        provider_message: str = "",
        http_status: int | None = None,
        duration: float = 0.0,
        retry_after_ms: int | None = None,
        application_error: ApplicationError | None = None,
        was_sent: bool = True,
    ) -> None:
        self.category = Category(category)
        if application_error is not None:
            provider_code = provider_code or clean_text(application_error.code)
            provider_message = provider_message or application_error.text
            self.__cause__ = application_error
        self.provider_code = provider_code
        self.provider_message = clean_text(provider_message)
        self.http_status = http_status
        self.duration = duration
        self.retry_after_ms = retry_after_ms
        self.application_error = application_error
        self.was_sent = was_sent
        super().__init__(text or self.provider_message or self.category.value)

    @property
    def code(self) -> str:
        """Code of the wrapped application error, else the provider's code, else the category."""
        if self.application_error is not None:
            return self.application_error.code
        return self.provider_code or self.category.value

    def __str__(self) -> str:
        if self.application_error is not None:
            return str(self.application_error)
        return super().__str__()


def clean_text(text: str, most: int = MAX_MESSAGE_CHARACTERS, *, secret: str = "") -> str:
    """Make foreign text fit to be stored and shown: no control characters, no secret, at most ``most`` characters.

    The secret is looked for before cutting, so that no part of it is left at the end.
    """
    text = _UNPRINTABLE.sub("", text).strip()
    if len(secret) >= SHORTEST_SECRET:
        text = text.replace(secret, REDACTED)
    return text[:most]
