"""Steps run against the simulated gateway, through the real client."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import date

import pytest

from cardpolling import clock, steps
from cardpolling.steps.facts import CardFacts
from carriers.gateway import Account, AsyncGateway
from carriers.simulator import running_simulator

ICCID = "89860000000000000015"


@pytest.fixture
def simulator():
    """A gateway of our own."""
    with running_simulator() as running:
        yield running


@pytest.fixture
def make_facts(client):
    """Make the facts of a card that is active and was read just now."""

    def make(**facts):
        usual = {
            "id": 1,
            "carrier_id": 1,
            "iccid": ICCID,
            "status": "active",
            "realname_verified": None,
            "used_bytes": 500,
            "cycle_start": date(2026, 11, 27),
            "usage_checked_at": clock.now(),
            "package_state": "unknown",
        }
        return CardFacts(**(usual | facts))

    return make


@pytest.fixture
def check(client, simulator):
    """Run one step of one card."""
    account = Account(
        carrier_id=1,
        code="acme",
        provider="standard",
        gateway_url=simulator.url,
        token="any",
        is_enabled=True,
        max_in_flight=10,
        priority_ratio=0.5,
        groups=(),
    )

    async def run_step(check_type, facts):
        with ThreadPoolExecutor(2) as pool:
            gateway = AsyncGateway(client, pool, concurrency=4)
            deadline = asyncio.get_running_loop().time() + 5
            try:
                api = gateway.client(account, deadline=deadline, observer=None)
                return await steps.REGISTRY[check_type](facts, api, clock.now())
            finally:
                await gateway.close()

    return lambda check_type, facts: asyncio.run(run_step(check_type, facts))
