"""Configuration: which rules hold for a card, and how fresh they are."""

import pytest
from django.db import DatabaseError, connection

from cardpolling import configuration
from cardpolling.checktypes import DEFAULT_STEP_ORDER, CheckType
from cardpolling.errors import ConfigurationUnavailable
from cardpolling.models import PollingConfig


@pytest.fixture(autouse=True)
def _no_configuration(db):
    PollingConfig.objects.all().delete()
    configuration.forget()
    yield
    configuration.forget()


def make_config(name, **fields):
    fields = {"card_status_interval_s": 600} | fields
    return PollingConfig.objects.create(name=name, **fields)


def match(carrier_id=1, status="active", realname_verified=True):
    rules = configuration.current().match(carrier_id, status, realname_verified)
    return rules and rules.name


def test_without_a_configuration_nothing_is_polled():
    assert match() is None


def test_the_lowest_rank_that_fits_wins():
    make_config("last", rank=3)
    make_config("first", rank=1)
    make_config("second", rank=2)

    assert match() == "first"


def test_of_equal_ranks_the_older_wins():
    make_config("older", rank=1)
    make_config("newer", rank=1)

    assert match() == "older"


def test_an_inactive_configuration_matches_nothing():
    make_config("off", is_active=False)

    assert match() is None


@pytest.mark.parametrize(
    ("fields", "card", "fits"),
    [
        pytest.param({"status": "active"}, {"status": "active"}, True, id="its status"),
        pytest.param({"status": "active"}, {"status": "suspended"}, False, id="another status"),
        pytest.param(
            {"realname_verified": False}, {"realname_verified": False}, True, id="unverified"
        ),
        pytest.param(
            {"realname_verified": False}, {"realname_verified": None}, False, id="not known yet"
        ),
        pytest.param({}, {"realname_verified": None, "status": "unknown"}, True, id="any card"),
    ],
)
def test_a_match_rule_that_is_set_must_hold(fields, card, fits):
    make_config("rule", **fields)

    assert (match(**card) == "rule") is fits


def test_a_rule_of_one_account_is_for_its_cards_only(make_carrier):
    own, other = make_carrier(), make_carrier()
    make_config("own", carrier=own)

    assert match(own.pk) == "own"
    assert match(other.pk) is None


def test_the_first_match_stands_even_if_it_polls_nothing():
    make_config("never", rank=1, card_status_interval_s=None)
    make_config("always", rank=2)

    assert match() is None


def test_only_types_with_an_interval_are_polled():
    row = make_config("some", realname_interval_s=86_400)

    rules = configuration.rules_of(row)

    assert rules.intervals_s == {CheckType.CARD_STATUS: 600, CheckType.REALNAME: 86_400}
    assert rules.polled_types == (CheckType.CARD_STATUS, CheckType.REALNAME)


@pytest.mark.parametrize(
    ("written", "order"),
    [
        (["realname"], ("realname", "card_status", "carddata", "package")),
        (["package", "no such", "package", 7, None], ("package", *DEFAULT_STEP_ORDER[:3])),
        ([], DEFAULT_STEP_ORDER),
        ({"not": "a list"}, DEFAULT_STEP_ORDER),
    ],
)
def test_a_step_order_of_any_shape_gives_every_type_once(written, order):
    row = make_config("ordered", step_order=written)

    assert configuration.rules_of(row).step_order == order


def test_the_snapshot_is_read_once_and_then_kept(django_assert_num_queries):
    make_config("kept")

    with django_assert_num_queries(1):
        for _ in range(100):
            match()


def test_while_sql_is_away_the_last_configuration_stays_in_force(monkeypatch):
    make_config("last known")
    match()
    monkeypatch.setattr(configuration, "FRESH_FOR_S", 0.0)

    with connection.execute_wrapper(_sql_is_away):
        assert match() == "last known"


def test_sql_that_was_never_there_is_told():
    with connection.execute_wrapper(_sql_is_away), pytest.raises(ConfigurationUnavailable):
        configuration.current()


def _sql_is_away(*_args):
    raise DatabaseError("connection refused")
