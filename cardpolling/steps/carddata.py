"""Step ``carddata``: how much data the card has used, and whether its package still covers that."""

import logging
from dataclasses import replace
from datetime import datetime

from cardpolling.checktypes import CheckType
from cardpolling.results import Outcome, StepResult
from cardpolling.steps import failures, threshold
from cardpolling.steps.facts import CardFacts
from carriers.gateway.client import AsyncGatewayClient
from carriers.gateway.errors import GatewayError

logger = logging.getLogger(__name__)


async def run(card: CardFacts, gateway: AsyncGatewayClient, now: datetime) -> StepResult:
    """Ask the gateway for the card's usage, and judge the package by it."""
    try:
        answer = await gateway.carddata(card.iccid)
    except GatewayError as error:
        return failures.result_of(CheckType.CARDDATA, error)
    usage = {"used_bytes": answer.used_bytes, "cycle_start": answer.cycle_start}
    fresh = card.updated(usage)
    package_state = threshold.evaluate(fresh, now)
    success = StepResult(
        CheckType.CARDDATA,
        Outcome.SUCCESS,
        facts={**usage, "package_state": package_state.value},
    )
    try:
        follow_up = await threshold.enforce(fresh, package_state, gateway, now)
    except GatewayError as error:
        # The usage is known all the same. The package step, where due, tries again and reports; else the next usage check does.
        logger.warning("card not suspended: %s", error.category, extra={"card_id": card.id})
        return success
    return replace(success, package_evaluated=True, follow_up=follow_up)
