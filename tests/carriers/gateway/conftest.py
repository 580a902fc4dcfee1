"""One account at a simulated gateway, and calls over either transport, so that each test is written once for both."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from carriers.gateway.accounts import Account, AccountDirectory, Group
from carriers.gateway.client import AsyncGateway, SyncGateway
from carriers.gateway.errors import GatewayError
from carriers.simulator import running_simulator

ICCID = "89860000000000000015"
TOKEN = "a-token-that-nobody-may-see"
QUERY = Group("query", 100.0, ("card_status", "carddata", "realname"))


@pytest.fixture
def simulator():
    """A gateway of our own."""
    with running_simulator(token=TOKEN) as running:
        yield running


@pytest.fixture
def account(simulator):
    """An account at the simulator, not limited."""
    return Account(
        carrier_id=1,
        code="acme",
        provider="standard",
        gateway_url=simulator.url,
        token=TOKEN,
        is_enabled=True,
        max_in_flight=10,
        priority_ratio=0.5,
        groups=(),
    )


class Caller:
    """Makes calls over one of the transports, blocking or not; each call has its own deadline."""

    def __init__(self, client, *, is_async):
        self.client = client
        self.is_async = is_async
        self.sync = SyncGateway()
        self.elapsed_s = 0.0

    def __call__(self, account, operation="card_status", *arguments, timeout_s=5.0, times=1):
        """Call, several times over the same connections where asked; gives the last answer or raises its error."""
        began_s = time.monotonic()
        try:
            if self.is_async:
                return asyncio.run(self._call(account, operation, arguments, timeout_s, times))
            for _ in range(times):
                client = self.sync.client(account, timeout_s=timeout_s)
                answer = getattr(client, operation)(ICCID, *arguments)
            return answer
        finally:
            self.elapsed_s = time.monotonic() - began_s

    async def _call(self, account, operation, arguments, timeout_s, times):
        with ThreadPoolExecutor(2) as pool:
            gateway = AsyncGateway(self.client, pool, concurrency=4)
            try:
                for _ in range(times):
                    deadline = asyncio.get_running_loop().time() + timeout_s
                    client = gateway.client(account, deadline=deadline, observer=None)
                    answer = await getattr(client, operation)(ICCID, *arguments)
                return answer
            finally:
                await gateway.close()
                gateway.statistics.flush(self.client)

    def error(self, *arguments, **options):
        """The error that a call ends with."""
        with pytest.raises(GatewayError) as caught:
            self(*arguments, **options)
        return caught.value

    def close(self):
        """Close what the blocking gateway keeps."""
        self.sync.close()
        self.sync.statistics.flush(self.client)


@pytest.fixture(params=["requests", "aiohttp"])
def call(request, client):
    """Calls over each of the transports."""
    caller = Caller(client, is_async=request.param == "aiohttp")
    yield caller
    caller.close()


@pytest.fixture
def limited(account):
    """The account with 100 calls a second."""
    return replace(account, groups=(QUERY,))


@pytest.fixture
def directory_of():
    """Make a directory that knows just these accounts, as if read from SQL a moment ago."""

    class Known(AccountDirectory):
        def __init__(self, accounts):
            super().__init__()
            self.known = {a.carrier_id: a for a in accounts}

        def get(self, carrier_id):
            return self.known.get(carrier_id)

    return lambda *accounts: Known(accounts)
