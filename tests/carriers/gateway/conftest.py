"""Ground of the gateway's tests: a simulated gateway, an account, and calls over both transports."""

import asyncio
import contextvars
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cardpolling import clock
from carriers.gateway import Account, AsyncGateway, GatewayClient, limiter, statistics, tls
from carriers.gateway.accounts import AccountDirectory
from carriers.gateway.guard import Guard
from carriers.gateway.statistics import MINUTE_MS, Statistics
from carriers.gateway.transport import RequestsTransport
from carriers.simulator import running_simulator
from tests.carriers.gateway import certificates
from tests.carriers.gateway.outcomes import TOKEN, Outcome
from tests.carriers.gateway.rawserver import raw_server

CARRIER_ID = 7
ICCID = "89860012345678901239"
DEADLINE_S = 1.0


@pytest.fixture
def simulator():
    """A gateway that serves on loopback."""
    with running_simulator() as running:
        yield running


@pytest.fixture
def serve():
    """Start raw servers; the test says what they do on the wire."""
    opened = []

    def start(script, **options):
        server = raw_server(script, **options)
        opened.append(server)
        return server.__enter__()

    yield start
    for server in opened:
        server.__exit__(None, None, None)


@pytest.fixture
def make_account():
    """Make the value of an account, by default without limits."""

    def make(**fields):
        usual = {
            "carrier_id": CARRIER_ID,
            "code": "acme",
            "provider": "standard",
            "gateway_url": "http://127.0.0.1:9",
            "token": TOKEN,
            "is_enabled": True,
            "max_in_flight": 10,
            "priority_ratio": 0.5,
            "groups": (),
        }
        return Account(**(usual | fields))

    return make


@pytest.fixture
def account(make_account, simulator):
    """An account at the simulator."""
    return make_account(gateway_url=simulator.url)


class SyncCaller:
    """Calls over ``requests``, on the test's own thread."""

    def __init__(self, client):
        self.client = client
        self.statistics = Statistics()
        self._transport = RequestsTransport()
        self._guard = Guard(AccountDirectory(), self.statistics, partial(limiter.throttle, client))

    def perform(self, account, operation, arguments, deadline_s):
        """Perform it and give the answer."""
        gateway = GatewayClient(
            account,
            guard=self._guard,
            transport=self._transport,
            client=self.client,
            timeout_s=deadline_s,
        )
        return getattr(gateway, operation)(*arguments)

    def idle(self, seconds):
        """Let time pass while connections are kept."""
        time.sleep(seconds)

    def close(self):
        """Close the kept connections."""
        self._transport.close()


class AsyncCaller:
    """Calls over ``aiohttp``, on a loop that lives as long as the test."""

    def __init__(self, client):
        self.client = client
        self._pool = ThreadPoolExecutor(2)
        self._runner = asyncio.Runner()
        self._gateway = self._runner.run(self._open())
        self.statistics = self._gateway.statistics

    async def _open(self):
        return AsyncGateway(self.client, self._pool, concurrency=4, accounts=AccountDirectory())

    def perform(self, account, operation, arguments, deadline_s):
        """Perform it and give the answer."""
        performing = self._perform(account, operation, arguments, deadline_s)
        return self._runner.run(performing, context=contextvars.copy_context())

    async def _perform(self, account, operation, arguments, deadline_s):
        deadline = asyncio.get_running_loop().time() + deadline_s
        gateway = self._gateway.client(account, deadline=deadline, observer=None)
        return await getattr(gateway, operation)(*arguments)

    def idle(self, seconds):
        """Let time pass while connections are kept."""
        self._runner.run(asyncio.sleep(seconds))

    def close(self):
        """Close the kept connections, and the loop."""
        self._runner.run(self._gateway.close())
        self._runner.close()
        self._pool.shutdown()


class Calls:
    """Performs operations of an account over one transport; connections are kept between calls."""

    def __init__(self, caller):
        self._caller = caller
        self.is_async = isinstance(caller, AsyncCaller)
        self.idle = caller.idle

    def __call__(self, account, operation="card_status", *, iccid=ICCID, deadline_s=DEADLINE_S):
        """What an operation on a card came to."""
        arguments = (iccid, "test") if operation in ("suspend", "resume") else (iccid,)
        answer, error, began_s = None, None, time.monotonic()
        try:
            answer = self._caller.perform(account, operation, arguments, deadline_s)
        except Exception as raised:  # noqa: BLE001  the test judges it
            error = raised
        return Outcome(answer, error, time.monotonic() - began_s, deadline_s)

    def totals(self):
        """What the guard counted so far."""
        self._caller.statistics.flush(self._caller.client)
        minute = clock.now_ms() // MINUTE_MS
        span = {"first_minute": minute - 2, "last_minute": minute}
        return statistics.totals(self._caller.client, [CARRIER_ID], **span)[CARRIER_ID]


def dead_redis():
    """A client of a server that is not there."""
    return redis.Redis(
        port=1, retry=Retry(NoBackoff(), 0), socket_connect_timeout=0.2, decode_responses=True
    )


@pytest.fixture(params=[SyncCaller, AsyncCaller], ids=["sync", "async"])
def call(request, client):
    """Perform an operation, once over each of the two transports."""
    caller = request.param(client)
    yield Calls(caller)
    caller.close()


@pytest.fixture(params=[SyncCaller, AsyncCaller], ids=["sync", "async"])
def call_without_limiter(request, client):
    """The same, with the limiter out of reach."""
    clock.now_us()
    caller = request.param(dead_redis())
    yield Calls(caller)
    caller.close()


@pytest.fixture
def certificate(tmp_path, client):
    """A certificate for loopback that nobody trusts."""
    return certificates.make_certificate(tmp_path)


@pytest.fixture
def trusted_certificate(certificate, monkeypatch):
    """The same, trusted by the transports made after this."""
    monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
    tls.context.cache_clear()
    yield certificate
    tls.context.cache_clear()
