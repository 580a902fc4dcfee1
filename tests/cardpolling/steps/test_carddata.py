"""Step ``carddata``: usage, and the package along with it."""

from datetime import date

import pytest

from cardpolling.checktypes import CheckType
from cardpolling.results import FollowUp, Outcome

CYCLE = date(2026, 11, 27)


@pytest.fixture
def use(make_facts, simulator):
    """Let the simulated card have used so much."""

    def set_usage(used_bytes, cycle_start=CYCLE):
        simulator.set_card(make_facts().iccid, used_bytes=used_bytes, cycle_start=cycle_start)

    return set_usage


def operations(simulator):
    return [call.operation for call in simulator.calls]


def test_the_usage_is_found_and_the_package_judged(check, make_facts, use):
    use(600)

    result = check(CheckType.CARDDATA, make_facts(allowance_bytes=1000))

    assert result.outcome is Outcome.SUCCESS
    assert result.facts == {"used_bytes": 600, "cycle_start": CYCLE, "package_state": "covered"}
    assert result.package_evaluated


def test_a_card_without_package_has_none(check, make_facts, use):
    use(600)

    assert check(CheckType.CARDDATA, make_facts()).facts["package_state"] == "none"


def test_a_used_up_package_suspends_the_card_and_watches_for_the_effect(
    check, make_facts, use, simulator
):
    use(1000)

    result = check(CheckType.CARDDATA, make_facts(allowance_bytes=1000, package_action="suspend"))

    assert operations(simulator) == ["carddata", "suspend"]
    assert result.package_evaluated
    assert result.follow_up == FollowUp(CheckType.CARD_STATUS, (30, 60, 300), "suspended")


@pytest.mark.parametrize(
    "facts",
    [
        pytest.param({"package_action": "none"}, id="the package asks for nothing"),
        pytest.param({"status": "suspended"}, id="the card is suspended already"),
        pytest.param({"status": "unknown"}, id="nobody knows whether the card is active"),
    ],
)
def test_a_card_is_left_alone_where(check, make_facts, use, simulator, facts):
    use(1000)
    facts = {"package_action": "suspend"} | facts

    result = check(CheckType.CARDDATA, make_facts(allowance_bytes=1000, **facts))

    assert operations(simulator) == ["carddata"]
    assert result.follow_up is None


def test_a_refused_suspension_leaves_the_package_to_its_own_step(check, make_facts, use, simulator):
    use(1000)
    simulator.set_card(make_facts().iccid, status="deactivated")

    result = check(CheckType.CARDDATA, make_facts(allowance_bytes=1000, package_action="suspend"))

    assert operations(simulator) == ["carddata", "suspend"]
    assert result.outcome is Outcome.SUCCESS
    assert result.facts["used_bytes"] == 1000
    assert not result.package_evaluated


def test_usage_that_went_down_within_a_cycle_is_not_believed(check, make_facts, use):
    use(100)

    result = check(CheckType.CARDDATA, make_facts(used_bytes=900, allowance_bytes=800))

    assert result.facts["package_state"] == "exhausted"


def test_usage_of_a_new_cycle_is_believed(check, make_facts, use):
    use(100, date(2026, 12, 27))

    result = check(CheckType.CARDDATA, make_facts(used_bytes=900, allowance_bytes=800))

    assert result.facts["package_state"] == "covered"


def test_a_gateways_failure_is_a_result_and_judges_nothing(check, make_facts, simulator):
    simulator.set_faults("negative_usage")

    result = check(CheckType.CARDDATA, make_facts(allowance_bytes=1000))

    assert (result.outcome, result.category) == (Outcome.FAILED, "bad_response")
    assert not result.package_evaluated
