"""Planning: every row of the table of design section 7, and what surrounds it."""

from collections import Counter
from dataclasses import replace

import pytest

from cardpolling import planning
from cardpolling.checktypes import DEFAULT_STEP_ORDER, CheckType
from cardpolling.due import DueEntry, Guarded
from cardpolling.planning import EventKind, PlanEvent
from cardpolling.results import Outcome, StepResult
from cardpolling.rules import Rules

NOW_MS = 1_764_547_200_000
STATUS = CheckType.CARD_STATUS
USAGE = CheckType.CARDDATA
PACKAGE = CheckType.PACKAGE
RULES = Rules(
    config_id=1,
    name="default",
    intervals_s={STATUS: 600},
    step_order=DEFAULT_STEP_ORDER,
    step_timeout_s=10,
    total_timeout_s=25,
    backoff_base_s=60,
    backoff_cap_s=3600,
    alert_after_failures=3,
    cooldown_s=30,
)
WAS_DUE = {"due:card_status": str(NOW_MS - 5)}


def make_plan(results, fields=WAS_DUE, *, rules=RULES, from_priority=False, jitter=0.0):
    entry = DueEntry.decode(fields)
    return planning.plan(
        results,
        entry,
        rules,
        now_ms=NOW_MS,
        from_priority=from_priority,
        jitter=lambda: jitter,
    )


def success(check_type=STATUS, seen="active", **other):
    return StepResult(check_type, Outcome.SUCCESS, seen=seen, **other)


def failure(category="http", check_type=STATUS, **other):
    return StepResult(check_type, Outcome.FAILED, category=category, **other)


def ended(outcome, **other):
    return StepResult(STATUS, outcome, **other)


def guarded(new_ms, seen_requests=0, seen_due=WAS_DUE["due:card_status"]):
    return Guarded(new_ms, seen_requests, seen_due)


@pytest.mark.parametrize(
    ("result", "wait_ms"),
    [
        pytest.param(success(), 600_000, id="a success waits for the interval"),
        pytest.param(failure(), 60_000, id="a first failure waits for the back-off base"),
        pytest.param(ended(Outcome.RATE_LIMITED), 1_000, id="a rate limited check comes shortly"),
        pytest.param(
            ended(Outcome.PROVIDER_RATE_LIMITED, retry_after_ms=7_000),
            7_000,
            id="a throttled check waits as long as the gateway asked for",
        ),
        pytest.param(
            ended(Outcome.PROVIDER_RATE_LIMITED, retry_after_ms=10**15),
            24 * 3_600_000,
            id="a throttled check waits a day at most",
        ),
        pytest.param(
            ended(Outcome.PROVIDER_RATE_LIMITED, retry_after_ms=0),
            1_000,
            id="a throttled check waits a second at least",
        ),
        pytest.param(
            ended(Outcome.PROVIDER_RATE_LIMITED),
            60_000,
            id="a throttled check without a time waits for the back-off",
        ),
        pytest.param(ended(Outcome.SKIPPED), 600_000, id="a skipped check waits for the interval"),
    ],
)
def test_the_next_due_time_follows_from_the_outcome(result, wait_ms):
    plan = make_plan([result])

    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + wait_ms)


@pytest.mark.parametrize(
    ("result", "longest_ms"),
    [
        pytest.param(success(), 630_000, id="a regular check comes up to a twentieth later"),
        pytest.param(failure(), 66_000, id="a back-off grows by up to a tenth"),
        pytest.param(ended(Outcome.RATE_LIMITED), 2_000, id="shortly means two seconds at most"),
    ],
)
def test_jitter_only_ever_makes_a_check_later(result, longest_ms):
    plan = make_plan([result], jitter=1.0)

    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + longest_ms)


def test_a_success_is_noted_and_clears_the_failures():
    plan = make_plan([success()], WAS_DUE | {"fail:card_status": "2", "err:card_status": "http||"})

    assert plan.changes.pairs["ok:card_status"] == NOW_MS
    assert {"fail:card_status", "ffail:card_status", "err:card_status"} <= set(
        plan.changes.deletions
    )
    assert plan.events == (PlanEvent(EventKind.RECOVERED, STATUS, 2),)


def test_a_first_failure_is_counted_with_its_time_and_error():
    plan = make_plan([failure(provider_code="502", message="bad gateway")])

    assert plan.changes.pairs["fail:card_status"] == 1
    assert plan.changes.pairs["ffail:card_status"] == NOW_MS
    assert plan.changes.pairs["err:card_status"] == "http|502|bad gateway"


def test_a_further_failure_keeps_the_time_of_the_first():
    fields = WAS_DUE | {"fail:card_status": "1", "ffail:card_status": "1764540000000"}

    plan = make_plan([failure()], fields)

    assert plan.changes.pairs["fail:card_status"] == 2
    assert plan.changes.pairs["ffail:card_status"] == 1_764_540_000_000
    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + 120_000)


@pytest.mark.parametrize("ffail", ["", "soon", "-1", str(NOW_MS + 1)])
def test_an_absurd_first_failure_time_becomes_now(ffail):
    plan = make_plan([failure()], WAS_DUE | {"fail:card_status": "1", "ffail:card_status": ffail})

    assert plan.changes.pairs["ffail:card_status"] == NOW_MS


@pytest.mark.parametrize("fail", ["many", "-7", "1e9", ""])
def test_an_absurd_failure_count_starts_anew(fail):
    plan = make_plan([failure()], WAS_DUE | {"fail:card_status": fail})

    assert plan.changes.pairs["fail:card_status"] == 1


@pytest.mark.parametrize("failures", [6, 30, 10**15])
@pytest.mark.parametrize("jitter", [0.0, 1.0])
def test_the_back_off_never_passes_its_cap(failures, jitter):
    wait_ms = planning.backoff_ms(RULES, failures, jitter=lambda: jitter)

    assert 1_900_000 < wait_ms <= 3_600_000


def test_a_long_error_is_cut_to_fit_the_hash():
    plan = make_plan([failure(message="余额不足" * 30)])

    assert len(str(plan.changes.pairs["err:card_status"]).encode()) < 64


@pytest.mark.parametrize(
    ("category", "counts"),
    [("internal", True), ("timeout", True), ("rate_limited", False), ("of another age", True)],
)
def test_only_failures_that_a_request_met_count_against_the_card(category, counts):
    plan = make_plan([failure(category)], WAS_DUE | {"fail:card_status": "4"})

    assert plan.changes.pairs.get("fail:card_status") == (5 if counts else None)


@pytest.mark.parametrize("outcome", [Outcome.RATE_LIMITED, Outcome.SKIPPED, Outcome.GONE])
def test_a_check_that_met_no_gateway_leaves_the_failures_unchanged(outcome):
    plan = make_plan([ended(outcome)], WAS_DUE | {"fail:card_status": "2"})

    changed = {*plan.changes.pairs, *plan.changes.deletions}
    assert not changed & {"fail:card_status", "ffail:card_status", "err:card_status"}


def test_a_throttled_check_shows_the_error_but_counts_no_failure():
    result = ended(Outcome.PROVIDER_RATE_LIMITED, category="provider_rate_limited")

    plan = make_plan([result], WAS_DUE | {"fail:card_status": "2"})

    assert plan.changes.pairs["err:card_status"] == "provider_rate_limited||"
    assert "fail:card_status" not in plan.changes.pairs


def test_a_check_of_a_card_that_is_gone_is_due_no_more():
    plan = make_plan([ended(Outcome.GONE)])

    assert plan.changes.deletions == ("due:card_status",)


@pytest.mark.parametrize(
    ("fails", "alerts"),
    [("1", ()), ("2", (PlanEvent(EventKind.ALERT_DUE, STATUS, 3),))],
)
def test_an_alert_is_due_from_the_configured_count_on(fails, alerts):
    plan = make_plan([failure()], WAS_DUE | {"fail:card_status": fails})

    assert plan.events == alerts


def test_a_due_time_is_guarded_by_what_was_read_at_the_start():
    plan = make_plan([success()], WAS_DUE | {"req:card_status": "7"})

    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + 600_000, 7)


CONFIRMING = WAS_DUE | {"cfm:card_status": "30,60", "exp:card_status": "suspended"}


def test_while_the_expected_result_is_not_seen_the_next_delay_is_taken():
    plan = make_plan([success(seen="active")], CONFIRMING)

    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + 30_000)
    assert plan.changes.pairs["cfm:card_status"] == "60"
    assert "exp:card_status" not in plan.changes.deletions


def test_the_expected_result_ends_the_confirmation():
    plan = make_plan([success(seen="suspended")], CONFIRMING)

    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + 600_000)
    assert {"cfm:card_status", "exp:card_status"} <= set(plan.changes.deletions)
    assert plan.events == ()


def test_the_last_delay_leaves_the_expected_result_pending():
    plan = make_plan([success()], CONFIRMING | {"cfm:card_status": "300"})

    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + 300_000)
    assert "cfm:card_status" in plan.changes.deletions
    assert "exp:card_status" not in plan.changes.deletions


def test_a_confirmation_whose_delays_are_used_up_has_failed():
    plan = make_plan([success()], WAS_DUE | {"exp:card_status": "suspended"})

    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + 600_000)
    assert {"cfm:card_status", "exp:card_status"} <= set(plan.changes.deletions)
    assert plan.events == (PlanEvent(EventKind.CONFIRMATION_FAILED, STATUS),)


def test_a_failed_check_keeps_its_confirmation_for_the_next_try():
    plan = make_plan([failure()], CONFIRMING)

    changed = {*plan.changes.pairs, *plan.changes.deletions}
    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + 60_000)
    assert not changed & {"cfm:card_status", "exp:card_status"}


def test_a_type_that_is_not_polled_is_deleted_and_never_left_due():
    fields = WAS_DUE | {"due:realname": "5", "cfm:realname": "30", "exp:realname": "verified"}

    plan = make_plan([success()], fields)

    assert {"due:realname", "cfm:realname", "exp:realname"} <= set(plan.changes.deletions)


@pytest.mark.parametrize("rules", [None, replace(RULES, intervals_s={})])
def test_without_rules_nothing_stays_due_and_the_card_leaves_polling(rules):
    plan = make_plan([success()], WAS_DUE | {"due:carddata": "5"}, rules=rules)

    assert plan.leaves_polling
    assert {"due:card_status", "due:carddata"} <= set(plan.changes.deletions)
    assert not plan.changes.pairs


def test_a_type_that_was_never_reached_keeps_its_due_time():
    rules = replace(RULES, intervals_s={STATUS: 600, USAGE: 600})

    plan = make_plan([success()], WAS_DUE | {"due:carddata": "5"}, rules=rules)

    assert "due:carddata" not in plan.changes.pairs
    assert "due:carddata" not in plan.changes.deletions


@pytest.mark.parametrize("due_text", ["", "None", "1.7645e+12", "nan", "-1"])
def test_an_unreadable_due_time_that_was_not_reached_heals(due_text):
    plan = make_plan([], {"due:card_status": due_text})

    assert plan.changes.pairs["due:card_status"] == Guarded(NOW_MS, 0, due_text)


def test_a_newly_polled_type_becomes_due_within_its_interval():
    rules = replace(RULES, intervals_s={STATUS: 600, USAGE: 1000})

    plan = make_plan([success()], rules=rules, jitter=0.25)

    assert plan.changes.pairs["due:carddata"] == Guarded(NOW_MS + 250_000, 0, "")


WITH_PACKAGE = replace(RULES, intervals_s={USAGE: 600, PACKAGE: 900})
BOTH_DUE = {"due:carddata": "5", "due:package": "5"}
USAGE_AND_PACKAGE = success(
    USAGE, seen="", package_evaluated=True, facts={"package_state": "covered"}
)


@pytest.mark.parametrize(
    "results",
    [
        pytest.param([USAGE_AND_PACKAGE], id="the package step was left out"),
        pytest.param(
            [USAGE_AND_PACKAGE, StepResult(PACKAGE, Outcome.SKIPPED)],
            id="the package step was skipped",
        ),
    ],
)
def test_a_package_judged_with_the_usage_counts_as_done(results):
    plan = make_plan(results, BOTH_DUE | {"fail:package": "2"}, rules=WITH_PACKAGE)

    assert plan.changes.pairs["ok:package"] == NOW_MS
    assert plan.changes.pairs["due:package"] == Guarded(NOW_MS + 900_000, 0, "5")
    assert "fail:package" in plan.changes.deletions


def test_a_package_that_was_not_due_stays_as_it_was():
    fields = {"due:carddata": "5", "due:package": str(NOW_MS + 9)}

    plan = make_plan([USAGE_AND_PACKAGE], fields, rules=WITH_PACKAGE)

    assert "due:package" not in plan.changes.pairs


@pytest.mark.parametrize(
    ("results", "fields", "is_marked"),
    [
        pytest.param([success()], WAS_DUE, False, id="a card that was served is not"),
        pytest.param([ended(Outcome.RATE_LIMITED)], WAS_DUE, True, id="a rate limited card is"),
        pytest.param([], WAS_DUE, True, id="a card whose check was never reached is"),
        pytest.param([success()], CONFIRMING, True, id="a card with a confirmation to go is"),
        pytest.param([failure()], CONFIRMING, True, id="a failed card with a confirmation is"),
        pytest.param([success(seen="suspended")], CONFIRMING, False, id="a confirmed card is not"),
        pytest.param([failure()], WAS_DUE, False, id="a failed card is not"),
    ],
)
def test_a_priority_card_that_is_not_done_stays_in_the_priority_queue(results, fields, is_marked):
    marked = "prio" in make_plan(results, fields, from_priority=True).changes.pairs

    assert marked is is_marked
    assert "prio" not in make_plan(results, fields, from_priority=False).changes.pairs


@pytest.mark.parametrize(
    ("crashes", "wait_ms"),
    [(3, 3_600_000), (4, 7_200_000), (20, 24 * 3_600_000), (10**9, 24 * 3_600_000)],
)
def test_a_crashing_card_is_put_off_longer_each_time(crashes, wait_ms):
    entry = DueEntry.decode(WAS_DUE | {"fail:card_status": "1"})

    plan = planning.plan_crashing(entry, RULES, now_ms=NOW_MS, crashes=crashes)

    assert plan.changes.pairs["due:card_status"] == guarded(NOW_MS + wait_ms)
    assert plan.changes.pairs["fail:card_status"] == 2
    assert str(plan.changes.pairs["err:card_status"]).startswith("internal|crash|")
    assert plan.events == (PlanEvent(EventKind.CRASHING_CARD, failures=crashes),)


def test_a_crashing_card_keeps_the_due_times_that_had_not_come():
    rules = replace(RULES, intervals_s={STATUS: 600, USAGE: 600})
    entry = DueEntry.decode(WAS_DUE | {"due:carddata": str(NOW_MS + 9)})

    plan = planning.plan_crashing(entry, rules, now_ms=NOW_MS, crashes=3)

    assert "due:carddata" not in plan.changes.pairs


def test_a_crashing_card_that_nothing_polls_leaves_polling():
    plan = planning.plan_crashing(DueEntry.decode(WAS_DUE), None, now_ms=NOW_MS, crashes=3)

    assert plan.leaves_polling


@pytest.mark.parametrize(("cards", "interval_s"), [(100_000, 3_600), (100_000, 300), (3_000, 300)])
@pytest.mark.parametrize("stride", [1, 3, 7])
def test_first_checks_are_spread_over_the_interval(cards, interval_s, stride):
    rules = replace(RULES, intervals_s={STATUS: interval_s})

    seconds = Counter(
        (planning.first_dues(rules, card_id, NOW_MS)[STATUS] - NOW_MS) // 1000
        for card_id in range(17, 17 + cards * stride, stride)
    )

    assert max(seconds.values()) <= 2 * cards / interval_s
    assert set(seconds) <= set(range(interval_s))


def test_a_card_is_spread_to_the_same_place_each_time():
    assert planning.first_dues(RULES, 4711, NOW_MS) == planning.first_dues(RULES, "4711", NOW_MS)


def test_an_enrolment_yields_to_a_request_made_meanwhile():
    changes = planning.enrolment(RULES, "4711", NOW_MS)

    first_ms = planning.first_dues(RULES, 4711, NOW_MS)[STATUS]
    assert changes.pairs == {"due:card_status": Guarded(first_ms, 0, "")}
