"""What accounts and cards tell the rest of the product when they change."""

import pytest
from django.db import connection

from carriers import signals
from carriers.models import Card, Carrier


def test_a_new_card_came_under_polling(carrier, make_card, told):
    told.clear()

    card = make_card(carrier)

    assert told == [(card.pk, None, carrier.pk)]


def test_a_new_card_that_is_switched_off_tells_nothing(carrier, make_card, told):
    told.clear()

    make_card(carrier, is_polled=False)

    assert told == []


@pytest.fixture
def moved(make_carrier, make_card, told):
    """A card of one account, another account, and silence so far."""
    card, other = make_card(make_carrier("old")), make_carrier("new")
    told.clear()
    return card, other


def test_a_saved_move_names_both_accounts(moved, told):
    card, other = Card.objects.get(pk=moved[0].pk), moved[1]
    old = card.carrier_id
    card.carrier = other

    card.save()
    card.save()

    assert told == [(card.pk, old, other.pk)]


def test_a_switch_off_and_on_is_told(moved, told):
    card, account = moved[0], moved[0].carrier_id

    for is_polled in (False, True):
        card.is_polled = is_polled
        card.save()

    assert told == [(card.pk, account, None), (card.pk, None, account)]


def test_a_card_read_in_part_is_told_right(moved, told):
    card = Card.objects.only("iccid").get(pk=moved[0].pk)
    card.is_polled = False

    card.save()

    assert told == [(card.pk, moved[0].carrier_id, None)]


def test_new_facts_tell_nothing(moved, told):
    card = moved[0]
    card.status = "active"

    card.save()
    Card.objects.update(status="suspended")
    Card.objects.bulk_update([card], ["status"])

    assert told == []


def test_a_deleted_card_left_polling(moved, told):
    card_id, account = moved[0].pk, moved[0].carrier_id

    moved[0].delete()

    assert told == [(card_id, account, None)]


def test_bulk_changes_are_told(moved, told):
    card, other = moved
    old = card.carrier_id

    Card.objects.update(carrier=other)
    Card.objects.update(carrier_id=other.pk)
    card.carrier, card.is_polled = other, False
    Card.objects.bulk_update([card], ["is_polled"])
    Card.objects.update(is_polled=True)
    Card.objects.all().delete()

    assert told == [
        (card.pk, old, other.pk),
        (card.pk, other.pk, None),
        (card.pk, None, other.pk),
        (card.pk, other.pk, None),
    ]


def test_a_bulk_creation_tells_cards_that_are_new(moved, told):
    card = moved[0]
    new = Card(carrier=card.carrier, iccid="898600000000999999")
    same = Card(carrier=card.carrier, iccid=card.iccid, msisdn="1")

    Card.objects.bulk_create(
        [new, same], update_conflicts=True, unique_fields=["iccid"], update_fields=["msisdn"]
    )

    created = Card.objects.get(iccid=new.iccid)
    assert told == [(created.pk, None, card.carrier_id)]


def test_a_bulk_creation_that_passes_over_known_cards_tells_the_others(moved, told):
    card = moved[0]
    new = Card(carrier=card.carrier, iccid="898600000000999999")

    Card.objects.bulk_create([Card(carrier=moved[1], iccid=card.iccid), new], ignore_conflicts=True)

    assert told == [(Card.objects.get(iccid=new.iccid).pk, None, card.carrier_id)]


def test_many_changes_come_in_batches(carrier, told, monkeypatch):
    sizes = []
    monkeypatch.setattr(signals, "BATCH", 2)
    hear = lambda changes, **_: sizes.append(len(changes))  # noqa: E731
    signals.cards_changed.connect(hear)
    cards = [Card(carrier=carrier, iccid=str(898600000000000000 + i)) for i in range(5)]

    Card.objects.bulk_create(cards)

    signals.cards_changed.disconnect(hear)
    assert sizes == [2, 2, 1]


def test_a_deleted_account_tells_its_cards_first(moved, told):
    card, account = moved[0], moved[0].carrier_id

    Carrier.objects.filter(pk=account).delete()

    assert told == [(card.pk, account, None), (account, "deleted")]


def test_an_account_tells_what_became_of_it(make_carrier, told):
    carrier = make_carrier()
    carrier.name = "renamed"
    carrier.save()
    carrier = Carrier.objects.get()
    carrier.is_enabled = False
    carrier.save()
    Carrier.objects.update(is_enabled=True)
    Carrier.objects.update(name="again")

    kinds = ["created", "changed", "disabled", "enabled", "changed"]
    assert told == [(carrier.pk, kind) for kind in kinds]


def test_signals_are_sent_inside_the_transaction(carrier, make_card):
    inside = []

    def hear(**_kwargs):
        inside.append(connection.in_atomic_block)

    signals.cards_changed.connect(hear)
    make_card(carrier)
    signals.cards_changed.disconnect(hear)

    assert inside == [True]
