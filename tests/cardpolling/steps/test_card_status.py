"""Step ``card_status``."""

import pytest

from cardpolling.checktypes import CheckType
from cardpolling.results import Outcome


def test_the_status_is_found(check, make_facts, simulator):
    simulator.set_card(make_facts().iccid, status="suspended", online=False)

    result = check(CheckType.CARD_STATUS, make_facts())

    assert result.outcome is Outcome.SUCCESS
    assert result.facts == {"status": "suspended", "raw_status": "suspended", "is_online": False}
    assert result.seen == "suspended"


def test_a_word_never_seen_before_is_kept_as_it_came(check, make_facts, simulator):
    simulator.set_card(make_facts().iccid, status="hibernating")

    result = check(CheckType.CARD_STATUS, make_facts())

    assert (result.facts["status"], result.facts["raw_status"]) == ("unknown", "hibernating")


@pytest.mark.parametrize(
    ("fault", "outcome", "category"),
    [
        ("http500_html", Outcome.FAILED, "http"),
        ("truncated_json", Outcome.FAILED, "bad_response"),
        ("code_1001", Outcome.FAILED, "provider"),
        ("code_1003", Outcome.FAILED, "auth"),
        ("code_1004", Outcome.PROVIDER_RATE_LIMITED, "provider_rate_limited"),
    ],
)
def test_a_gateways_failure_is_a_result(check, make_facts, simulator, fault, outcome, category):
    simulator.set_faults(fault)

    result = check(CheckType.CARD_STATUS, make_facts())

    assert (result.outcome, result.category) == (outcome, category)
    assert not result.facts


def test_a_throttling_gateway_says_for_how_long(check, make_facts, simulator):
    simulator.set_faults("code_1004_retry")

    assert check(CheckType.CARD_STATUS, make_facts()).retry_after_ms > 0


def test_a_providers_error_keeps_its_code_and_message(check, make_facts, simulator):
    simulator.set_faults("business_chinese")

    result = check(CheckType.CARD_STATUS, make_facts())

    assert result.provider_code
    assert result.message
