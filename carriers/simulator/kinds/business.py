"""Provider errors, as any gateway may answer them."""

from carriers.simulator import envelopes
from carriers.simulator.kinds.registry import Exchange, kind
from carriers.simulator.kinds.texts import BUSINESS_CODE, BUSINESS_TEXT

RETRY_AFTER_MS = 1_500


@kind("code_1001")
def _code_1001(_exchange: Exchange) -> bytes:
    """Code 1001, card not found."""
    return envelopes.render(envelopes.business_error(1001, "card not found"))


@kind("code_1002")
def _code_1002(_exchange: Exchange) -> bytes:
    """Code 1002, card is locked by another operation."""
    return envelopes.render(envelopes.business_error(1002, "card is locked by another operation"))


@kind("code_1003")
def _code_1003(_exchange: Exchange) -> bytes:
    """Code 1003, token invalid or expired."""
    return envelopes.render(envelopes.business_error(1003, "token invalid or expired"))


@kind("code_1004")
def _code_1004(_exchange: Exchange) -> bytes:
    """Code 1004, the provider's own rate limit, without a time to wait."""
    return envelopes.render(envelopes.business_error(1004, "rate limit exceeded"))


@kind("code_1004_retry")
def _code_1004_retry(_exchange: Exchange) -> bytes:
    """Code 1004, the provider's own rate limit, with data.retry_after_ms."""
    data = {"retry_after_ms": RETRY_AFTER_MS}
    return envelopes.render(envelopes.business_error(1004, "rate limit exceeded", data))


@kind("business_chinese")
def _business_chinese(_exchange: Exchange) -> bytes:
    """A carrier's business error in Chinese."""
    return envelopes.render(envelopes.business_error(BUSINESS_CODE, BUSINESS_TEXT))


@kind("business_long")
def _business_long(_exchange: Exchange) -> bytes:
    """A business error of 20,000 characters with control characters among them."""
    text = "\x1b[31m" + (BUSINESS_TEXT + "\r\n\x00\x07") * 1_200
    return envelopes.render(envelopes.business_error(BUSINESS_CODE, text))
