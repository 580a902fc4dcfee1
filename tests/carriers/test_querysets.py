"""Named queries of cards and usage."""

from datetime import date

import pytest

from carriers import querysets
from carriers.models import Card, DailyUsage
from carriers.querysets import BookedUsage

DAY = date(2026, 12, 1)


def test_cards_of_enabled_accounts_that_are_switched_on_are_under_polling(make_carrier, make_card):
    polled = make_card(make_carrier("a"))
    make_card(polled.carrier, is_polled=False)
    make_card(make_carrier("b", is_enabled=False))

    assert list(Card.objects.under_polling()) == [polled]


@pytest.mark.parametrize(
    "text",
    [
        "89860012345678901239",
        "8986-0012 3456 7890 1239",
        "８９８６００１２",
        "8986001234567890123",
        "13800138000",
        "+138001",
    ],
)
def test_a_card_is_found_by_the_beginning_of_its_numbers(make_carrier, make_card, text):
    carrier = make_carrier()
    card = make_card(carrier, iccid="89860012345678901239", msisdn="13800138000")
    make_card(carrier, iccid="89861112345678901239", msisdn="14800138000")

    assert list(Card.objects.with_number_prefix(text)) == [card]


def test_a_broad_prefix_finds_all_cards(make_carrier, make_card, monkeypatch):
    monkeypatch.setattr(querysets, "_FEW", 2)
    carrier = make_carrier()
    cards = [make_card(carrier) for _ in range(4)]

    assert set(Card.objects.with_number_prefix("8986")) == set(cards)


def test_a_number_that_ends_in_f_is_found_by_its_beginning(make_carrier, make_card):
    card = make_card(make_carrier(), iccid="8986001234567890123F")

    assert list(Card.objects.with_number_prefix("8986001234567890123")) == [card]


def test_a_whole_number_finds_the_card_stored_without_its_check_digit(make_carrier, make_card):
    card = make_card(make_carrier(), iccid="8986001234567890123")

    assert list(Card.objects.with_number_prefix("89860012345678901238")) == [card]


def test_usage_of_a_day_adds_up(make_carrier, make_card):
    card = make_card(make_carrier())

    DailyUsage.objects.book([BookedUsage(card.pk, DAY, 1), BookedUsage(card.pk, DAY, 2)])
    DailyUsage.objects.book([BookedUsage(card.pk, DAY, 4)])

    assert DailyUsage.objects.get(card=card, day=DAY).used_bytes == 7


def test_usage_of_many_cards_is_booked_in_few_queries(
    make_carrier, make_card, django_assert_num_queries
):
    carrier = make_carrier()
    cards = [make_card(carrier) for _ in range(50)]

    with django_assert_num_queries(1):
        DailyUsage.objects.book(BookedUsage(card.pk, DAY, 1) for card in cards)

    assert DailyUsage.objects.count() == 50


def test_booking_nothing_asks_nothing(db, django_assert_num_queries):
    with django_assert_num_queries(0):
        DailyUsage.objects.book([])
