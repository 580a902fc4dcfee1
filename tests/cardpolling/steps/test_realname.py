"""Step ``realname``."""

import pytest

from cardpolling.checktypes import CheckType
from cardpolling.results import Outcome


@pytest.mark.parametrize(("verified", "seen"), [(True, "verified"), (False, "unverified")])
def test_the_verification_is_found(check, make_facts, simulator, verified, seen):
    simulator.set_card(make_facts().iccid, verified=verified)

    result = check(CheckType.REALNAME, make_facts())

    assert result.outcome is Outcome.SUCCESS
    assert result.facts == {"realname_verified": verified}
    assert result.seen == seen


def test_a_gateways_failure_is_a_result(check, make_facts, simulator):
    simulator.set_faults("http502_html")

    assert check(CheckType.REALNAME, make_facts()).outcome is Outcome.FAILED
