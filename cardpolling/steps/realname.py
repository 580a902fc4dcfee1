"""Step ``realname``: whether the identity of the card's holder is verified (实名)."""

from datetime import datetime

from cardpolling.checktypes import CheckType
from cardpolling.results import Outcome, StepResult
from cardpolling.steps import failures
from cardpolling.steps.facts import CardFacts
from carriers.gateway.client import AsyncGatewayClient
from carriers.gateway.errors import GatewayError

VERIFIED = "verified"
UNVERIFIED = "unverified"


async def run(card: CardFacts, gateway: AsyncGatewayClient, now: datetime) -> StepResult:
    """Ask the gateway whether the card's holder is verified."""
    del now
    try:
        answer = await gateway.realname(card.iccid)
    except GatewayError as error:
        return failures.result_of(CheckType.REALNAME, error)
    return StepResult(
        CheckType.REALNAME,
        Outcome.SUCCESS,
        facts={"realname_verified": answer.verified},
        seen=VERIFIED if answer.verified else UNVERIFIED,
    )
