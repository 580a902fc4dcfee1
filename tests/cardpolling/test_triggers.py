"""Triggers: checks on request, and taking cards out of polling."""

import pytest
from redis import ConnectionError as RedisConnectionError

from cardpolling import configuration, connection, enrolment, triggers
from cardpolling.checktypes import CheckType
from cardpolling.enrolment import PolledCard
from cardpolling.errors import InvalidRequest
from cardpolling.keys import AccountKeys
from cardpolling.models import PollingConfig
from cardpolling.triggers import RequestSummary
from carriers.models import Card

pytestmark = pytest.mark.usefixtures("client", "config", "now_ms")

STATUS, USAGE, REALNAME = CheckType.CARD_STATUS, CheckType.CARDDATA, CheckType.REALNAME


@pytest.fixture
def cards(client, make_carrier, make_cards):
    """Two cards under polling."""
    made = make_cards(make_carrier(), 2)
    rows = [PolledCard(c.pk, c.carrier_id, c.status, c.realname_verified) for c in made]
    enrolment.enroll(client, rows)
    return list(Card.objects.filter(pk__in=[c.pk for c in made]).order_by("pk"))


@pytest.fixture
def keys(cards):
    """Key names of their account."""
    return AccountKeys(cards[0].carrier_id)


def test_a_request_makes_all_polled_checks_due_with_priority(client, cards, keys, now_ms):
    summary = triggers.request_check_cards(cards)

    assert summary == RequestSummary(requested=2)
    assert client.zscore(keys.priority, cards[0].pk) == now_ms
    fields = client.hmget(keys.due(cards[0].pk), f"req:{STATUS}", f"req:{USAGE}", f"req:{REALNAME}")
    assert fields == ["1", "1", None]


def test_a_request_may_name_its_types(client, cards, keys):
    triggers.request_check(cards[0], [STATUS])

    assert client.hget(keys.due(cards[0].pk), f"req:{USAGE}") is None


def test_a_manual_request_is_due_now_where_the_card_stands(client, cards, keys, now_ms):
    triggers.request_check(cards[0], manual=True)

    assert client.zscore(keys.queue, cards[0].pk) == now_ms
    assert client.zscore(keys.priority, cards[0].pk) is None


@pytest.fixture
def just_checked(client, cards, keys, now_ms):
    """A card whose checks all succeeded half a minute ago."""
    ok_ms = now_ms - 30_000
    client.hset(keys.due(cards[0].pk), mapping={f"ok:{t}": ok_ms for t in (STATUS, USAGE)})
    return cards[0]


def test_a_card_checked_just_now_is_left_alone(just_checked):
    assert triggers.request_check(just_checked) == RequestSummary(in_cooldown=1)


def test_the_cooldown_is_that_of_the_cards_configuration(just_checked):
    PollingConfig.objects.update(cooldown_s=29)
    configuration.forget()

    assert triggers.request_check(just_checked).requested == 1


@pytest.mark.parametrize("asked", [{"manual": True}, {"confirmations_s": (30,)}])
def test_a_manual_request_and_one_with_confirmations_know_no_cooldown(just_checked, asked):
    assert triggers.request_check(just_checked, **asked).requested == 1


def test_a_confirmation_is_written_with_its_expected_result(client, cards, keys):
    triggers.request_check(cards[0], confirmations_s=(30, 60, 300), expected="suspended")

    fields = client.hgetall(keys.due(cards[0].pk))
    assert fields[f"cfm:{STATUS}"] == "30,60,300"
    assert fields[f"exp:{STATUS}"] == "suspended"
    assert f"req:{USAGE}" not in fields


@pytest.mark.parametrize(
    "asked",
    [
        pytest.param({"confirmations_s": (0,)}, id="a delay of nothing"),
        pytest.param({"confirmations_s": (86_401,)}, id="a delay of more than a day"),
        pytest.param({"confirmations_s": (30,) * 21}, id="too many delays"),
        pytest.param({"expected": "suspended"}, id="an expected result without delays"),
        pytest.param(
            {"confirmations_s": (30,), "expected": "asleep"}, id="a result that no check shows"
        ),
        pytest.param(
            {"confirmations_s": (30,), "expected": "suspended", "types": [USAGE]},
            id="a result of another check",
        ),
    ],
)
def test_a_request_without_meaning_is_refused_whole(client, cards, keys, asked):
    with pytest.raises(InvalidRequest):
        triggers.request_check_cards(cards, **asked)

    assert client.hget(keys.due(cards[0].pk), f"req:{STATUS}") is None


def test_a_card_that_should_be_polled_and_is_not_is_enrolled_first(client, cards, keys, now_ms):
    client.flushall()

    summary = triggers.request_check_cards(cards)

    assert summary == RequestSummary(requested=2)
    assert client.zscore(keys.priority, cards[1].pk) == now_ms


def test_cards_that_are_not_polled_are_named(client, cards):
    Card.objects.filter(pk=cards[0].pk).update(is_polled=False)
    cards[0].refresh_from_db()

    summary = triggers.request_check_cards(cards)

    assert summary == RequestSummary(requested=1, not_polled=(cards[0].iccid,))


def test_a_type_that_the_configuration_does_not_poll_is_not_requested(cards):
    assert triggers.request_check(cards[0], [REALNAME]).not_polled == (cards[0].iccid,)


def test_redis_being_away_is_told(cards, settings):
    settings.POLLING_REDIS_URL = "redis://127.0.0.1:1/0"
    connection.reset()

    with pytest.raises(RedisConnectionError):
        triggers.request_check_cards(cards)

    connection.reset()


def test_removed_cards_leave_the_queues_and_stay_out(
    client, cards, keys, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        removed = triggers.remove_cards(cards)

    assert removed == 2
    assert not client.keys(keys.card_prefix + "*")
    assert not Card.objects.filter(is_polled=True).exists()


def test_a_removal_is_counted_once(cards, django_capture_on_commit_callbacks):
    with django_capture_on_commit_callbacks(execute=True):
        assert triggers.remove(cards[0])
        assert not triggers.remove(cards[0])


def test_a_removal_that_redis_did_not_hear_is_told_and_holds_in_the_database(
    cards, settings, django_capture_on_commit_callbacks
):
    settings.POLLING_REDIS_URL = "redis://127.0.0.1:1/0"
    connection.reset()

    with pytest.raises(RedisConnectionError), django_capture_on_commit_callbacks(execute=True):
        triggers.remove_cards(cards)

    connection.reset()
    assert not Card.objects.filter(is_polled=True).exists()
