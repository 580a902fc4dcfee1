"""The admin's actions on cards: what they write, what they say, and who may."""

from datetime import date

import pytest
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.contrib.messages import get_messages
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from cardpolling import clock, connection, enrolment
from cardpolling.enrolment import PolledCard
from cardpolling.keys import AccountKeys
from carriers.admin import cardactions
from carriers.models import Card, CardEvent, Carrier, DailyUsage

CARDS = reverse("admin:carriers_card_changelist")
NOW_MS = 1_764_547_200_000


@pytest.fixture(autouse=True)
def _frozen(client):
    with clock.frozen(NOW_MS):
        yield


@pytest.fixture
def make_polled(client, carrier, make_card):
    """Make cards that stand in the queue."""

    def make(number, **fields):
        made = [make_card(carrier, **fields) for _ in range(number)]
        enrolment.enroll(client, [PolledCard(c.pk, c.carrier_id, c.status, None) for c in made])
        return made

    return make


@pytest.fixture
def keys(carrier):
    """Key names of the account."""
    return AccountKeys(carrier.pk)


@pytest.fixture
def act(admin_client, django_capture_on_commit_callbacks):
    """Choose an action for cards, all that match where none is named; give the response."""

    def choose(action, cards=(), *, web=admin_client, asked="", **fields):
        # A browser always sends the boxes that are ticked on its page.
        ticked = [card.pk for card in cards] or [Card.objects.order_by("-pk").first().pk]
        data = {"action": action, "_selected_action": ticked, "index": "0"}
        data |= {"select_across": "0" if cards else "1"} | fields
        with django_capture_on_commit_callbacks(execute=True):
            return web.post(CARDS + asked, data)

    return choose


def told(response):
    """What the user is told."""
    return " ".join(str(message) for message in get_messages(response.wsgi_request))


def test_a_check_is_requested_with_priority(act, client, make_polled, keys):
    cards = make_polled(3)

    response = act("request_check", cards[:2])

    assert "Checks requested: 2." in told(response)
    assert set(client.zrange(keys.priority, 0, -1)) == {str(card.pk) for card in cards[:2]}
    assert client.hget(keys.due(cards[0].pk), "req:card_status") == "1"


def test_what_was_not_requested_is_counted_and_explained(act, client, make_polled, keys):
    cards = make_polled(3)
    Card.objects.filter(pk=cards[0].pk).update(is_polled=False)
    just_now = {f"ok:{t}": NOW_MS - 1 for t in ("card_status", "carddata", "realname", "package")}
    client.hset(keys.due(cards[1].pk), mapping=just_now)

    response = act("request_check", cards)

    assert "Checks requested: 1." in told(response)
    assert "left alone: 1." in told(response)
    assert "Not under polling: 1." in told(response)


def test_cards_of_a_disabled_account_are_told(act, make_polled):
    cards = make_polled(2)
    Carrier.objects.update(is_enabled=False)

    assert "2 of these cards belong to disabled accounts" in told(act("request_check", cards))


def test_all_that_match_means_the_filter_and_every_page(
    act, client, make_polled, make_card, carrier, keys, monkeypatch
):
    monkeypatch.setattr(cardactions, "PAGE", 7)
    cards = make_polled(60, status="active")
    make_polled(5, status="suspended")

    response = act("request_check", asked="?status__exact=active")

    assert "Checks requested: 60." in told(response)
    assert set(client.zrange(keys.priority, 0, -1)) == {str(card.pk) for card in cards}


def test_all_that_match_means_the_search_too(act, client, make_polled, keys):
    cards = make_polled(3)

    act("request_check", asked=f"?q={cards[1].iccid}")

    assert client.zrange(keys.priority, 0, -1) == [str(cards[1].pk)]


def test_removal_asks_first(act, client, make_polled, keys):
    cards = make_polled(2)

    page = act("remove_from_polling", cards[:1])

    assert page.status_code == 200
    assert cards[0].iccid in page.content.decode()
    assert cards[1].iccid not in page.content.decode()
    assert client.zcard(keys.queue) == 2


def test_removed_cards_leave_the_queues_and_stay_out(act, client, make_polled, keys, admin_user):
    cards = make_polled(3)

    response = act("remove_from_polling", cards[:2], confirmed="yes")

    assert "Removed from polling: 2." in told(response)
    assert client.zrange(keys.queue, 0, -1) == [str(cards[2].pk)]
    assert list(Card.objects.filter(is_polled=True)) == [cards[2]]
    logged = LogEntry.objects.filter(action_flag=CHANGE, user=admin_user)
    assert {int(entry.object_id) for entry in logged} == {card.pk for card in cards[:2]}


def test_a_second_removal_says_that_there_was_nothing_to_do(act, make_polled):
    cards = make_polled(1)
    act("remove_from_polling", cards, confirmed="yes")

    response = act("remove_from_polling", cards, confirmed="yes")

    assert "Removed from polling: 0. Not under polling before: 1." in told(response)


def test_a_removal_of_all_that_match_reaches_cards_that_cease_to_match(
    act, client, make_polled, keys, monkeypatch
):
    monkeypatch.setattr(cardactions, "PAGE", 2)
    make_polled(7)

    response = act("remove_from_polling", asked="?is_polled__exact=1", confirmed="yes")

    assert "Removed from polling: 7." in told(response)
    assert not client.exists(keys.queue)


def test_the_question_carries_the_choice_of_all_that_match(act, make_polled):
    make_polled(1)

    page = act("remove_from_polling", asked="?is_polled__exact=1").content.decode()

    assert 'name="select_across" value="1"' in page
    assert f'href="{CARDS}?is_polled__exact=1"' in page


def test_deletion_asks_first_and_takes_cards_out_of_polling(
    act, client, make_polled, keys, monkeypatch
):
    monkeypatch.setattr(cardactions, "PAGE", 2)
    cards = make_polled(5, status="active")
    (kept,) = make_polled(1, status="suspended")
    CardEvent.objects.create(card=cards[0], kind="status", new="active", at=timezone.now())
    DailyUsage.objects.create(card=cards[0], day=date(2026, 12, 1))

    asked = act("delete_selected", asked="?status__exact=active")
    before = Card.objects.count()
    response = act("delete_selected", asked="?status__exact=active", confirmed="yes")

    assert (asked.status_code, before) == (200, 6)
    assert "Cards deleted: 5." in told(response)
    assert list(Card.objects.all()) == [kept]
    assert client.zrange(keys.queue, 0, -1) == [str(kept.pk)]
    assert LogEntry.objects.filter(action_flag=DELETION).count() == 5


def test_a_deletion_says_how_much_history_goes_along(admin_client, make_polled):
    (card,) = make_polled(1)
    DailyUsage.objects.create(card=card, day=date(2026, 12, 1))

    page = admin_client.get(reverse("admin:carriers_card_delete", args=(card.pk,)))

    assert "Daily usage: 1" in page.content.decode()


def test_an_action_that_is_none_changes_nothing(act, make_polled):
    cards = make_polled(1)

    assert act("nonsense", cards).status_code == 302
    assert Card.objects.filter(is_polled=True).count() == 1


def test_a_deleted_card_leaves_polling(
    admin_client, client, make_polled, keys, django_capture_on_commit_callbacks
):
    cards = make_polled(2)

    with django_capture_on_commit_callbacks(execute=True):
        admin_client.post(
            reverse("admin:carriers_card_delete", args=(cards[0].pk,)), {"post": "yes"}
        )

    assert client.zrange(keys.queue, 0, -1) == [str(cards[1].pk)]


@pytest.fixture
def redis_away(settings):
    """A Redis that does not answer, behind a URL with a password."""

    def take_away():
        settings.POLLING_REDIS_URL = "redis://:hidden-word@127.0.0.1:1/0"
        connection.reset()

    yield take_away
    connection.reset()


def test_redis_being_away_is_one_clear_message(act, make_polled, redis_away):
    cards = make_polled(2)
    redis_away()

    response = act("request_check", cards)

    assert response.status_code == 302
    assert told(response).startswith("Redis does not answer (ConnectionError).")
    assert "requested before that: 0" in told(response)
    assert "hidden-word" not in told(response)


@pytest.mark.django_db(transaction=True)
def test_a_removal_holds_in_the_database_while_redis_is_away(make_polled, redis_away, admin_client):
    cards = make_polled(2)
    redis_away()

    data = {"action": "remove_from_polling", "confirmed": "yes", "index": "0"}
    response = admin_client.post(CARDS, data | {"_selected_action": [c.pk for c in cards]})

    assert told(response).startswith("Redis does not answer (ConnectionError).")
    assert "switched off for 2 cards" in told(response)
    assert not Card.objects.filter(is_polled=True).exists()


@pytest.mark.parametrize("action", ["request_check", "remove_from_polling"])
def test_an_action_from_the_page_of_a_card_leads_back_to_it(act, make_polled, action):
    (card,) = make_polled(1)

    response = act(action, [card], back_to_card=str(card.pk), confirmed="yes")

    assert response.url == reverse("admin:carriers_card_change", args=(card.pk,))


@pytest.mark.parametrize("back", ["//evil.example", "../..", "²"])
def test_an_action_leads_nowhere_else(act, make_polled, back):
    response = act("request_check", make_polled(1), back_to_card=back)

    assert response.url.startswith(CARDS)


@pytest.fixture
def sign_in(django_user_model):
    """Sign in somebody of the staff who has some permissions and no other."""
    from django.contrib.auth.models import Permission

    def make(*codenames):
        user = django_user_model.objects.create_user("operator", password="x", is_staff=True)
        user.user_permissions.set(Permission.objects.filter(codename__in=codenames))
        web = Client()
        web.force_login(user)
        return web

    return make


ACTIONS = {
    "request_check": "request_check_card",
    "remove_from_polling": "remove_card_from_polling",
    "delete_selected": "delete_card",
}


@pytest.mark.parametrize(("action", "permission"), ACTIONS.items())
def test_who_has_the_permission_sees_the_action_and_no_other(
    sign_in, make_polled, action, permission
):
    make_polled(1)
    web = sign_in("view_card", permission)

    page = web.get(CARDS).content.decode()

    assert f'<option value="{action}">' in page
    assert all(f'<option value="{other}">' not in page for other in ACTIONS.keys() - {action})


@pytest.mark.parametrize("action", ACTIONS)
def test_who_lacks_the_permission_cannot_act(act, client, sign_in, make_polled, keys, action):
    (card,) = make_polled(1)
    web = sign_in("view_card", "change_card")

    act(action, [card], web=web, confirmed="yes")
    page = web.get(reverse("admin:carriers_card_change", args=(card.pk,))).content.decode()

    assert Card.objects.filter(is_polled=True).count() == 1
    assert not client.exists(keys.priority)
    assert f'name="action" value="{action}"' not in page


@pytest.mark.parametrize("action", ["request_check", "remove_from_polling"])
def test_who_has_the_permission_may_act_without_being_allowed_to_edit(
    act, sign_in, make_polled, action
):
    (card,) = make_polled(1)
    web = sign_in("view_card", ACTIONS[action])

    page = web.get(reverse("admin:carriers_card_change", args=(card.pk,))).content.decode()
    response = act(action, [card], web=web, confirmed="yes")

    assert f'name="action" value="{action}"' in page
    assert ": 1." in told(response)


@pytest.mark.parametrize("action", ACTIONS)
def test_a_request_without_a_token_of_the_form_is_refused(client, make_polled, admin_user, action):
    (card,) = make_polled(1)
    web = Client(enforce_csrf_checks=True)
    web.force_login(admin_user)

    data = {"action": action, "_selected_action": card.pk, "index": "0", "confirmed": "yes"}

    assert web.post(CARDS, data).status_code == 403
    assert Card.objects.filter(is_polled=True).count() == 1


@pytest.mark.parametrize("action", ACTIONS)
def test_looking_changes_nothing(admin_client, client, make_polled, keys, action):
    (card,) = make_polled(1)

    admin_client.get(CARDS, {"action": action, "_selected_action": card.pk, "confirmed": "yes"})

    assert Card.objects.filter(is_polled=True).count() == 1
    assert not client.exists(keys.priority)
