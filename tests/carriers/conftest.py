"""Ground of the tests of accounts and cards."""

import pytest

from carriers import signals
from carriers.models import Card, Carrier


@pytest.fixture
def make_carrier(db):
    """Make accounts with distinct codes."""

    def make(code="acme", **fields):
        fields = {"name": code.title(), "gateway_url": "http://127.0.0.1:9"} | fields
        return Carrier.objects.create(code=code, **fields)

    return make


@pytest.fixture
def carrier(make_carrier):
    """An account."""
    return make_carrier()


@pytest.fixture
def make_card(db):
    """Make cards with consecutive numbers."""
    numbers = iter(range(898600000000000000, 898600000000100000))

    def make(carrier, **fields):
        fields = {"iccid": str(next(numbers))} | fields
        return Card.objects.create(carrier=carrier, **fields)

    return make


@pytest.fixture
def told():
    """What the signals said, in order."""
    heard = []

    def hear_cards(*, changes, **_kwargs):
        heard.extend((c.card_id, c.old_carrier_id, c.new_carrier_id) for c in changes)

    def hear_account(*, carrier_id, kind, **_kwargs):
        heard.append((carrier_id, str(kind)))

    signals.cards_changed.connect(hear_cards)
    signals.account_changed.connect(hear_account)
    yield heard
    signals.cards_changed.disconnect(hear_cards)
    signals.account_changed.disconnect(hear_account)
