"""Lifecycle: what becomes of the polling state when cards and accounts come, move and go."""

import logging

import pytest
from django.db import transaction

from cardpolling import connection, lifecycle, planning, state
from cardpolling.checktypes import CheckType
from cardpolling.configuration import rules_of
from cardpolling.keys import AccountKeys
from cardpolling.models import PollingConfig
from carriers.models import Card, Carrier

pytestmark = pytest.mark.usefixtures("client", "config", "now_ms")

GHOST = AccountKeys(4_711)


@pytest.fixture
def committed(django_capture_on_commit_callbacks):
    """A block after which its transaction counts as committed."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


@pytest.fixture
def enrolled(committed, make_carrier, make_cards):
    """A card under polling."""
    with committed():
        (card,) = make_cards(make_carrier(), 1)
    return Card.objects.get(pk=card.pk)


def stands(client, carrier, card):
    """Whether a card stands in the normal queue of an account."""
    return client.zscore(AccountKeys(carrier.pk).queue, card.pk) is not None


def keys_of(client, carrier_id):
    return client.keys(AccountKeys(carrier_id).prefix + "*")


def test_a_new_card_is_enrolled_somewhere_within_its_intervals(client, enrolled, config, now_ms):
    dues = planning.first_dues(rules_of(config), enrolled.pk, now_ms)

    fields = client.hgetall(AccountKeys(enrolled.carrier_id).due(enrolled.pk))

    assert {f"due:{t}": str(due_ms) for t, due_ms in dues.items()}.items() <= fields.items()
    assert fields["carrier"] == str(enrolled.carrier_id)


def test_nothing_is_written_before_the_commit(
    client, django_capture_on_commit_callbacks, make_carrier, make_cards
):
    carrier = make_carrier()

    with django_capture_on_commit_callbacks():
        make_cards(carrier, 1)

    assert not keys_of(client, carrier.pk)


def test_a_rolled_back_card_leaves_no_trace(client, committed, make_carrier, make_cards):
    carrier = make_carrier()

    with committed(), transaction.atomic():
        make_cards(carrier, 1)
        transaction.set_rollback(True)

    assert not keys_of(client, carrier.pk)


def test_many_cards_are_enrolled_together(client, committed, make_carrier, make_cards):
    carrier = make_carrier()

    with committed():
        make_cards(carrier, 1_200)

    assert client.zcard(AccountKeys(carrier.pk).queue) == 1_200


def test_a_card_that_no_configuration_polls_is_not_enrolled(
    client, committed, make_carrier, make_cards
):
    carrier = make_carrier()
    with committed():
        PollingConfig.objects.all().delete()

    with committed():
        make_cards(carrier, 1)

    assert not keys_of(client, carrier.pk)


def test_a_card_switched_off_is_removed(client, committed, enrolled):
    enrolled.is_polled = False

    with committed():
        enrolled.save()

    assert not keys_of(client, enrolled.carrier_id)


def test_a_card_switched_on_again_is_enrolled_anew(client, committed, enrolled):
    for is_polled in (False, True):
        enrolled.is_polled = is_polled
        with committed():
            enrolled.save()

    assert stands(client, enrolled.carrier, enrolled)


def test_a_deleted_card_is_removed(client, committed, enrolled):
    with committed():
        enrolled.delete()

    assert not keys_of(client, enrolled.carrier_id)


def test_a_moved_card_leaves_its_old_account_and_is_due_at_once_at_the_new(
    client, committed, enrolled, make_carrier, now_ms
):
    old, new = enrolled.carrier, make_carrier()
    client.hset(AccountKeys(old.pk).due(enrolled.pk), "fail:card_status", 7)
    enrolled.carrier = new

    with committed():
        enrolled.save()

    assert not keys_of(client, old.pk)
    assert client.zscore(AccountKeys(new.pk).queue, enrolled.pk) == now_ms
    assert not client.hexists(AccountKeys(new.pk).due(enrolled.pk), "fail:card_status")


def test_a_card_moved_to_and_fro_stays_as_it_was(client, committed, enrolled, make_carrier):
    before = client.hgetall(AccountKeys(enrolled.carrier_id).due(enrolled.pk))
    other = make_carrier()

    with committed():
        Card.objects.filter(pk=enrolled.pk).update(carrier=other)
        Card.objects.filter(pk=enrolled.pk).update(carrier=enrolled.carrier)

    assert client.hgetall(AccountKeys(enrolled.carrier_id).due(enrolled.pk)) == before
    assert not keys_of(client, other.pk)


def test_a_card_moved_while_it_is_executed_is_not_put_back(
    client, committed, enrolled, make_carrier, now_ms
):
    keys = AccountKeys(enrolled.carrier_id)
    client.zadd(keys.queue, {enrolled.pk: 0})
    claimed = state.claim(
        client,
        keys,
        now_ms=now_ms,
        lease_ms=30_000,
        limit=1,
        priority_ratio=0,
        token_prefix="t",
        budgets={},
        groups={},
    ).claims[0]
    with committed():
        Card.objects.filter(pk=enrolled.pk).update(carrier=make_carrier())

    state.acquire_exec(client, claimed, executor_id="e", ttl_ms=30_000)
    state.finish(client, claimed, state.FieldChanges(), executor_id="e", now_ms=now_ms)

    assert not keys_of(client, keys.carrier_id)


def test_a_disabled_account_keeps_its_state(client, committed, enrolled):
    before = keys_of(client, enrolled.carrier_id)

    with committed():
        Carrier.objects.filter(pk=enrolled.carrier_id).update(is_enabled=False)

    assert keys_of(client, enrolled.carrier_id) == before


def test_an_enabled_account_has_its_missing_cards_enrolled(
    client, committed, make_carrier, make_cards
):
    carrier = make_carrier(is_enabled=False)
    make_cards(carrier, 3)

    with committed():
        Carrier.objects.filter(pk=carrier.pk).update(is_enabled=True)

    assert client.zcard(AccountKeys(carrier.pk).queue) == 3


def test_a_deleted_account_leaves_nothing_and_takes_nothing_else_along(
    client, committed, enrolled, make_carrier, make_cards
):
    doomed = make_carrier()
    with committed():
        make_cards(doomed, 3)
    client.set(AccountKeys(doomed.pk).throttle, 1)
    others = keys_of(client, enrolled.carrier_id)

    with committed():
        doomed_id = doomed.pk
        doomed.delete()

    assert not keys_of(client, doomed_id)
    assert keys_of(client, enrolled.carrier_id) == others


def test_an_account_of_many_keys_is_forgotten_whole(client):
    client.mset({GHOST.due(card_id): "" for card_id in range(2_500)})

    lifecycle.forget_account(GHOST.carrier_id)

    assert not keys_of(client, GHOST.carrier_id)


def test_redis_being_away_breaks_nobodys_save(
    committed, make_carrier, make_cards, settings, caplog
):
    carrier = make_carrier()
    settings.POLLING_REDIS_URL = "redis://:hidden-word@127.0.0.1:1/0"
    connection.reset()

    with caplog.at_level(logging.WARNING), committed():
        make_cards(carrier, 1)

    connection.reset()
    assert Card.objects.filter(carrier=carrier).exists()
    assert "the reconciler will mend it" in caplog.text
    assert "hidden-word" not in caplog.text


def test_a_changed_configuration_is_seen_at_once(
    client, committed, make_carrier, make_cards, config
):
    config.realname_interval_s = 3600
    with committed():
        config.save()

    with committed():
        (card,) = make_cards(make_carrier(), 1)

    due = AccountKeys(card.carrier_id).due(card.pk)
    assert client.hexists(due, f"due:{CheckType.REALNAME}")
