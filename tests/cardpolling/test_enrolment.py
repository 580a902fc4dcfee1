"""Enrolment: from rows in SQL to the queues."""

import pytest

from cardpolling import enrolment
from cardpolling.enrolment import PolledCard, Scores
from cardpolling.keys import AccountKeys

pytestmark = pytest.mark.usefixtures("config", "now_ms")


@pytest.fixture
def rows(make_carrier, make_cards):
    """Three cards of an account, as SQL has them."""
    return enrolment.cards_to_poll([card.pk for card in make_cards(make_carrier(), 3)])


def test_enrolled_cards_are_counted_once(client, rows):
    assert enrolment.enroll(client, rows) == 3
    assert enrolment.enroll(client, rows) == 0


def test_cards_that_are_due_now_are_not_spread(client, rows, now_ms):
    enrolment.enroll(client, rows, is_due_now=True)

    queue = client.zrange(AccountKeys(rows[0].carrier_id).queue, 0, -1, withscores=True)
    assert {score for _card_id, score in queue} == {now_ms}


def test_cards_of_several_accounts_go_each_to_its_own(client, rows, make_carrier, make_cards):
    other = make_cards(make_carrier(), 1)[0]

    enrolment.enroll(client, [*rows, PolledCard(other.pk, other.carrier_id, "active", None)])

    assert client.zcard(AccountKeys(rows[0].carrier_id).queue) == 3
    assert client.zcard(AccountKeys(other.carrier_id).queue) == 1


def test_standing_tells_the_queue_and_the_score(client, rows):
    keys = AccountKeys(rows[0].carrier_id)
    client.zadd(keys.queue, {"1": 5})
    client.zadd(keys.priority, {"2": 6})

    stand = enrolment.standing(client, keys, ["1", "2", "3"])

    assert stand == {"1": Scores(None, 5), "2": Scores(6, None)}


def test_pages_give_every_card_once(monkeypatch, make_carrier, make_cards):
    monkeypatch.setattr(enrolment, "PAGE", 4)
    carrier = make_carrier()
    made = make_cards(carrier, 12)
    make_cards(make_carrier(), 2)

    pages = list(enrolment.pages_to_poll(carrier.pk))

    assert [len(page) for page in pages] == [4, 4, 4]
    assert [card.card_id for page in pages for card in page] == [card.pk for card in made]


def test_cards_switched_off_are_on_no_page(make_carrier, make_cards):
    carrier = make_carrier()
    make_cards(carrier, 2, is_polled=False)

    assert list(enrolment.pages_to_poll(carrier.pk)) == []
