"""``manage.py polling_reconcile``."""

from dataclasses import fields

import pytest
from django.core.management.base import CommandError

from cardpolling import reconciler
from cardpolling.keys import AccountKeys
from cardpolling.management.commands.polling_reconcile import LABELS
from cardpolling.reconciler import Summary


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    monkeypatch.setattr(reconciler, "LONGEST_PAUSES_S", 0.0)


def test_where_nothing_differs_nothing_is_listed(run, cards):
    assert run("polling_reconcile").strip() == "0 differences mended."


def test_an_emptied_redis_is_rebuilt(run, client, cards):
    client.flushall()

    printed = run("polling_reconcile")

    assert "cards missing from the queues, enrolled: 2" in printed
    assert client.zcard(AccountKeys(cards[0].carrier_id).queue) == 2


def test_a_dry_run_writes_nothing(run, client, cards):
    client.flushall()

    assert "2 differences found." in run("polling_reconcile", "--dry-run")
    assert not client.exists(AccountKeys(cards[0].carrier_id).queue)


def test_redis_being_away_is_told(run, cards, redis_away):
    with pytest.raises(CommandError, match="Redis does not answer"):
        run("polling_reconcile")


def test_every_kind_of_difference_has_a_label():
    assert LABELS.keys() == {field.name for field in fields(Summary)}
