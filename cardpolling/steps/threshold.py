"""The usage limit: whether a card's package is used up, and whether the card is suspended for it.

The steps ``carddata`` and ``package`` share this: whichever judges the package also acts on what it finds.
"""

from datetime import datetime

from cardpolling.checktypes import CheckType
from cardpolling.results import FollowUp
from cardpolling.steps.facts import CardFacts
from carriers import packages
from carriers.choices import CardStatus, PackageAction, PackageState
from carriers.gateway.call import with_rate_limit_exempt
from carriers.gateway.client import AsyncGatewayClient

CONFIRMATIONS_S = (30, 60, 300)
_REASON = "data package used up"


def evaluate(card: CardFacts, now: datetime) -> PackageState:
    """Judge whether the package still covers the card, by the usage that is known."""
    return packages.evaluate(
        allowance_bytes=card.allowance_bytes,
        used_bytes=card.used_bytes,
        cycle_start=card.cycle_start,
        usage_checked_at=card.usage_checked_at,
        now=now,
    )


async def enforce(
    card: CardFacts, package_state: PackageState, gateway: AsyncGatewayClient, now: datetime
) -> FollowUp | None:
    """Suspend an active card whose package is used up, where the package asks for it and the facts are fresh.

    Gives the check that is to watch the suspension take effect, or None when nothing was to be done. Raises ``GatewayError``.
    """
    if package_state is not PackageState.EXHAUSTED or not _may_suspend(card, now):
        return None
    with with_rate_limit_exempt("threshold"):
        await gateway.suspend(card.iccid, _REASON)
    return FollowUp(CheckType.CARD_STATUS, CONFIRMATIONS_S, CardStatus.SUSPENDED.value)


def _may_suspend(card: CardFacts, now: datetime) -> bool:
    return (
        card.package_action == PackageAction.SUSPEND
        and card.status == CardStatus.ACTIVE
        and packages.may_suspend(
            allowance_bytes=card.allowance_bytes,
            used_bytes=card.used_bytes,
            cycle_start=card.cycle_start,
            usage_checked_at=card.usage_checked_at,
            now=now,
        )
    )
