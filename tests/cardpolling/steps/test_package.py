"""Step ``package``: judged from what is known."""

from datetime import timedelta

import pytest

from cardpolling import clock
from cardpolling.checktypes import CheckType
from cardpolling.results import FollowUp, Outcome


@pytest.mark.parametrize(
    ("facts", "state"),
    [
        pytest.param({}, "none", id="a card without package has none"),
        pytest.param({"allowance_bytes": 501}, "covered", id="less than the allowance is covered"),
        pytest.param({"allowance_bytes": 500}, "exhausted", id="the whole of it is too much"),
        pytest.param(
            {"allowance_bytes": 500, "used_bytes": None}, "unknown", id="no usage says nothing"
        ),
    ],
)
def test_the_package_is_judged_without_a_call(check, make_facts, simulator, facts, state):
    result = check(CheckType.PACKAGE, make_facts(**facts))

    assert result.outcome is Outcome.SUCCESS
    assert result.facts == {"package_state": state}
    assert result.seen == state
    assert not simulator.calls


def test_a_used_up_package_suspends_the_card(check, make_facts, simulator):
    facts = make_facts(allowance_bytes=500, package_action="suspend")

    result = check(CheckType.PACKAGE, facts)

    assert [call.operation for call in simulator.calls] == ["suspend"]
    assert result.follow_up == FollowUp(CheckType.CARD_STATUS, (30, 60, 300), "suspended")


def test_a_card_is_never_suspended_on_a_stale_fact(check, make_facts, simulator):
    checked_at = clock.now() - timedelta(hours=2)
    facts = make_facts(allowance_bytes=500, package_action="suspend", usage_checked_at=checked_at)

    result = check(CheckType.PACKAGE, facts)

    assert not simulator.calls
    assert result.follow_up is None


def test_a_refused_suspension_is_a_failure_of_the_check(check, make_facts, simulator):
    simulator.set_faults("code_1002")
    facts = make_facts(allowance_bytes=500, package_action="suspend")

    result = check(CheckType.PACKAGE, facts)

    assert (result.outcome, result.category) == (Outcome.FAILED, "provider")
