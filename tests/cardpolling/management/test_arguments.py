"""Arguments that several commands take."""

from argparse import ArgumentTypeError

import pytest
from django.core.management.base import CommandError

from cardpolling.checktypes import CheckType
from cardpolling.management import arguments

pytestmark = pytest.mark.usefixtures("db")


@pytest.fixture
def card(make_carrier):
    """A card whose last digit is its Luhn digit."""
    return make_carrier().cards.create(iccid="89860000000000000019")


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("89860000000000000019", id="as stored"),
        pytest.param("8986 0000 0000 0000 0019", id="with spaces"),
        pytest.param("8986000000000000001", id="without its check digit"),
        pytest.param("８９８６００００００００００００００１９", id="in full-width digits"),
    ],
)
def test_a_card_is_found_by_its_number(card, text):
    assert arguments.cards_by_iccid([text]) == [card]


def test_a_card_named_twice_is_given_once(card):
    assert arguments.cards_by_iccid([card.iccid, card.iccid[:-1]]) == [card]


def test_cards_come_in_the_order_in_which_they_are_named(make_carrier, make_cards):
    cards = make_cards(make_carrier(), 3)

    named = arguments.cards_by_iccid([card.iccid for card in reversed(cards)])

    assert [card.pk for card in named] == [card.pk for card in reversed(cards)]


def test_unknown_cards_are_listed(card):
    with pytest.raises(CommandError, match="89861111111111111111, ABC") as refusal:
        arguments.cards_by_iccid([card.iccid, "89861111111111111111", "ABC"])

    assert refusal.value.returncode == 2


def test_of_many_unknown_cards_some_are_listed(db):
    with pytest.raises(CommandError, match="and 1480 more"):
        arguments.cards_by_iccid([str(number) for number in range(1_500)])


def test_check_types_are_read():
    read = arguments.check_types("card_status, realname,card_status")

    assert read == (CheckType.CARD_STATUS, CheckType.REALNAME)


@pytest.mark.parametrize("text", ["", ",", "card_status,nonsense"])
def test_what_is_no_check_type_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="card_status, carddata, realname, package"):
        arguments.check_types(text)


def test_delays_are_read():
    assert arguments.delays_s("30, 60,300") == (30, 60, 300)


@pytest.mark.parametrize("text", ["", "30,", "-1", "1.5", "soon", "３０"])
def test_what_is_no_delay_is_refused(text):
    with pytest.raises(ArgumentTypeError, match="30,60,300"):
        arguments.delays_s(text)
