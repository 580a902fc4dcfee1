"""finish.lua: the result of an execution is written, and its claim ended where it still stands."""

import pytest
from redis import ResponseError

from cardpolling import state
from cardpolling.checktypes import CheckType
from cardpolling.due import LARGEST, FieldChanges, Guarded
from cardpolling.state import Claim

STATUS, USAGE, REALNAME, PACKAGE = CheckType
DUE, OK, CFM, EXP, REQ = (f"{name}:{STATUS}" for name in ("due", "ok", "cfm", "exp", "req"))
OF_TYPE = [f"{name}:{STATUS}" for name in ("due", "ok", "fail", "ffail", "err", "cfm", "exp")]
HOUR_MS = 3_600_000
TOKEN = "token"


def finish(account, pairs=(), deletions=(), *, executor="me", token=TOKEN):
    changes = FieldChanges(dict(pairs), tuple(deletions))
    claim = Claim(7, "1", token)
    now_ms = account.now_ms
    return state.finish(account.client, claim, changes, executor_id=executor, now_ms=now_ms)


def request(account, *types, **arguments):
    return state.request_check(account.client, 7, "1", types, now_ms=account.now_ms, **arguments)


@pytest.fixture
def executing(account):
    """A card of the normal queue that this executor executes."""
    account.put("1", score=account.now_ms + account.lease_ms)
    account.hold("1")
    return account


@pytest.fixture(
    params=[("another", "me"), (None, "me"), ("token", "another"), ("another", "another")],
    ids=["another-claim", "no-claim", "another-executor", "both-another"],
)
def late(request, account):
    """A card whose execution lasted too long."""
    token, executor = request.param
    account.put("1", score=account.now_ms + account.lease_ms)
    if token:
        account.hold("1", token=token, executor=executor)
    else:
        account.client.set(account.keys.exec_right("1"), executor, px=account.lease_ms)
    return account


# In time


def test_claim_right_and_place_in_flight_end(executing):
    assert finish(executing) is True
    assert executing.client.keys() == [executing.keys.queue]


def test_a_finish_after_the_exec_right_expired_is_in_time_while_the_claim_stands(account):
    account.put("1")
    account.hold(executor=None)

    assert finish(account) is True


def test_values_are_written_and_names_deleted(executing):
    executing.client.hset(executing.keys.due("1"), mapping={"fail:carddata": 3, "carrier": "7"})

    finish(executing, {OK: 5, f"err:{STATUS}": "timeout|5|a|b"}, ["fail:carddata", "ffail:x"])

    assert executing.fields() == {OK: "5", f"err:{STATUS}": "timeout|5|a|b", "carrier": "7"}


def test_a_field_both_set_and_deleted_is_deleted(executing):
    finish(executing, {OK: 5}, [OK])

    assert executing.fields() == {}


def test_the_card_stands_at_its_earliest_due(executing):
    executing.client.hset(executing.keys.due("1"), f"due:{REALNAME}", 8000)

    finish(executing, {f"due:{STATUS}": 9000, f"due:{USAGE}": 8500})

    assert executing.scores() == (None, 8000)


def test_a_due_that_lies_behind_is_a_place_too(executing):
    finish(executing, {DUE: 0})

    assert executing.scores() == (None, 0)


def test_a_card_without_any_due_comes_in_an_hour(executing):
    finish(executing, {OK: 5})

    assert executing.scores() == (None, executing.now_ms + HOUR_MS)


@pytest.mark.parametrize("due", ["", "abc", "-5", "1e3", "1.5", "nan", "9" * 400, str(2**53)])
def test_a_due_that_is_no_number_is_no_place(executing, due):
    executing.client.hset(executing.keys.due("1"), f"due:{USAGE}", due)

    finish(executing, {DUE: 9000})

    assert executing.scores() == (None, 9000)
    assert executing.fields()[f"due:{USAGE}"] == due


@pytest.mark.parametrize("due", ["", "abc", "-5", "1e3", "1.5", "nan", "9" * 400, str(2**53)])
@pytest.mark.parametrize("form", ["{}", "{}|0|"])
def test_a_due_value_that_is_no_integer_below_2_to_53_is_ignored(executing, due, form):
    executing.client.hset(executing.keys.due("1"), DUE, "")

    assert finish(executing, {DUE: form.format(due), OK: 5}) is True
    assert executing.fields() == {DUE: "", OK: "5"}


@pytest.mark.parametrize("due", [0, 2**53 - 1])
def test_the_ends_of_the_valid_range_are_written_plain(executing, due):
    finish(executing, {DUE: due})

    assert executing.fields() == {DUE: str(due)}
    command = ("ZSCORE", executing.keys.queue, "1")
    assert executing.client.eval("return redis.call(unpack(ARGV))", 0, *command) == str(due)


@pytest.mark.parametrize(("mark", "goes_first"), [("1", True), ("0", False), ("yes", False)])
@pytest.mark.parametrize("in_priority", [True, False])
def test_the_mark_decides_the_queue(account, mark, goes_first, in_priority):
    account.put("1", in_priority=in_priority, fields={"prio": mark})
    account.hold()

    finish(account, {DUE: 9000})

    assert account.scores() == ((9000, None) if goes_first else (None, 9000))


def test_without_the_mark_a_priority_card_goes_to_the_normal_queue(account):
    account.put("1", in_priority=True)
    account.hold()

    finish(account, {DUE: 9000})

    assert account.scores() == (None, 9000)


def test_the_mark_can_come_with_the_result(executing):
    finish(executing, {DUE: 9000, "prio": "1"})

    assert executing.scores() == (9000, None)
    assert executing.fields()["prio"] == "1"


def test_a_card_in_both_queues_ends_in_one(account):
    account.put("1")
    account.put("1", in_priority=True)
    account.hold()

    finish(account, {DUE: 9000})

    assert account.scores() == (None, 9000)


def test_other_tokens_stay_in_flight(executing):
    executing.client.zadd(executing.keys.inflight, {"other": 5})

    finish(executing)

    assert executing.in_flight() == {"other": 5}


def test_finishing_twice_is_late_the_second_time(executing):
    pairs = {DUE: Guarded(9000, 0, "")}

    assert [finish(executing, pairs), finish(executing, pairs)] == [True, False]
    assert executing.scores() == (None, 9000)


# Late


def test_a_late_result_leaves_claim_flight_and_queue_as_they_are(late):
    before = (late.client.get(late.keys.claim("1")), late.in_flight(), late.scores())

    assert finish(late, {DUE: 9000, OK: 5}) is False
    assert (late.client.get(late.keys.claim("1")), late.in_flight(), late.scores()) == before


def test_a_late_result_is_written(late):
    finish(late, {DUE: Guarded(9000, 0, ""), OK: 5}, ["fail:carddata"])

    assert late.fields() == {DUE: "9000", OK: "5"}


def test_a_late_result_never_takes_another_ones_right(account):
    account.put("1")
    account.hold(executor="another")

    finish(account)

    assert account.client.get(account.keys.exec_right("1")) == "another"


def test_a_late_executors_own_right_ends_all_the_same(account):
    account.put("1")
    account.hold(token="later", executor="me")

    assert finish(account) is False
    assert account.client.exists(account.keys.exec_right("1")) == 0


@pytest.mark.parametrize("mark", [None, "1"])
def test_a_late_result_leaves_the_mark_as_it_is(late, mark):
    if mark:
        late.client.hset(late.keys.due("1"), "prio", mark)

    finish(
        late, {"prio": "1", OK: 5} if mark is None else {OK: 5}, [] if mark is None else ["prio"]
    )

    assert late.fields().get("prio") == mark


def test_a_second_claim_of_the_same_card_finishes_after_a_late_first(account):
    account.put("1")
    account.hold(token="second", executor=None)
    finish(account, {DUE: Guarded(9000, 0, "")}, token="first", executor="slow")

    assert finish(account, {DUE: Guarded(9500, 0, "")}, token="second") is True
    assert account.fields() == {DUE: "9500"}


def test_a_result_that_comes_after_a_later_one_is_dropped(account):
    account.put("1", fields={DUE: "100"})
    account.hold(token="second")
    finish(account, {DUE: Guarded(9500, 0, "100"), OK: 400}, token="second")

    assert finish(account, {DUE: Guarded(9000, 0, "100"), OK: 200}, token="first") is False
    assert account.fields() == {DUE: "9500", OK: "400"}


# Removed


def test_the_claim_of_a_removed_card_ends_and_nothing_is_written(account):
    account.hold()

    assert finish(account, {DUE: 9000, "prio": "1"}) is True
    assert not account.client.keys()


def test_no_due_hash_may_remain_for_a_removed_card(account):
    account.client.hset(account.keys.due("1"), OK, 5)

    assert finish(account, {DUE: 9000}) is False
    assert not account.client.keys()


def test_a_removed_cards_foreign_claim_stays(account):
    account.hold(token="another", executor="another")
    before = account.everything()

    assert finish(account, {DUE: 9000}) is False
    assert account.everything() == before


def test_a_removed_cards_own_right_ends_though_the_claim_is_gone(account):
    account.client.set(account.keys.exec_right("1"), "me")

    assert finish(account) is False
    assert not account.client.keys()


def test_the_claim_of_a_removed_card_stays_while_another_executor_runs_it(account):
    account.hold(executor="another")

    assert finish(account) is False
    assert account.client.get(account.keys.claim("1")) == "token"
    assert account.in_flight() == {"token": account.now_ms + account.lease_ms}


# Guards


FIELDS = {**{name: f"old {name}" for name in OF_TYPE}, DUE: "100", REQ: "3", "carrier": "7"}
NEW = {**{name: f"new {name}" for name in OF_TYPE}, DUE: "9000"}
PLAN = (DUE, CFM, EXP)


@pytest.mark.parametrize("seen_due", ["100", "200", ""])
@pytest.mark.parametrize("seen_req", [2, 3, 4, 0])
@pytest.mark.parametrize("how", ["set", "delete"])
def test_in_time_only_a_request_protects_due_and_confirmation(executing, seen_req, seen_due, how):
    executing.client.hset(executing.keys.due("1"), mapping=FIELDS)
    kept = PLAN if seen_req != 3 else ()

    _finish_guarded(executing, seen_req, seen_due, how)

    assert executing.fields() == _expected(how, kept)


@pytest.mark.parametrize("seen_due", ["100", "200", ""])
@pytest.mark.parametrize("seen_req", [2, 3, 4, 0])
@pytest.mark.parametrize("how", ["set", "delete"])
def test_late_a_type_that_was_recorded_since_keeps_everything(late, seen_req, seen_due, how):
    late.client.hset(late.keys.due("1"), mapping=FIELDS)
    kept = OF_TYPE if seen_due != "100" else PLAN if seen_req != 3 else ()

    _finish_guarded(late, seen_req, seen_due, how)

    assert late.fields() == _expected(how, kept)


def _finish_guarded(account, seen_req, seen_due, how):
    guard = {DUE: Guarded(9000, seen_req, seen_due)}
    others = {name: value for name, value in NEW.items() if name != DUE}
    finish(
        account, {**guard, **(others if how == "set" else {})}, others if how == "delete" else ()
    )


def _expected(how, kept):
    new = NEW if how == "set" else {DUE: NEW[DUE]}
    others = {name: FIELDS[name] for name in (REQ, "carrier")}
    written = {name: value for name, value in new.items() if name not in kept}
    return {**others, **written, **{name: FIELDS[name] for name in kept}}


@pytest.mark.parametrize("late_claim", [True, False])
def test_a_plain_value_is_applied_whatever_happened_since(account, late_claim):
    account.put("1", fields=FIELDS)
    account.hold(token="later" if late_claim else "token")

    finish(account, NEW)

    assert account.fields() == {**FIELDS, **NEW}


def test_guards_hold_type_by_type(executing):
    executing.client.hset(executing.keys.due("1"), REQ, 1)

    finish(executing, {DUE: Guarded(9000, 0, ""), f"due:{USAGE}": Guarded(8000, 0, ""), CFM: "60"})

    assert executing.fields() == {REQ: "1", f"due:{USAGE}": "8000"}


def test_a_guard_holds_for_changes_that_stand_before_it(executing):
    executing.client.hset(executing.keys.due("1"), REQ, 1)

    finish(executing, {CFM: "60", DUE: Guarded(9000, 0, "")})

    assert executing.fields() == {REQ: "1"}


@pytest.mark.parametrize(("request_count", "seen"), [("0", 0), ("abc", 0), ("-1", 0), ("", 0)])
def test_a_request_count_that_is_none_is_zero(executing, request_count, seen):
    executing.client.hset(executing.keys.due("1"), REQ, request_count)

    finish(executing, {DUE: Guarded(9000, seen, "")})

    assert executing.fields()[DUE] == "9000"


@pytest.mark.parametrize("seen_due", ["a|b", "|", "5|0|x", "two\nlines", "卡"])
def test_any_text_may_have_been_seen_in_the_due_field(late, seen_due):
    late.client.hset(late.keys.due("1"), DUE, seen_due)

    finish(late, {DUE: Guarded(9000, 0, seen_due)})

    assert late.fields() == {DUE: "9000"}


def test_bars_in_other_fields_are_no_guard(executing):
    finish(executing, {f"err:{STATUS}": "5|0|100", "prio": "1|0|"})

    assert executing.fields() == {f"err:{STATUS}": "5|0|100", "prio": "1|0|"}


def test_a_check_requested_while_the_card_executed_runs_right_after_the_finish(executing):
    request(executing, STATUS, confirmations=[30], expected="active")

    finish(executing, {DUE: Guarded(9_000_000_000_000, 0, ""), OK: 5}, [CFM, EXP])

    assert executing.scores() == (executing.now_ms, None)
    expected = {DUE: str(executing.now_ms), CFM: "30", EXP: "active", REQ: "1", "prio": "1"}
    assert executing.fields() == {**expected, OK: "5"}


def test_a_manual_request_while_the_card_executed_is_served_from_the_normal_queue(executing):
    request(executing, STATUS, to_priority=False)

    finish(executing, {DUE: Guarded(9_000_000_000_000, 0, "")})

    assert executing.scores() == (None, executing.now_ms)


def test_the_request_count_stays_for_the_next_guard(executing):
    request(executing, STATUS)
    finish(executing, {DUE: Guarded(9000, 0, "")})
    executing.hold("1", token="next")

    finish(executing, {DUE: Guarded(9000, 1, "")}, token="next")

    assert executing.fields()[DUE] == "9000"


def test_a_request_count_that_starts_over_has_moved_on(executing):
    executing.client.hset(executing.keys.due("1"), REQ, LARGEST - 1)
    request(executing, STATUS)

    finish(executing, {DUE: Guarded(9_000_000_000_000, LARGEST - 1, "")})

    assert executing.fields()[DUE] == str(executing.now_ms)


# Garbage


@pytest.mark.parametrize("in_time", [True, False])
def test_a_due_hash_that_is_none_becomes_one(account, in_time):
    account.put("1")
    account.hold(token="token" if in_time else "later")
    account.client.set(account.keys.due("1"), "garbage")

    assert finish(account, {DUE: Guarded(9000, 0, "")}) is in_time
    assert account.fields() == {DUE: "9000"}


def test_a_claim_that_is_no_string_makes_the_result_late(account):
    account.put("1")
    account.client.rpush(account.keys.claim("1"), "token")

    assert finish(account, {OK: 5}) is False
    assert account.fields() == {OK: "5"}


def test_a_right_that_is_no_string_is_another_ones(account):
    account.put("1")
    account.hold(executor=None)
    account.client.rpush(account.keys.exec_right("1"), "me")

    assert finish(account) is False


@pytest.mark.parametrize("kind", ["priority", "queue", "inflight"])
def test_a_queue_that_is_none_is_told_and_nothing_is_written(executing, kind):
    key = getattr(executing.keys, kind)
    executing.client.delete(key)
    executing.client.set(key, "garbage")
    before = executing.everything()

    with pytest.raises(ResponseError, match="WRONGTYPE"):
        finish(executing, {OK: 5})
    assert executing.everything() == before


@pytest.mark.parametrize("n", ["-1", "0.5", "2", "", "many"])
def test_a_wrong_number_of_pairs_is_told_and_nothing_is_written(executing, n):
    before = executing.everything()
    keys = [executing.keys.due("1"), executing.keys.claim("1"), executing.keys.exec_right("1")]
    keys += [executing.keys.inflight, executing.keys.priority, executing.keys.queue]

    with pytest.raises(ResponseError, match="finish: "):
        state._finish.run(executing.client, keys, ["token", "me", "1", 5, n, "a", "b", "c"])
    assert executing.everything() == before


@pytest.mark.parametrize("card_id", ["007", "1e3", "卡 7", "a:b", "9007199254740993"])
def test_ids_stay_strings(account, card_id):
    account.put(card_id)
    claim = account.hold(card_id)
    changes = FieldChanges({DUE: 9000})

    state.finish(account.client, claim, changes, executor_id="me", now_ms=account.now_ms)

    assert account.client.zrange(account.keys.queue, 0, -1, withscores=True) == [(card_id, 9000)]


def test_hundreds_of_changes_are_written(executing):
    finish(executing, {f"x:{n}": n for n in range(1000)}, [f"x:{n}" for n in range(999)])

    assert executing.fields() == {"x:999": "999"}


def test_many_are_finished_in_one_pipeline(account):
    account.put_due("ab")
    mine, foreign = account.hold("a"), account.hold("b", executor="another")

    finished = [(mine, "me", FieldChanges({DUE: 9000})), (foreign, "me", FieldChanges({DUE: 9}))]
    answers = state.finish_many(account.client, finished, now_ms=account.now_ms)

    assert answers == [True, False]
    assert account.scores("a") == (None, 9000)
