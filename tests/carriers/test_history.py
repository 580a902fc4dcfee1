"""What new facts of a card mean."""

from datetime import UTC, date, datetime, timedelta, timezone

import pytest

from carriers.history import Event, UsageBooking, changes
from carriers.models import Card

AT = datetime(2026, 12, 1, 10, tzinfo=UTC)
EARLIER = AT - timedelta(hours=1)
NOVEMBER, DECEMBER = date(2026, 11, 1), date(2026, 12, 1)
MB = 1024 * 1024


def known_card(**facts):
    """A card whose facts were all read an hour ago."""
    return Card(
        **{
            "status": "active",
            "raw_status": "active",
            "status_checked_at": EARLIER,
            "realname_verified": True,
            "realname_checked_at": EARLIER,
            "used_bytes": 900 * MB,
            "cycle_start": NOVEMBER,
            "usage_checked_at": EARLIER,
            "package_state": "covered",
            "package_checked_at": EARLIER,
        }
        | facts
    )


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param(
            {"status": "suspended", "raw_status": "suspended", "is_online": False},
            Event("status", "active", "suspended", AT, "card_status"),
            id="a new status",
        ),
        pytest.param(
            {"status": "unknown", "raw_status": "frozen", "is_online": None},
            Event("status", "active", "frozen", AT, "card_status"),
            id="a status word nobody knows is kept as it came",
        ),
        pytest.param(
            {"realname_verified": False},
            Event("realname", "verified", "unverified", AT, "realname"),
            id="a verification withdrawn",
        ),
        pytest.param(
            {"realname_verified": None},
            Event("realname", "verified", "", AT, "realname"),
            id="a verification no longer known",
        ),
        pytest.param(
            {"package_state": "exhausted"},
            Event("package_state", "covered", "exhausted", AT, "package"),
            id="a package used up",
        ),
        pytest.param(
            {"used_bytes": MB, "cycle_start": DECEMBER},
            Event("cycle", "2026-11-01", "2026-12-01", AT, "carddata"),
            id="a new billing cycle",
        ),
        pytest.param(
            {"used_bytes": 899 * MB, "cycle_start": NOVEMBER},
            Event("usage_decrease", str(900 * MB), str(899 * MB), AT, "carddata"),
            id="less usage within a cycle",
        ),
    ],
)
def test_a_change_makes_one_event(facts, expected):
    assert changes(known_card(), facts, AT).events == [expected]


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"status": "active", "raw_status": "active"}, id="status"),
        pytest.param({"realname_verified": True}, id="verification"),
        pytest.param({"package_state": "covered"}, id="package"),
        pytest.param({"used_bytes": 900 * MB, "cycle_start": NOVEMBER}, id="usage"),
        pytest.param({"used_bytes": 901 * MB, "cycle_start": NOVEMBER}, id="more usage"),
    ],
)
def test_facts_that_stay_make_no_event(facts):
    assert changes(known_card(), facts, AT).events == []


def test_a_first_reading_makes_no_event():
    facts = {
        "status": "active",
        "realname_verified": True,
        "package_state": "covered",
        "used_bytes": 5,
        "cycle_start": NOVEMBER,
    }

    found = changes(Card(), facts, AT)

    assert found.events == []
    assert found.usage == UsageBooking(AT.date(), 5)


def test_the_time_of_each_fact_is_set():
    facts = {
        "status": "active",
        "realname_verified": True,
        "package_state": "covered",
        "used_bytes": 901 * MB,
        "cycle_start": NOVEMBER,
    }

    updates = changes(known_card(), facts, AT).updates

    checked = {"status_checked_at", "realname_checked_at", "usage_checked_at", "package_checked_at"}
    assert {name: updates[name] for name in checked} == dict.fromkeys(checked, AT)


def test_updates_are_fields_of_the_card():
    facts = {"status": "x", "realname_verified": True, "package_state": "x", "used_bytes": 1}

    updates = changes(Card(), facts, AT).updates

    assert set(updates) <= {field.attname for field in Card._meta.get_fields() if field.concrete}


@pytest.mark.parametrize(
    ("stored", "facts", "booked"),
    [
        pytest.param({}, (910, NOVEMBER), 10, id="the difference"),
        pytest.param({}, (1, DECEMBER), 1, id="a new cycle starts from nothing"),
        pytest.param({}, (950, DECEMBER), 950, id="a new cycle with more than the old one"),
        pytest.param({}, (910, None), 10, id="no cycle named: the known one goes on"),
        pytest.param({"cycle_start": None}, (910, NOVEMBER), 10, id="the first cycle named"),
        pytest.param({"used_bytes": None}, (7, NOVEMBER), 7, id="the first reading"),
        pytest.param({}, (899, NOVEMBER), None, id="a decrease is not booked"),
        pytest.param({}, (5, date(2026, 10, 1)), None, id="a cycle before the stored one"),
        pytest.param({}, (900, NOVEMBER), None, id="nothing used, and the day has its row"),
        pytest.param(
            {"usage_checked_at": AT - timedelta(days=1)}, (900, NOVEMBER), 0, id="first of the day"
        ),
    ],
)
def test_usage_is_booked(stored, facts, booked):
    card = known_card(**({"used_bytes": 900 * MB} | stored))
    used, cycle_start = facts

    found = changes(card, {"used_bytes": used * MB, "cycle_start": cycle_start}, AT)

    assert (found.usage.used_bytes if found.usage else None) == (
        None if booked is None else booked * MB
    )


def test_a_decrease_keeps_the_good_fact_and_its_age():
    found = changes(known_card(), {"used_bytes": 5, "cycle_start": NOVEMBER}, AT)

    assert found.updates == {"usage_decreased_at": AT}


def test_a_decrease_is_flagged_once():
    card = known_card(usage_decreased_at=EARLIER)

    found = changes(card, {"used_bytes": 5, "cycle_start": NOVEMBER}, AT)

    assert (found.events, found.updates) == ([], {})


def test_a_counter_that_caught_up_books_only_what_is_new():
    card = known_card(usage_decreased_at=EARLIER)

    found = changes(card, {"used_bytes": 901 * MB, "cycle_start": NOVEMBER}, AT)

    assert found.usage == UsageBooking(AT.date(), MB)
    assert found.updates["usage_decreased_at"] is None


def test_late_facts_are_dropped():
    facts = {
        "status": "suspended",
        "realname_verified": False,
        "used_bytes": 1,
        "package_state": "x",
    }

    found = changes(known_card(), facts, EARLIER - timedelta(seconds=1))

    assert (found.updates, found.events, found.usage) == ({}, [], None)


def test_usage_is_booked_on_the_day_of_the_zone():
    evening = datetime(2026, 12, 1, 20, tzinfo=UTC)

    found = changes(
        known_card(), {"used_bytes": 901 * MB}, evening, zone=timezone(timedelta(hours=8))
    )

    assert found.usage.day == date(2026, 12, 2)


def test_the_source_can_be_named():
    found = changes(known_card(), {"status": "suspended"}, AT, source="alice")

    assert found.events[0].source == "alice"


def test_a_status_word_is_made_fit_for_the_database():
    raw = changes(Card(), {"status": "unknown", "raw_status": "a\0" + "b" * 500}, AT).updates[
        "raw_status"
    ]

    assert raw == "a" + "b" * 99
