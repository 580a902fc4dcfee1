"""The admin's page of a card: what is known of it, and editing it."""

from datetime import date, timedelta

import pytest
from django.urls import reverse
from django.utils import timezone

from cardpolling.keys import AccountKeys
from cardpolling.models import PollingConfig
from carriers.admin import facts
from carriers.models import Card, CardEvent, DailyUsage, Package

ADD = reverse("admin:carriers_card_add")
ICCID = "8986001234567890123"
NOW = timezone.now()


def page_of(card):
    return reverse("admin:carriers_card_change", args=(card.pk,))


@pytest.fixture
def card(client, carrier, make_card):
    """A card under polling."""
    return make_card(carrier, iccid=ICCID)


@pytest.fixture
def written(carrier):
    """What somebody typed into the form of a card."""
    return {
        "carrier": carrier.pk,
        "iccid": " 8986 0012-3456 7890 123 ",
        "msisdn": "+86 138-0013 8000",
        "imsi": "",
        "package": "",
        "is_polled": "on",
    }


@pytest.fixture
def committed(django_capture_on_commit_callbacks):
    """A block after which its transaction counts as committed."""
    return lambda: django_capture_on_commit_callbacks(execute=True)


def test_a_card_is_added_and_enrolled(admin_client, client, committed, written, carrier):
    with committed():
        admin_client.post(ADD, written)

    card = Card.objects.get()
    assert (card.iccid, card.msisdn) == (ICCID, "8613800138000")
    assert client.zscore(AccountKeys(carrier.pk).queue, card.pk) is not None


@pytest.mark.parametrize(
    ("field", "typed", "reason"),
    [
        ("iccid", "12345", "18 to 20 digits"),
        ("iccid", "", "required"),
        ("msisdn", "abc", "Use digits only"),
        ("imsi", "1" * 16, "At most 15 digits"),
        ("carrier", "", "required"),
    ],
)
def test_nonsense_is_refused_and_stays_in_the_form(admin_client, written, field, typed, reason):
    page = admin_client.post(ADD, written | {field: typed})

    text = page.content.decode()
    assert reason in text
    assert f'value="{written["msisdn"] if field != "msisdn" else typed}"' in text
    assert not Card.objects.exists()


@pytest.mark.usefixtures("card")
@pytest.mark.parametrize("typed", [ICCID, f"{ICCID}F"])
def test_a_card_that_stands_there_already_is_refused(admin_client, written, typed):
    page = admin_client.post(ADD, written | {"iccid": typed})

    assert page.context["adminform"].errors["iccid"]


def test_a_card_that_is_switched_off_or_moved_leaves_its_queue(
    admin_client, client, committed, card, written, make_carrier
):
    other = make_carrier("other")
    with committed():
        card.save()
        admin_client.post(page_of(card), written | {"carrier": other.pk})
    moved = client.zscore(AccountKeys(other.pk).queue, card.pk)
    with committed():
        del written["is_polled"]
        admin_client.post(page_of(card), written | {"carrier": other.pk})

    assert moved is not None
    assert client.zscore(AccountKeys(other.pk).queue, card.pk) is None


def test_facts_cannot_be_written(admin_client, card, written):
    admin_client.post(page_of(card), written | {"status": "suspended", "used_bytes": "1"})

    card.refresh_from_db()
    assert (card.status, card.used_bytes) == ("unknown", None)


def test_facts_are_shown_with_age_and_origin(admin_client, card):
    Card.objects.filter(pk=card.pk).update(
        status="unknown",
        raw_status="<LOCKED>",
        status_checked_at=NOW - timedelta(days=9),
        used_bytes=1024,
        cycle_start=date(2026, 12, 1),
        usage_checked_at=NOW - timedelta(minutes=3),
    )

    text = admin_client.get(page_of(card)).content.decode().replace("\xa0", " ")

    assert "“&lt;LOCKED&gt;”" in text
    assert "stale: 1 week ago" in text
    assert "1 KB (since 2026-12-01)" in text
    assert "3 minutes ago" in text
    assert "never seen" in text


def test_history_and_usage_are_shown_and_linked(admin_client, card):
    CardEvent.objects.create(card=card, kind="status", old="active", new="suspended", at=NOW)
    DailyUsage.objects.create(card=card, day=date(2026, 12, 1), used_bytes=3 * 1024)

    text = admin_client.get(page_of(card)).content.decode()

    assert "Active → Suspended" in text
    assert "3 KB" in text
    for name in ("cardevent", "dailyusage"):
        assert f"{reverse(f'admin:carriers_{name}_changelist')}?card={card.pk}" in text


def test_a_page_without_history_says_so(admin_client, card):
    text = admin_client.get(page_of(card)).content.decode()

    assert "No change has been seen yet." in text
    assert "No usage has been read yet." in text


@pytest.mark.parametrize(
    ("switch", "told"),
    [
        (lambda _card: None, "Default"),
        (lambda card: Card.objects.filter(pk=card.pk).update(is_polled=False), "Not under polling"),
        (lambda card: type(card.carrier).objects.update(is_enabled=False), "account is disabled"),
        (lambda _card: PollingConfig.objects.all().delete(), "no configuration matches"),
    ],
)
def test_the_page_says_by_what_the_card_is_polled(admin_client, card, switch, told):
    switch(card)

    assert told in admin_client.get(page_of(card)).content.decode()


def test_the_page_of_a_card_that_is_gone_leads_back(admin_client, card):
    page = admin_client.get(reverse("admin:carriers_card_change", args=(card.pk + 1,)))

    assert page.status_code == 302


@pytest.mark.parametrize(
    ("age", "interval_s", "expected"),
    [
        pytest.param(timedelta(seconds=119), 60, False, id="one check may be late"),
        pytest.param(timedelta(seconds=121), 60, True, id="two checks were missed"),
        pytest.param(timedelta(hours=23), None, False, id="not polled, of today"),
        pytest.param(timedelta(hours=25), None, True, id="not polled, of yesterday"),
        pytest.param(timedelta(seconds=-30), 60, False, id="another host's clock is ahead"),
    ],
)
def test_a_fact_is_stale_when_checks_were_missed(age, interval_s, expected):
    assert facts.is_stale(NOW - age, interval_s, NOW) is expected


@pytest.mark.parametrize(
    ("age", "words"),
    [
        (timedelta(seconds=-30), "just now"),
        (timedelta(seconds=59), "just now"),
        (timedelta(seconds=61), "1 minute ago"),
        (timedelta(hours=5), "5 hours ago"),
        (timedelta(days=400), "1 year ago"),
    ],
)
def test_ages_are_told_in_words(age, words):
    assert facts.age(NOW - age, NOW).replace("\xa0", " ") == words


def test_usage_that_went_down_is_marked(carrier):
    card = Card(carrier=carrier, package=Package(allowance_bytes=2048), used_bytes=1024)
    card.usage_decreased_at = NOW

    text = facts.usage(card)

    assert "1 KB of 2 KB" in text
    assert "went down" in text
