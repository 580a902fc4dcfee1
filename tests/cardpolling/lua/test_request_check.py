"""request_check.lua: each accepted request leads to a check that starts after it."""

import pytest
from redis import ResponseError

from cardpolling import state
from cardpolling.checktypes import CheckType
from cardpolling.state import NOT_POLLED

STATUS, USAGE, REALNAME, PACKAGE = CheckType
DUE, OK, CFM, EXP, REQ = (f"{name}:{STATUS}" for name in ("due", "ok", "cfm", "exp", "req"))


def request(account, *types, card_id="1", **arguments):
    types = types or (STATUS,)
    return state.request_check(
        account.client, 7, card_id, types, now_ms=account.now_ms, **arguments
    )


@pytest.mark.parametrize("to_priority", [True, False])
def test_a_card_in_neither_queue_is_refused(account, to_priority):
    account.client.hset(account.keys.due("1"), DUE, 5)
    before = account.everything()

    assert request(account, to_priority=to_priority) == NOT_POLLED
    assert account.everything() == before


def test_each_type_becomes_due_now_and_is_counted(account):
    account.put("1", fields={DUE: 2**52, REQ: 4})

    assert request(account, STATUS, USAGE) == 2
    assert account.fields() == {
        DUE: str(account.now_ms),
        REQ: "5",
        f"due:{USAGE}": str(account.now_ms),
        f"req:{USAGE}": "1",
        "prio": "1",
    }


def test_types_that_were_not_asked_for_stay(account):
    account.put("1", fields={f"due:{USAGE}": 99})

    request(account, STATUS)

    assert account.fields()[f"due:{USAGE}"] == "99"


@pytest.mark.parametrize(
    ("count", "then"), [("abc", "1"), ("-5", "1"), ("1e3", "1"), ("", "1"), ("9" * 30, "1")]
)
def test_a_request_count_that_is_none_starts_anew(account, count, then):
    account.put("1", fields={REQ: count})

    assert request(account) == 1
    assert account.fields()[REQ] == then


@pytest.mark.parametrize(("count", "then"), [(2**53 - 2, 2**53 - 1), (2**53 - 1, 0)])
def test_a_huge_request_count_is_written_plain_and_starts_over(account, count, then):
    account.put("1", fields={REQ: count})

    request(account)

    assert account.fields()[REQ] == str(then)


# Cooldown


@pytest.mark.parametrize(
    ("age_ms", "requested"), [(0, 0), (1, 0), (59_999, 0), (60_000, 1), (60_001, 1), (-1, 1)]
)
def test_a_type_that_succeeded_within_the_cooldown_is_not_requested(account, age_ms, requested):
    account.put("1", fields={OK: account.now_ms - age_ms})

    assert request(account, cooldown_ms=60_000) == requested


def test_in_cooldown_nothing_is_changed(account):
    account.put("1", fields={OK: account.now_ms, DUE: 2**52})
    before = account.everything()

    assert request(account, cooldown_ms=60_000) == 0
    assert account.everything() == before


def test_only_the_types_in_cooldown_are_left_out(account):
    account.put("1", fields={OK: account.now_ms})

    assert request(account, STATUS, USAGE, cooldown_ms=60_000) == 1
    assert DUE not in account.fields()
    assert account.scores() == (account.now_ms, None)


def test_without_a_cooldown_a_fresh_success_does_not_matter(account):
    account.put("1", fields={OK: account.now_ms})

    assert request(account, cooldown_ms=0) == 1


@pytest.mark.parametrize("ok", ["", "abc", "-1", "1e13", str(2**53), "9" * 30])
def test_a_success_that_is_no_time_does_not_count(account, ok):
    account.put("1", fields={OK: ok})

    assert request(account, cooldown_ms=2**52) == 1


def test_a_request_with_confirmations_is_made_without_cooldown(account):
    account.put("1", fields={OK: account.now_ms})

    assert request(account, cooldown_ms=60_000, confirmations=[30]) == 1


# Confirmations


def test_a_confirmation_is_written_for_each_type(account):
    account.put("1")

    request(account, STATUS, USAGE, confirmations=[30, 60, 300], expected="suspended")

    fields = account.fields()
    assert [fields[CFM], fields[f"cfm:{USAGE}"]] == ["30,60,300"] * 2
    assert [fields[EXP], fields[f"exp:{USAGE}"]] == ["suspended"] * 2


def test_a_confirmation_without_expected_result_clears_the_one_before(account):
    account.put("1", fields={CFM: "5", EXP: "active"})

    request(account, confirmations=[30])

    assert account.fields()[CFM] == "30"
    assert EXP not in account.fields()


def test_an_expected_result_alone_is_a_confirmation_of_the_one_check(account):
    account.put("1", fields={CFM: "5", OK: account.now_ms})

    assert request(account, expected="active", cooldown_ms=60_000) == 1
    assert account.fields()[EXP] == "active"
    assert CFM not in account.fields()


def test_a_request_without_confirmation_leaves_a_pending_one(account):
    account.put("1", fields={CFM: "5", EXP: "active"})

    request(account)

    assert (account.fields()[CFM], account.fields()[EXP]) == ("5", "active")


# To the priority queue


def test_a_card_of_the_normal_queue_moves_to_priority(account):
    account.put("1", score=account.now_ms + 5)

    request(account)

    assert account.scores() == (account.now_ms, None)
    assert account.fields()["prio"] == "1"


@pytest.mark.parametrize(("offset_ms", "then_ms"), [(-500, -500), (0, 0), (500, 0)])
def test_a_repeated_request_never_makes_a_card_later(account, offset_ms, then_ms):
    account.put("1", in_priority=True, score=account.now_ms + offset_ms)

    request(account)

    assert account.scores() == (account.now_ms + then_ms, None)


def test_a_card_in_both_queues_leaves_the_normal_one(account):
    account.put("1", score=account.now_ms - 900)
    account.put("1", score=account.now_ms - 500, in_priority=True)

    request(account)

    assert account.scores() == (account.now_ms - 500, None)


@pytest.mark.parametrize("in_priority", [True, False])
def test_while_the_card_executes_only_the_mark_is_set(account, in_priority):
    account.put("1", in_priority=in_priority, score=account.now_ms + 5)
    account.hold()
    before = account.scores()

    assert request(account) == 1
    assert account.scores() == before
    assert account.fields() == {DUE: str(account.now_ms), REQ: "1", "prio": "1"}


def test_a_claim_that_is_no_string_is_an_execution(account):
    account.put("1", score=account.now_ms + 5)
    account.client.rpush(account.keys.claim("1"), "garbage")

    request(account)

    assert account.scores() == (None, account.now_ms + 5)


# Where the card stands (manual trigger)


@pytest.mark.parametrize("in_priority", [True, False])
@pytest.mark.parametrize(("offset_ms", "then_ms"), [(-500, -500), (0, 0), (500, 0)])
def test_a_manual_request_makes_due_where_the_card_stands(account, in_priority, offset_ms, then_ms):
    account.put("1", in_priority=in_priority, score=account.now_ms + offset_ms)

    assert request(account, to_priority=False) == 1
    then_ms += account.now_ms
    assert account.scores() == ((then_ms, None) if in_priority else (None, then_ms))
    assert "prio" not in account.fields()


def test_a_manual_request_keeps_a_mark_that_is_there(account):
    account.put("1", fields={"prio": "1"})

    request(account, to_priority=False)

    assert account.fields()["prio"] == "1"


def test_while_the_card_executes_a_manual_request_waits_for_its_finish(account):
    account.put("1", score=account.now_ms + 5)
    account.hold()

    assert request(account, to_priority=False) == 1
    assert account.scores() == (None, account.now_ms + 5)
    assert account.fields() == {DUE: str(account.now_ms), REQ: "1"}


# Garbage


@pytest.mark.parametrize("to_priority", [True, False])
def test_a_due_hash_that_is_none_becomes_one(account, to_priority):
    account.put("1")
    account.client.rpush(account.keys.due("1"), "garbage")

    assert request(account, to_priority=to_priority) == 1
    assert account.fields()[DUE] == str(account.now_ms)


@pytest.mark.parametrize("card_id", ["007", "1e3", "卡 7", "a:b", "9007199254740993"])
def test_ids_stay_strings(account, card_id):
    account.put(card_id)

    request(account, card_id=card_id)

    assert account.client.zrange(account.keys.priority, 0, -1) == [card_id]


@pytest.mark.parametrize("kind", ["priority", "queue"])
def test_a_queue_that_is_none_is_told_and_nothing_is_written(account, kind):
    account.client.set(getattr(account.keys, kind), "garbage")
    before = account.everything()

    with pytest.raises(ResponseError, match="WRONGTYPE"):
        request(account)
    assert account.everything() == before


@pytest.mark.parametrize("cooldown_ms", ["", "soon"])
def test_a_wrong_argument_is_told_and_nothing_is_written(account, cooldown_ms):
    account.put("1")
    before = account.everything()

    with pytest.raises(ResponseError, match="request_check: "):
        request(account, cooldown_ms=cooldown_ms)
    assert account.everything() == before


def test_many_are_requested_in_one_pipeline(account):
    account.put_due("ab")
    account.client.hset(account.keys.due("b"), OK, account.now_ms)

    requests = [(7, card_id, [STATUS]) for card_id in ("a", "b", "x")]
    answers = state.request_check_many(
        account.client, requests, now_ms=account.now_ms, cooldown_ms=1000
    )

    assert answers == [1, 0, NOT_POLLED]
