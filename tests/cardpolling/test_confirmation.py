"""Confirmation: what each success means while an expected result is pending."""

import pytest

from cardpolling import confirmation
from cardpolling.confirmation import Progress, Verdict


@pytest.mark.parametrize(
    ("delays_s", "expected", "seen", "progress"),
    [
        pytest.param((), "", "active", Progress(Verdict.NONE), id="nothing is pending"),
        pytest.param(
            (30, 60),
            "suspended",
            "suspended",
            Progress(Verdict.SEEN),
            id="the expected result ends it at once",
        ),
        pytest.param(
            (30, 60, 300),
            "suspended",
            "active",
            Progress(Verdict.WAITING, 30, (60, 300)),
            id="another result takes the first delay",
        ),
        pytest.param(
            (300,),
            "suspended",
            "active",
            Progress(Verdict.WAITING, 300, ()),
            id="the last delay is taken like any other",
        ),
        pytest.param(
            (),
            "suspended",
            "suspended",
            Progress(Verdict.SEEN),
            id="the expected result is seen after the last delay",
        ),
        pytest.param(
            (),
            "suspended",
            "active",
            Progress(Verdict.FAILED),
            id="it fails when the delays are used up",
        ),
        pytest.param(
            (30,),
            "",
            "active",
            Progress(Verdict.WAITING, 30, ()),
            id="without an expected result the check is repeated all the same",
        ),
        pytest.param(
            (30,),
            "",
            "",
            Progress(Verdict.WAITING, 30, ()),
            id="an empty result is never the expected one",
        ),
    ],
)
def test_progress_of_a_confirmation(delays_s, expected, seen, progress):
    assert confirmation.progress(delays_s, expected, seen=seen) == progress


@pytest.mark.parametrize(
    ("delays_s", "expected", "pending"),
    [((), "", False), ((30,), "", True), ((), "suspended", True), ((30,), "suspended", True)],
)
def test_a_confirmation_is_pending_while_delays_or_an_expected_result_are_left(
    delays_s, expected, pending
):
    assert confirmation.is_pending(delays_s, expected) is pending


def test_delays_are_written_as_the_request_wrote_them():
    assert confirmation.delays_text((30, 60, 300)) == "30,60,300"
