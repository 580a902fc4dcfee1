"""Accounts, packages and cards: what the database accepts, and what forms say about it."""

from contextlib import nullcontext
from datetime import date

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError, connection

from carriers.models import Card, Carrier, DailyUsage, Package, RateLimitGroup


@pytest.mark.parametrize(
    "fields",
    [
        {"max_in_flight": 0},
        {"max_in_flight": 10**9},
        {"priority_ratio": -0.1},
        {"priority_ratio": 1.1},
    ],
)
def test_the_database_refuses_an_account_out_of_range(make_carrier, fields):
    with pytest.raises(IntegrityError):
        make_carrier(**fields)


@pytest.mark.parametrize("value", [0, -1, 10**9, float("nan")])
def test_the_database_refuses_a_limit_out_of_range(carrier, value):
    with pytest.raises(IntegrityError):
        RateLimitGroup.objects.create(carrier=carrier, name="query", max_per_second=value)


def test_a_limit_may_be_a_fraction(carrier):
    group = RateLimitGroup(
        carrier=carrier, name="query", max_per_second=0.5, operations=["card_status"]
    )

    group.full_clean()
    group.save()

    assert str(group) == "query: 0.5/s"


@pytest.mark.parametrize("value", [0, -1, 10**9, None])
def test_a_form_refuses_a_limit_out_of_range_with_a_reason(carrier, value):
    group = RateLimitGroup(carrier=carrier, name="q", max_per_second=value, operations=["resume"])

    with pytest.raises(ValidationError):
        group.full_clean()


@pytest.mark.parametrize("operations", ["card_status", [1], ["fly"], ["resume", "resume"], {}])
def test_operations_must_be_distinct_and_known(carrier, operations):
    group = RateLimitGroup(carrier=carrier, name="q", max_per_second=1, operations=operations)

    with pytest.raises(ValidationError) as raised:
        group.full_clean()

    assert "operations" in raised.value.message_dict


def test_two_groups_of_an_account_have_distinct_names(carrier):
    RateLimitGroup.objects.create(carrier=carrier, name="a", max_per_second=1)

    with pytest.raises(IntegrityError):
        RateLimitGroup.objects.create(carrier=carrier, name="a", max_per_second=2)


@pytest.mark.parametrize(
    "url",
    [
        "gateway.example.com",
        "ftp://gateway.example.com",
        "https://",
        "http://user:password@gateway",
        "http://host:port",
        "http://host:0",
        "http://ho st",
        "http://host/?a=b",
        "http://[::1",
    ],
)
def test_a_bad_gateway_url_is_refused(carrier, url):
    carrier.gateway_url = url

    with pytest.raises(ValidationError) as raised:
        carrier.full_clean()

    assert list(raised.value.message_dict) == ["gateway_url"]


@pytest.mark.parametrize(
    "url", ["http://127.0.0.1:8900", "https://gateway.example.com/api/", "http://gateway:80"]
)
def test_a_gateway_url_loses_its_trailing_slash(carrier, url):
    carrier.gateway_url = url

    carrier.full_clean()

    assert carrier.gateway_url == url.rstrip("/")


@pytest.mark.parametrize("code", ["", "a b", "ä", "a\nb", "-a", "a" * 65])
def test_a_code_must_fit_into_a_header(carrier, code):
    carrier.code = code

    with pytest.raises(ValidationError):
        carrier.full_clean()


@pytest.mark.parametrize(
    ("iccid", "is_valid"),
    [
        ("898600000000000000", True),
        ("89860000000000000000", True),
        ("8986000000000000000F", True),
        ("8986000000000000000f", False),
        ("89860000000000000", False),
        ("898600000000000000000", False),
        ("89860000000F00000000", False),
        ("８９８６00000000000000", False),
        ("", False),
    ],
)
def test_an_iccid_has_18_to_20_digits_the_last_may_be_f(carrier, iccid, is_valid):
    card = Card(carrier=carrier, iccid=iccid)

    with nullcontext() if is_valid else pytest.raises(ValidationError, match="iccid"):
        card.full_clean()


def test_an_iccid_is_unique(make_card, make_carrier):
    make_card(make_carrier("a"), iccid="898600000000000000")

    with pytest.raises(IntegrityError):
        make_card(make_carrier("b"), iccid="898600000000000000")


def test_usage_is_never_negative(make_card, carrier):
    with pytest.raises(IntegrityError):
        make_card(carrier, used_bytes=-1)


@pytest.mark.parametrize("allowance", [0, -1])
def test_a_package_allows_something(db, allowance):
    with pytest.raises(IntegrityError):
        Package.objects.create(name="none", allowance_bytes=allowance)


def test_a_day_of_a_card_has_one_row(make_card, carrier):
    card = make_card(carrier)
    DailyUsage.objects.create(card=card, day=date(2026, 12, 1), used_bytes=1)

    with pytest.raises(IntegrityError):
        DailyUsage.objects.create(card=card, day=date(2026, 12, 1), used_bytes=1)


def test_the_account_table_has_its_name(carrier):
    assert Carrier._meta.db_table == "tb_carrier"
    assert "tb_carrier" in connection.introspection.table_names()


def test_a_card_remembers_when_it_was_added(make_card, carrier):
    card = make_card(carrier)

    assert Card.objects.get(pk=card.pk).created_at is not None


def test_no_model_change_lacks_a_migration(db):
    from django.core.management import call_command

    call_command("makemigrations", "carriers", "cardpolling", check=True, dry_run=True, verbosity=0)
