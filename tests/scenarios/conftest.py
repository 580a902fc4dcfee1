"""Whole worker processes, as ``manage.py rqworker polling`` starts them, against a simulated gateway."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import settings as django_settings
from django.db import connection as sql

from cardpolling import clock, configuration, state
from cardpolling.checktypes import CheckType
from cardpolling.keys import AccountKeys
from cardpolling.models import PollingConfig
from carriers.gateway import directory
from carriers.models import Card, Carrier, RateLimitGroup
from carriers.simulator import running_simulator

ROOT = Path(__file__).resolve().parents[2]
LEASE_MS = 3_000


def database_url():
    """Address of the test database that this process uses."""
    described = sql.settings_dict
    if sql.vendor == "sqlite":
        return f"sqlite:///{described['NAME']}"
    user, password = quote(described["USER"]), quote(described["PASSWORD"])
    host, port = described["HOST"] or "", described["PORT"] or "5432"
    return f"postgres://{user}:{password}@{quote(host, safe='')}:{port}/{described['NAME']}"


@pytest.fixture
def simulator():
    """A gateway that answers after a while."""
    with running_simulator(latency_ms=30) as running:
        yield running


class Site:
    """One account of cards, and the worker processes that poll it."""

    def __init__(self, client, simulator):
        self.client = client
        self.simulator = simulator
        self.workers = []
        self.carrier = self.make_carrier("acme", per_second=100)
        self.keys = AccountKeys(self.carrier.pk)

    def make_carrier(self, code, *, per_second):
        """Make an account with one limit."""
        carrier = Carrier.objects.create(
            name=code, code=code, gateway_url=self.simulator.url, gateway_token="token"
        )
        RateLimitGroup.objects.create(
            carrier=carrier,
            name="query",
            max_per_second=per_second,
            operations=["card_status", "carddata", "realname"],
        )
        return carrier

    def make_cards(self, number, carrier=None, *, first=0):
        """Make cards that are due now."""
        carrier = carrier or self.carrier
        cards = Card.objects.bulk_create(
            Card(carrier=carrier, iccid=str(898600000000000000 + carrier.pk * 10**6 + first + i))
            for i in range(number)
        )
        now_ms = clock.now_ms()
        for card in cards:
            state.remove(self.client, carrier.pk, str(card.pk))
            state.enroll(self.client, carrier.pk, str(card.pk), {CheckType.CARD_STATUS: now_ms})
        return cards

    def start_worker(self, **environment):
        """Start a worker process; ended with the test."""
        with self.log.open("ab") as log:
            process = subprocess.Popen(
                [
                    sys.executable,
                    str(ROOT / "manage.py"),
                    "rqworker",
                    "polling",
                    "--verbosity",
                    "0",
                ],
                cwd=ROOT,
                env={
                    **os.environ,
                    "DJANGO_SETTINGS_MODULE": "cardpolling.settings",
                    "DATABASE_URL": database_url(),
                    "POLLING_LEASE_MS": str(LEASE_MS),
                    "POLLING_GRACE_S": "5",
                    **environment,
                },
                stdout=subprocess.DEVNULL,
                stderr=log,
            )
        self.workers.append(process)
        return process

    @property
    def log(self):
        """What all workers wrote."""
        return Path(django_settings.VAR_DIR) / "workers.log"

    def wait_until(self, is_so, within_s=30.0):
        """Wait for a condition; gives what it gave, fails with the workers' log when it does not come."""
        ends_s = time.monotonic() + within_s
        while time.monotonic() < ends_s:
            if found := is_so():
                return found
            time.sleep(0.05)
        pytest.fail("did not happen in time; the workers wrote:\n" + self.log.read_text()[-5000:])

    def checked(self, carrier=None):
        """How many cards of the account have been checked."""
        cards = Card.objects.filter(carrier=carrier or self.carrier)
        return cards.filter(status_checked_at__isnull=False).count()

    def calls_of(self, card):
        """How often the gateway was asked about a card."""
        return sum(call.iccid == card.iccid for call in self.simulator.calls)

    def is_at_rest(self):
        """Whether nothing is claimed, executed or in flight."""
        prefix = self.keys.prefix + "card:*:"
        names = self.client.keys(prefix + "claim") + self.client.keys(prefix + "exec")
        return not names and not self.client.zcard(self.keys.inflight)

    def strays(self, cards):
        """Cards that do not stand in exactly one queue."""
        return [
            card
            for card in cards
            if [
                self.client.zscore(k, card.pk) for k in (self.keys.queue, self.keys.priority)
            ].count(None)
            != 1
        ]

    def overlapping(self):
        """How often the gateway was asked about a card while it was still answering about it."""
        return sum(a["overlapping_calls_of_a_card"] for a in self.simulator.statistics().values())

    def stop(self):
        """Kill what still runs."""
        for process in self.workers:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
            process.wait()


@pytest.fixture
def site(transactional_db, client, simulator):
    """The account, its gateway, no worker yet."""
    PollingConfig.objects.all().delete()
    PollingConfig.objects.create(
        name="all",
        card_status_interval_s=3600,
        step_timeout_s=5,
        total_timeout_s=10,
        backoff_base_s=60,
    )
    configuration.forget()
    made = Site(client, simulator)
    directory.refresh(force=True)
    made.log.unlink(missing_ok=True)
    yield made
    made.stop()
    configuration.forget()
