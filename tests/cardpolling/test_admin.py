"""The admin of polling rules."""

import pytest
from django.urls import reverse

from cardpolling.admin import duration
from cardpolling.models import PollingConfig

ADD = reverse("admin:cardpolling_pollingconfig_add")
RULE = {
    "name": "rule",
    "is_active": "on",
    "rank": "1",
    "status": "active",
    "realname_verified": "unknown",
    "card_status_interval_s": "600",
    "cooldown_s": "0",
    "step_order": "package、carddata",
    "step_timeout_s": "10",
    "total_timeout_s": "30",
    "backoff_base_s": "60",
    "backoff_cap_s": "3600",
    "alert_after_failures": "3",
}


def test_a_rule_is_saved(admin_client):
    admin_client.post(ADD, RULE)

    rule = PollingConfig.objects.get(name="rule")
    assert (rule.card_status_interval_s, rule.carddata_interval_s) == (600, None)
    assert rule.step_order == ["package", "carddata"]


@pytest.mark.parametrize(
    "field", ["step_timeout_s", "total_timeout_s", "backoff_base_s", "card_status_interval_s"]
)
@pytest.mark.parametrize("value", ["0", "-1", "1000000000", "nan", "x"])
def test_nonsense_is_refused_with_a_reason(admin_client, field, value):
    response = admin_client.post(ADD, RULE | {field: value})

    assert response.context["adminform"].errors[field]


@pytest.mark.parametrize("field", ["step_timeout_s", "total_timeout_s", "step_order"])
def test_an_empty_limit_is_refused(admin_client, field):
    response = admin_client.post(ADD, RULE | {field: ""})

    assert response.context["adminform"].errors[field]


def test_the_list_shows_human_units(admin_client):
    page = admin_client.get(reverse("admin:cardpolling_pollingconfig_changelist"))

    assert page.status_code == 200
    assert "1 day" in page.content.decode()


@pytest.mark.parametrize(
    ("interval_s", "text"),
    [
        (None, "not polled"),
        (30, "30 s"),
        (90, "90 s"),
        (900, "15 min"),
        (7200, "2 h"),
        (172800, "2 days"),
    ],
)
def test_intervals_are_shown_in_the_largest_exact_unit(interval_s, text):
    assert duration(interval_s) == text
