"""An engine in this process, a simulated gateway, and cards of one account; SQL is committed, as the engine's threads need it."""

import itertools
import time
import uuid

import pytest

from cardpolling import clock, configuration, connection, state
from cardpolling.checktypes import CheckType
from cardpolling.counting import Counts
from cardpolling.engine import Engine
from cardpolling.keys import AccountKeys
from cardpolling.ledger import Ledger
from cardpolling.models import PollingConfig
from carriers.gateway import directory
from carriers.models import Card, Carrier, RateLimitGroup
from carriers.simulator import running_simulator

LEASE_MS = 3_000
WITHIN_S = 10.0


def wait_until(is_so, within_s=WITHIN_S):
    """Wait for a condition; gives what it gave, fails when it has not come within the time."""
    ends_s = time.monotonic() + within_s
    while time.monotonic() < ends_s:
        if found := is_so():
            return found
        time.sleep(0.02)
    pytest.fail("did not happen in time")


@pytest.fixture(autouse=True)
def short_leases(settings):
    """Leases that end while one waits."""
    settings.POLLING_LEASE_MS = LEASE_MS


@pytest.fixture
def simulator():
    """A gateway of our own."""
    with running_simulator() as running:
        yield running


class World:
    """One account with its cards, and the engine that executes them."""

    def __init__(self, client, simulator):
        self.client = client
        self.simulator = simulator
        self.counts = Counts()
        self.ledger = Ledger()
        self.config = PollingConfig.objects.get()
        self.carrier = Carrier.objects.create(
            name="acme", code="acme", gateway_url=simulator.url, gateway_token="token-of-acme"
        )
        self.keys = AccountKeys(self.carrier.pk)
        self._numbers = itertools.count(898600000000000000)
        self.engine = self.start_engine()
        self.ended = []

    def start_engine(self, client=None):
        """Start an engine, as each worker process has one."""
        engine = Engine(client or self.client, directory, ledger=self.ledger, counts=self.counts)
        engine.start()
        return engine

    def limit(self, per_second, *operations):
        """Put operations of the account under one limit."""
        RateLimitGroup.objects.create(
            carrier=self.carrier,
            name="query",
            max_per_second=per_second,
            operations=list(operations or ("card_status", "carddata", "realname")),
        )
        directory.refresh(force=True)

    def configure(self, **fields):
        """Change the one polling configuration; interval and order are by check type."""
        PollingConfig.objects.update(**fields)
        configuration.forget()

    def make_cards(self, number, **facts):
        """Make cards of the account that stand in no queue."""
        return Card.objects.bulk_create(
            Card(carrier=self.carrier, iccid=str(next(self._numbers)), is_polled=True, **facts)
            for _ in range(number)
        )

    def enroll(self, *cards, types=(CheckType.CARD_STATUS,)):
        """Put cards under polling with these types due now."""
        now_ms = clock.now_ms()
        for card in cards:
            self.client.delete(self.keys.due(card.pk))
            self.client.zrem(self.keys.queue, card.pk)
            state.enroll(
                self.client, self.carrier.pk, str(card.pk), dict.fromkeys(types, now_ms - 1000)
            )

    def claim(self, limit=100):
        """Claim what is due, as the dispatcher does."""
        return state.claim(
            self.client,
            self.keys,
            now_ms=clock.now_ms(),
            lease_ms=LEASE_MS,
            limit=limit,
            priority_ratio=0,
            token_prefix=uuid.uuid4().hex,
            budgets={},
            groups={},
        ).claims

    def execute(self, within_s=WITHIN_S):
        """Claim what is due and execute it to its end."""
        claims = self.claim()
        self.submit(claims).result(within_s)
        return claims

    def submit(self, claims):
        """Hand claims to the engine."""
        self.ledger.hold(self.carrier.pk, len(claims))
        return self.engine.submit(claims)

    def due(self, card):
        """Due hash of a card."""
        return self.client.hgetall(self.keys.due(card.pk))

    def counted(self, name):
        """How often the engine has counted this."""
        self.counts.flush(self.client)
        return int(self.client.hget(self.keys.counts, name) or 0)

    def stands_once(self, card):
        """Whether the card stands in exactly one queue, executed by nobody."""
        scores = [self.client.zscore(k, card.pk) for k in (self.keys.queue, self.keys.priority)]
        is_free = not self.client.exists(
            self.keys.claim(card.pk), self.keys.exec_right(card.pk), self.keys.inflight
        )
        return is_free and [s is None for s in scores].count(False) == 1


@pytest.fixture
def world(transactional_db, client, simulator):
    """The account, its gateway and an engine."""
    PollingConfig.objects.all().delete()
    PollingConfig.objects.create(
        name="all",
        card_status_interval_s=600,
        step_timeout_s=3,
        total_timeout_s=8,
        backoff_base_s=60,
    )
    configuration.forget()
    made = World(client, simulator)
    directory.refresh(force=True)
    yield made
    made.engine.stop(1)
    connection.polling_redis()
    configuration.forget()
