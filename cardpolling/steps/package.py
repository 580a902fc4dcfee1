"""Step ``package``: whether the data package still covers the card, judged from the usage that is known."""

from datetime import datetime

from cardpolling.checktypes import CheckType
from cardpolling.results import Outcome, StepResult
from cardpolling.steps import failures, threshold
from cardpolling.steps.facts import CardFacts
from carriers.gateway.client import AsyncGatewayClient
from carriers.gateway.errors import GatewayError


async def run(card: CardFacts, gateway: AsyncGatewayClient, now: datetime) -> StepResult:
    """Judge the package; suspend the card where it is used up and the package asks for that."""
    package_state = threshold.evaluate(card, now)
    try:
        follow_up = await threshold.enforce(card, package_state, gateway, now)
    except GatewayError as error:
        return failures.result_of(CheckType.PACKAGE, error)
    return StepResult(
        CheckType.PACKAGE,
        Outcome.SUCCESS,
        facts={"package_state": package_state.value},
        seen=package_state.value,
        follow_up=follow_up,
    )
