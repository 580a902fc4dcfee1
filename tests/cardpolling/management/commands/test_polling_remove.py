"""``manage.py polling_remove``."""

import pytest
from django.core.management.base import CommandError

from cardpolling.keys import AccountKeys
from carriers.models import Card


@pytest.fixture
def committed(django_capture_on_commit_callbacks):
    """A block after which its transaction counts as committed."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


def test_cards_are_taken_out_of_polling(run, client, cards, committed):
    with committed():
        printed = run("polling_remove", cards[0].iccid)

    assert "1 cards taken out of polling, 0 were not" in printed
    assert client.zrange(AccountKeys(cards[0].carrier_id).queue, 0, -1) == [str(cards[1].pk)]
    assert not Card.objects.get(pk=cards[0].pk).is_polled


def test_a_second_removal_says_that_there_was_nothing_to_do(run, cards, committed):
    with committed():
        run("polling_remove", cards[0].iccid)
        printed = run("polling_remove", cards[0].iccid)

    assert "0 cards taken out of polling, 1 were not" in printed


def test_an_unknown_card_is_told_and_nothing_is_removed(run, cards):
    with pytest.raises(CommandError, match="Unknown ICCID: 1234"):
        run("polling_remove", cards[0].iccid, "1234")

    assert Card.objects.filter(is_polled=True).count() == 2
