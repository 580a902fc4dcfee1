"""A gateway's refusal or failure as the result of a check."""

from cardpolling.checktypes import CheckType
from cardpolling.results import Outcome, StepResult
from carriers.gateway.errors import Category, GatewayError

_OUTCOMES = {
    Category.RATE_LIMITED: Outcome.RATE_LIMITED,
    Category.PROVIDER_RATE_LIMITED: Outcome.PROVIDER_RATE_LIMITED,
}


def result_of(check_type: CheckType, error: GatewayError) -> StepResult:
    """Turn a gateway error into the result that planning has a row for."""
    return StepResult(
        check_type,
        _OUTCOMES.get(error.category, Outcome.FAILED),
        category=error.category,
        provider_code=error.provider_code,
        message=error.provider_message or str(error),
        retry_after_ms=error.retry_after_ms,
    )
