"""The admin's lists: they show, filter and find, and cost the same however many rows there are."""

from datetime import date, timedelta
from itertools import pairwise

import pytest
from django.contrib.admin import site
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse
from django.utils import timezone, translation

from cardpolling import configuration
from carriers import pagination
from carriers.admin import searching
from carriers.models import Card, CardEvent, DailyUsage, Package

CARDS = reverse("admin:carriers_card_changelist")
EVENTS = reverse("admin:carriers_cardevent_changelist")
DAYS = reverse("admin:carriers_dailyusage_changelist")
ICCID = "89860012345678901238"
MOST_QUERIES = 15
LISTS = [
    "carriers_card",
    "carriers_carrier",
    "carriers_ratelimitgroup",
    "carriers_package",
    "carriers_cardevent",
    "carriers_dailyusage",
    "cardpolling_pollingconfig",
]


@pytest.fixture(autouse=True)
def _language():
    """Leave no language behind: a request sets that of the thread."""
    yield
    translation.deactivate()


@pytest.fixture
def cards(carrier, make_card):
    """Three cards: one known in full, one with old facts, one never seen."""
    now = timezone.now()
    package = Package.objects.create(name="small", allowance_bytes=1024**2)
    known = make_card(
        carrier,
        iccid=ICCID,
        msisdn="13800138000",
        imsi="460001234567890",
        package=package,
        status="active",
        is_online=True,
        realname_verified=True,
        used_bytes=512 * 1024,
        package_state="covered",
        status_checked_at=now - timedelta(minutes=5),
        realname_checked_at=now,
        usage_checked_at=now,
        package_checked_at=now,
    )
    old = make_card(carrier, status="suspended", status_checked_at=now - timedelta(days=3))
    return known, old, make_card(carrier)


def listed(page):
    """The cards on a page of the list."""
    return list(page.context["cl"].result_list)


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("language", ["en", "zh-hans"])
@pytest.mark.parametrize("name", LISTS)
def test_every_list_is_shown_in_both_languages(admin_client, cards, name, language):
    cards[0].carrier.rate_limit_groups.create(
        name="query", max_per_second=0.5, operations=["card_status"]
    )
    CardEvent.objects.create(card=cards[0], kind="status", new="active", at=timezone.now())
    DailyUsage.objects.create(card=cards[0], day=date(2026, 12, 1), used_bytes=2048)

    page = admin_client.get(
        reverse(f"admin:{name}_changelist"), headers={"accept-language": language}
    )

    assert page.status_code == 200
    assert page.context["cl"].result_count > 0
    assert f'lang="{language}"' in page.content.decode()


def test_every_model_of_the_product_is_registered():
    registered = {f"{m._meta.app_label}_{m._meta.model_name}" for m in site._registry}

    assert set(LISTS) <= registered


def test_the_list_shows_facts_with_their_ages(admin_client, cards):
    text = admin_client.get(CARDS).content.decode().replace("\xa0", " ")

    assert "512 KB of 1 MB" in text
    assert "5 minutes ago" in text
    assert "stale: 3 days ago" in text
    assert text.count("never seen") == 4 + 3


@pytest.mark.parametrize(
    "text",
    [
        ICCID,
        ICCID[:-1],
        f"{ICCID[:-1]}F",
        "8986 0012-3456 7890 1238",
        "８９８６００１２３",
        "13800138000",
        "+138001",
        "460001234567890",
    ],
)
def test_a_card_is_found_by_its_numbers(admin_client, cards, text):
    assert listed(admin_client.get(CARDS, {"q": text})) == [cards[0]]


def test_several_cards_are_found_at_once(admin_client, cards):
    text = f"{cards[0].iccid}, {cards[2].iccid}；000"

    assert set(listed(admin_client.get(CARDS, {"q": text}))) == {cards[0], cards[2]}


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("text", ["000", "-", "x' OR 1=1", "%", "," * 50])
def test_what_is_no_number_finds_nothing(admin_client, text):
    assert listed(admin_client.get(CARDS, {"q": text})) == []


def test_more_numbers_than_are_searched_for_are_told(admin_client, cards, monkeypatch):
    monkeypatch.setattr(searching, "MOST_NUMBERS", 1)

    page = admin_client.get(CARDS, {"q": f"{cards[1].iccid},{cards[2].iccid}"})

    assert listed(page) == [cards[1]]
    assert "Only the first 1 of 2 numbers" in page.content.decode()


@pytest.mark.parametrize(
    ("chosen", "numbers"),
    [
        ({"status__exact": "suspended"}, [1]),
        ({"is_polled__exact": "1"}, [0, 1, 2]),
        ({"is_polled__exact": "0"}, []),
        ({"realname_verified__isnull": "True"}, [1, 2]),
        ({"package_state__exact": "covered"}, [0]),
        ({"usage": "decreased"}, []),
        ({"usage": "nonsense"}, [0, 1, 2]),
        ({"q": "8986", "status__exact": "active"}, [0]),
    ],
)
def test_cards_are_filtered(admin_client, cards, chosen, numbers):
    assert set(listed(admin_client.get(CARDS, chosen))) == {cards[number] for number in numbers}


def test_cards_are_filtered_by_account_and_package(admin_client, cards, make_carrier, make_card):
    other = make_card(make_carrier("other"))

    of_account = admin_client.get(CARDS, {"carrier__id__exact": other.carrier_id})
    of_package = admin_client.get(CARDS, {"package__id__exact": cards[0].package_id})

    assert (listed(of_account), listed(of_package)) == ([other], [cards[0]])


def test_cards_with_less_usage_than_before_are_found(admin_client, cards):
    Card.objects.filter(pk=cards[1].pk).update(usage_decreased_at=timezone.now())

    assert listed(admin_client.get(CARDS, {"usage": "decreased"})) == [cards[1]]


def queries_of(admin_client, url, asked=None):
    """The SQL that a page costs."""
    with CaptureQueriesContext(
        connection,
    ) as queries:
        assert admin_client.get(url, asked or {}).status_code == 200
    return [query["sql"] for query in queries]


@pytest.mark.parametrize("url", [CARDS, EVENTS, DAYS])
@pytest.mark.parametrize("asked", [{}, {"q": "8986"}])
def test_a_list_costs_the_same_however_many_rows_it_has(
    admin_client, carrier, make_card, url, asked
):
    costs = []
    for _ in range(2):
        for _ in range(10):
            card = make_card(carrier, package=None)
            CardEvent.objects.create(card=card, kind="status", new="active", at=timezone.now())
            DailyUsage.objects.create(card=card, day=date(2026, 12, 1))
        configuration.forget()
        costs.append(len(queries_of(admin_client, url, asked)))

    assert costs[0] == costs[1]
    assert costs[0] <= MOST_QUERIES


@pytest.mark.usefixtures("cards")
@pytest.mark.parametrize("asked", [{}, {"q": ICCID}, {"q": "8986"}, {"status__exact": "active"}])
def test_the_list_of_cards_never_counts_all_rows_nor_looks_into_numbers(admin_client, asked):
    for sql in queries_of(admin_client, CARDS, asked):
        assert " LIKE " not in sql
        assert "COUNT(" not in sql or "LIMIT" in sql


def test_a_capped_count_says_that_there_is_more(admin_client, carrier, make_card, monkeypatch):
    monkeypatch.setattr(pagination, "MOST_COUNTED", 3)
    for _ in range(4):
        make_card(carrier)

    text = admin_client.get(CARDS).content.decode()

    assert "more than 3 rows" in text
    assert "Select all cards that match (more than 3)" in text


@pytest.mark.parametrize("url", [EVENTS, DAYS])
def test_history_is_found_by_the_numbers_of_its_card(admin_client, cards, url):
    for card in cards:
        CardEvent.objects.create(card=card, kind="status", new="active", at=timezone.now())
        DailyUsage.objects.create(card=card, day=date(2026, 12, 1))

    found = listed(admin_client.get(url, {"q": "8986 0012 3456 7890 123"}))
    of_card = listed(admin_client.get(url, {"card": cards[1].pk}))

    assert [row.card for row in found] == [cards[0]]
    assert [row.card for row in of_card] == [cards[1]]


@pytest.mark.parametrize("chosen", ["x", "-1", "9" * 30, "²", "0"])
def test_history_of_no_card_is_empty(admin_client, cards, chosen):
    CardEvent.objects.create(card=cards[0], kind="status", new="active", at=timezone.now())

    assert listed(admin_client.get(EVENTS, {"card": chosen})) == []


def test_a_number_that_means_too_many_cards_is_told(admin_client, cards, monkeypatch):
    monkeypatch.setattr(searching, "MOST_CARDS", 2)
    CardEvent.objects.create(card=cards[0], kind="status", new="active", at=timezone.now())

    page = admin_client.get(EVENTS, {"q": "8986"})

    assert listed(page) == []
    assert "type more digits" in page.content.decode()


@pytest.mark.parametrize(
    ("kind", "old", "new", "shown"),
    [
        ("status", "active", "suspended", ["Active", "Suspended"]),
        ("status", "LOCKED_2", "<b>", ["LOCKED_2", "&lt;b&gt;"]),
        ("realname", "unverified", "verified", ["Not verified", "Verified"]),
        ("package_state", "covered", "exhausted", ["Covered", "Exhausted"]),
        ("usage_decrease", "1048576", "0", ["1 MB", "0 B"]),
        ("cycle", "2026-11-01", "2026-12-01", ["2026-11-01", "2026-12-01"]),
        ("cycle", "", "2026-12-01", ["–", "2026-12-01"]),
    ],
)
def test_a_change_is_shown_in_words(admin_client, cards, kind, old, new, shown):
    CardEvent.objects.create(card=cards[0], kind=kind, old=old, new=new, at=timezone.now())

    text = admin_client.get(EVENTS).content.decode()

    assert f'field-old_word">{shown[0]}<' in text
    assert f'field-new_word">{shown[1]}<' in text


def test_the_newest_rows_come_first(admin_client, cards):
    DailyUsage.objects.bulk_create(
        DailyUsage(card=cards[0], day=date(2026, 12, day)) for day in range(1, 5)
    )

    days = [row.day for row in listed(admin_client.get(DAYS))]

    assert all(later > earlier for later, earlier in pairwise(days))


@pytest.mark.usefixtures("cards")
def test_numbers_can_be_sorted_in_both_directions(admin_client):
    up = listed(admin_client.get(CARDS, {"o": "1"}))
    down = listed(admin_client.get(CARDS, {"o": "-1"}))

    assert [card.iccid for card in up] == sorted(card.iccid for card in down)
    assert up == down[::-1]
