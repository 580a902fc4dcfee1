"""Step ``card_status``: whether the card is active, suspended, online."""

from datetime import datetime

from cardpolling.checktypes import CheckType
from cardpolling.results import Outcome, StepResult
from cardpolling.steps import failures
from cardpolling.steps.facts import CardFacts
from carriers.gateway.client import AsyncGatewayClient
from carriers.gateway.errors import GatewayError


async def run(card: CardFacts, gateway: AsyncGatewayClient, now: datetime) -> StepResult:
    """Ask the gateway for the card's status."""
    del now
    try:
        answer = await gateway.card_status(card.iccid)
    except GatewayError as error:
        return failures.result_of(CheckType.CARD_STATUS, error)
    return StepResult(
        CheckType.CARD_STATUS,
        Outcome.SUCCESS,
        facts={
            "status": answer.status,
            "raw_status": answer.raw_status,
            "is_online": answer.is_online,
        },
        seen=answer.status,
    )
