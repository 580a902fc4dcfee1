"""The steps: the code that performs each check type, and the registry that names them.

A step answers with a result and never raises a gateway error. It plans nothing and writes nothing.
"""

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime

from cardpolling.checktypes import CheckType
from cardpolling.results import StepResult
from cardpolling.steps import card_status, carddata, package, realname
from cardpolling.steps.facts import CardFacts
from carriers.gateway.client import AsyncGatewayClient

Step = Callable[[CardFacts, AsyncGatewayClient, datetime], Awaitable[StepResult]]

REGISTRY: Mapping[CheckType, Step] = {
    CheckType.CARD_STATUS: card_status.run,
    CheckType.CARDDATA: carddata.run,
    CheckType.REALNAME: realname.run,
    CheckType.PACKAGE: package.run,
}
