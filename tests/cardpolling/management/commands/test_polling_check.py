"""``manage.py polling_check``."""

import pytest
from django.core.management import call_command
from django.core.management.base import CommandError

from cardpolling.keys import AccountKeys
from carriers.models import Carrier

pytestmark = pytest.mark.usefixtures("now_ms")


def due_fields(client, card):
    """The due hash of a card."""
    return client.hgetall(AccountKeys(card.carrier_id).due(card.pk))


def test_a_check_of_all_polled_types_is_requested(run, client, cards):
    printed = run("polling_check", cards[0].iccid)

    assert "1 cards requested" in printed
    fields = due_fields(client, cards[0])
    assert (fields["req:card_status"], fields["req:carddata"], fields["prio"]) == ("1", "1", "1")


def test_types_and_cards_can_be_named(run, client, cards):
    run("polling_check", *(card.iccid for card in cards), "--types", "carddata")

    assert all("req:card_status" not in due_fields(client, card) for card in cards)
    assert all(due_fields(client, card)["req:carddata"] == "1" for card in cards)


def test_a_manual_check_has_no_priority(run, client, cards):
    run("polling_check", cards[0].iccid, "--manual")

    assert "prio" not in due_fields(client, cards[0])


def test_a_confirmation_is_requested(run, client, cards):
    run("polling_check", cards[0].iccid, "--confirm", "30,60,300", "--expect", "suspended")

    fields = due_fields(client, cards[0])
    assert (fields["cfm:card_status"], fields["exp:card_status"]) == ("30,60,300", "suspended")


def test_an_account_that_is_disabled_is_named(cards, capsys):
    Carrier.objects.update(is_enabled=False)

    call_command("polling_check", cards[0].iccid)

    assert "acme is disabled" in capsys.readouterr().err


def test_cards_that_are_not_polled_are_named_after_the_others_were_requested(run, client, cards):
    cards[0].is_polled = False
    cards[0].save()

    with pytest.raises(CommandError, match=cards[0].iccid):
        run("polling_check", cards[0].iccid, cards[1].iccid)

    assert due_fields(client, cards[1])["req:card_status"] == "1"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--types", "nonsense"], "unknown check type: nonsense"),
        (["--confirm", "soon"], "whole numbers of seconds"),
        (["--confirm", "0"], "numbers of seconds from 1"),
        (["--expect", "suspended"], "needs confirmation delays"),
        (["--confirm", "30", "--expect", "asleep"], "No check can show the result “asleep”"),
    ],
)
def test_wrong_arguments_are_told_and_nothing_is_requested(run, client, cards, arguments, message):
    with pytest.raises(CommandError, match=message):
        run("polling_check", cards[0].iccid, *arguments)

    assert "req:card_status" not in due_fields(client, cards[0])


def test_an_unknown_card_is_told_and_nothing_is_requested(run, client, cards):
    with pytest.raises(CommandError, match="Unknown ICCID: 1234"):
        run("polling_check", cards[0].iccid, "1234")

    assert "req:card_status" not in due_fields(client, cards[0])


@pytest.mark.usefixtures("redis_away")
def test_redis_being_away_is_told_without_its_password(run, cards):
    with pytest.raises(CommandError, match="Redis does not answer") as refusal:
        run("polling_check", cards[0].iccid)

    assert "hidden-word" not in str(refusal.value)
