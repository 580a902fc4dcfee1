"""The check types, and the gateway operation behind each."""

from enum import StrEnum


class CheckType(StrEnum):
    """What is checked of a card; the values stand in Redis and SQL and never change."""

    CARD_STATUS = "card_status"
    CARDDATA = "carddata"
    REALNAME = "realname"
    PACKAGE = "package"

    @property
    def calls_gateway(self) -> bool:
        """Whether this check makes an HTTP call (its operation has the same name)."""
        return self is not CheckType.PACKAGE


DEFAULT_STEP_ORDER = (
    CheckType.CARD_STATUS,
    CheckType.CARDDATA,
    CheckType.REALNAME,
    CheckType.PACKAGE,
)
GATEWAY_CHECK_TYPES = tuple(t for t in DEFAULT_STEP_ORDER if t.calls_gateway)
