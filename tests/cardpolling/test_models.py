"""Polling rules: what the database accepts, and what forms say about it."""

import pytest
from django.core.exceptions import ValidationError
from django.db import IntegrityError

from cardpolling.models import PollingConfig

TIMEOUTS = ["step_timeout_s", "total_timeout_s"]
RANGED = [
    *TIMEOUTS,
    "backoff_base_s",
    "backoff_cap_s",
    "alert_after_failures",
    "card_status_interval_s",
    "carddata_interval_s",
    "realname_interval_s",
    "package_interval_s",
]


def test_a_default_rule_polls_every_card(db):
    config = PollingConfig.objects.get()

    assert (config.is_active, config.carrier, config.status, config.realname_verified) == (
        True,
        None,
        "",
        None,
    )
    assert (config.card_status_interval_s, config.realname_interval_s) == (3600, 86400)
    config.full_clean()


@pytest.mark.parametrize("field", RANGED)
@pytest.mark.parametrize("value", [0, -1, 10**9])
def test_a_form_refuses_a_value_out_of_range_with_a_reason(db, field, value):
    config = PollingConfig(name="rule", **{field: value})

    with pytest.raises(ValidationError) as raised:
        config.full_clean()

    assert field in raised.value.message_dict


@pytest.mark.parametrize("field", RANGED)
@pytest.mark.parametrize("value", [0, -1, 10**9])
def test_the_database_refuses_a_value_out_of_range(db, field, value):
    with pytest.raises(IntegrityError):
        PollingConfig.objects.create(name="rule", **{field: value})


@pytest.mark.parametrize("field", [*TIMEOUTS, "backoff_base_s", "backoff_cap_s", "cooldown_s"])
def test_an_empty_limit_is_refused(db, field):
    config = PollingConfig(name="rule", **{field: None})

    with pytest.raises(ValidationError) as raised:
        config.full_clean()

    assert field in raised.value.message_dict


def test_an_empty_interval_means_not_polled(db):
    PollingConfig(name="rule").full_clean()


def test_the_total_timeout_covers_one_step(db):
    config = PollingConfig(name="rule", step_timeout_s=20, total_timeout_s=10)

    with pytest.raises(ValidationError, match="total timeout"):
        config.full_clean()


def test_the_cap_is_not_below_the_base(db):
    config = PollingConfig(name="rule", backoff_base_s=60, backoff_cap_s=30)

    with pytest.raises(ValidationError, match="cap"):
        config.full_clean()


@pytest.mark.parametrize("order", ["package", [1], ["fly"], ["package", "package"], None])
def test_the_order_names_distinct_check_types(db, order):
    config = PollingConfig(name="rule", step_order=order)

    with pytest.raises(ValidationError) as raised:
        config.full_clean()

    assert "step_order" in raised.value.message_dict
