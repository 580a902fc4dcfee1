"""Judging packages: what is covered, and when a card may be suspended."""

from datetime import UTC, date, datetime, timedelta

import pytest

from carriers import packages

NOW = datetime(2026, 12, 1, 0, 30, tzinfo=UTC)
ALLOWANCE = 1024 * 1024 * 1024
FRESH = {
    "allowance_bytes": ALLOWANCE,
    "used_bytes": ALLOWANCE,
    "cycle_start": date(2026, 11, 1),
    "usage_checked_at": NOW,
    "now": NOW,
}


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        pytest.param({"used_bytes": 1_073_741_823}, "covered", id="one byte left of 1,024 MB"),
        pytest.param({"used_bytes": 1_073_741_824}, "exhausted", id="1,024 MB to the byte"),
        pytest.param({"used_bytes": 0}, "covered", id="nothing used"),
        pytest.param({"allowance_bytes": None}, "none", id="no package"),
        pytest.param({"used_bytes": None}, "unknown", id="usage never read"),
        pytest.param({"usage_checked_at": None}, "unknown", id="no one knows when usage was read"),
        pytest.param(
            {"usage_checked_at": NOW - timedelta(hours=1)}, "exhausted", id="usage of an hour ago"
        ),
        pytest.param(
            {"usage_checked_at": NOW - timedelta(days=2)}, "unknown", id="usage of two days ago"
        ),
    ],
)
def test_the_package_state(facts, state):
    assert packages.evaluate(**FRESH | facts) == state


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        pytest.param({}, True, id="exhausted just now"),
        pytest.param({"usage_checked_at": NOW - timedelta(minutes=4)}, True, id="minutes ago"),
        pytest.param(
            {"usage_checked_at": NOW - timedelta(minutes=45)}, False, id="usage of the old cycle"
        ),
        pytest.param({"usage_checked_at": None}, False, id="never read"),
        pytest.param({"usage_checked_at": NOW + timedelta(hours=1)}, False, id="from the future"),
        pytest.param({"cycle_start": None}, False, id="nobody knows which cycle"),
        pytest.param({"used_bytes": ALLOWANCE - 1}, False, id="not exhausted"),
        pytest.param({"allowance_bytes": None}, False, id="no package"),
    ],
)
def test_a_card_is_suspended_on_fresh_facts_only(facts, expected):
    assert packages.may_suspend(**FRESH | facts) is expected
