"""Accounts, cards and rules for the tests of the polling engine."""

from itertools import count

import pytest

from cardpolling import clock, configuration
from cardpolling.models import PollingConfig
from carriers.models import Card, Carrier

NOW_MS = 1_764_547_200_000


@pytest.fixture
def now_ms():
    """The time at which a frozen clock stands."""
    with clock.frozen(NOW_MS):
        yield NOW_MS


@pytest.fixture
def config(db):
    """The one polling configuration: status every ten minutes, usage every twenty."""
    PollingConfig.objects.all().delete()
    row = PollingConfig.objects.create(
        name="all", card_status_interval_s=600, carddata_interval_s=1200, cooldown_s=60
    )
    configuration.forget()
    yield row
    configuration.forget()


@pytest.fixture
def make_carrier(db):
    """Make accounts."""
    numbers = count(1)

    def make(code=None, **fields):
        code = code or f"account-{next(numbers)}"
        return Carrier.objects.create(
            name=code, code=code, gateway_url="http://127.0.0.1:9", **fields
        )

    return make


@pytest.fixture
def make_cards(db):
    """Make cards in one statement."""
    numbers = count(898600000000000000)

    def make(carrier, number, **fields):
        return Card.objects.bulk_create(
            Card(carrier=carrier, iccid=str(next(numbers)), **fields) for _ in range(number)
        )

    return make
