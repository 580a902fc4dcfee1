"""claim.lua: due cards are taken for execution, each with a token and a lease."""

import pytest
from redis import ResponseError

from cardpolling.checktypes import CheckType
from cardpolling.state import Claim

STATUS, USAGE, REALNAME, PACKAGE = CheckType
GROUPS = {STATUS: "query", USAGE: "usage", REALNAME: "query"}
ODD_IDS = ["007", "9007199254740993", "1e3", "-", "a:b", "{c8}", "卡 7", "%d", "'\\n", "1.0"]


# What is taken, and how


def test_nothing_is_taken_from_an_empty_account(account):
    batch = account.claim()

    assert (batch.expired, batch.claims) == (0, ())
    assert not account.client.keys()


def test_a_due_card_is_taken_with_token_lease_and_place_in_flight(account):
    account.put("1")

    batch = account.claim()

    assert batch.claims == (Claim(7, "1", "call:1"),)
    assert account.client.get(account.keys.claim("1")) == "call:1"
    assert account.in_flight() == {"call:1": account.now_ms + account.lease_ms}
    assert account.scores("1") == (None, account.now_ms + account.lease_ms)


def test_a_claim_has_the_lease_as_expiry(account):
    account.put("1")

    account.claim(lease_ms=45_000)

    assert 40_000 < account.client.pttl(account.keys.claim("1")) <= 45_000


@pytest.mark.parametrize(("ahead_ms", "is_taken"), [(-1, True), (0, True), (1, False)])
def test_only_members_up_to_now_are_due(account, ahead_ms, is_taken):
    account.put("1", score=account.now_ms + ahead_ms)

    assert account.taken() == ["1"] * is_taken


def test_a_card_that_is_not_due_stays_as_it_is(account):
    account.put("1", score=account.now_ms + 1, fields={"prio": "1"})
    before = account.everything()

    account.claim()

    assert account.everything() == before


def test_the_lowest_score_comes_first(account):
    for card_id, late_ms in (("a", 10), ("b", 30), ("c", 20)):
        account.put(card_id, score=account.now_ms - late_ms)

    assert account.taken() == ["b", "c", "a"]


def test_scores_without_end_do_no_harm(account):
    account.put("early", score=float("-inf"))
    account.put("never", score=float("inf"))

    assert account.taken() == ["early"]


def test_a_card_without_a_due_hash_is_taken(account):
    account.put("1")

    assert account.taken(budgets={"query": 0}, groups=GROUPS) == ["1"]


def test_ids_stay_strings(account):
    account.put_due(ODD_IDS, STATUS)

    batch = account.claim(budgets={"query": 100}, groups=GROUPS)

    assert [claim.card_id for claim in batch.claims] == ODD_IDS
    assert sorted(account.in_flight()) == sorted(f"call:{card_id}" for card_id in ODD_IDS)
    assert set(account.client.zrange(account.keys.queue, 0, -1)) == set(ODD_IDS)


def test_numbers_are_written_plain_however_large(account):
    account.put("1")

    account.claim(now_ms=2**53 - 60_001, lease_ms=60_000)

    command = ("ZSCORE", account.keys.inflight, "call:1")
    assert account.client.eval("return redis.call(unpack(ARGV))", 0, *command) == str(2**53 - 1)


def test_another_account_is_not_touched(account):
    account.client.zadd("polling:{c8}:queue", {"1": account.now_ms})

    assert account.taken() == []


# Capacity


def test_expired_leases_are_dropped_from_flight_and_counted(account):
    account.client.zadd(
        account.keys.inflight,
        {"old": 1, "now": account.now_ms, "alive": account.now_ms + 1},
    )

    assert account.claim().expired == 2
    assert list(account.in_flight()) == ["alive"]


def test_no_more_cards_are_taken_than_the_limit_leaves(account):
    account.put_due("abcde")
    account.client.zadd(account.keys.inflight, {"x": account.now_ms + 1, "y": account.now_ms + 1})

    assert account.taken(limit=5) == ["a", "b", "c"]


def test_what_has_expired_takes_no_room(account):
    account.put("1")
    account.client.zadd(account.keys.inflight, {"x": account.now_ms})

    assert account.taken(limit=1) == ["1"]


@pytest.mark.parametrize("limit", [0, -1, 1])
def test_without_room_expired_leases_are_dropped_and_nothing_is_taken(account, limit):
    account.put("1")
    account.client.zadd(account.keys.inflight, {"old": 1, "alive": account.now_ms + 1})

    batch = account.claim(limit=limit)

    assert (batch.expired, batch.claims) == (1, ())
    assert account.scores("1") == (None, account.now_ms)


def test_a_lower_limit_than_what_is_in_flight_takes_nothing(account):
    account.put("1")
    account.client.zadd(account.keys.inflight, {str(n): account.now_ms + 1 for n in range(9)})

    assert account.taken(limit=3) == []


# Priority


def test_priority_comes_first_and_says_so(account):
    account.put("normal", score=1)
    account.put("urgent", in_priority=True)

    batch = account.claim()

    assert [(c.card_id, c.from_priority) for c in batch.claims] == [
        ("urgent", True),
        ("normal", False),
    ]


@pytest.mark.parametrize(
    ("ratio", "limit", "quota"),
    [
        (0, 6, 6),
        (0.01, 6, 1),
        (0.5, 1, 1),
        (0.5, 5, 2),
        (0.7, 10, 7),
        (0.99, 6, 5),
        (1, 6, 6),
    ],
)
def test_priority_gets_its_quota_first_rounded_down_but_at_least_one(account, ratio, limit, quota):
    account.put_due((f"p{n}" for n in range(10)), in_priority=True)
    account.put_due(f"q{n}" for n in range(10))

    taken = account.taken(limit=limit, priority_ratio=ratio)

    assert [card_id[0] for card_id in taken] == ["p"] * quota + ["q"] * (limit - quota)


def test_what_the_normal_queue_leaves_goes_to_priority(account):
    account.put_due(("p1", "p2", "p3", "p4"), in_priority=True)
    account.put("q1")

    assert account.taken(limit=4, priority_ratio=0.5) == ["p1", "p2", "q1", "p3"]


def test_what_priority_leaves_goes_to_the_normal_queue(account):
    account.put("p1", in_priority=True)
    account.put_due(("q1", "q2", "q3"))

    assert account.taken(limit=4, priority_ratio=0.75) == ["p1", "q1", "q2", "q3"]


def test_the_whole_quota_is_taken_where_it_is_larger_than_half_the_scan_limit(account):
    account.put_due((f"p{n}" for n in range(8)), in_priority=True)
    account.put_due(f"q{n}" for n in range(8))

    taken = account.taken(limit=8, scan_limit=10)

    assert [card_id[0] for card_id in taken] == ["p"] * 8


def test_on_the_normal_queues_turn_priority_is_not_looked_at(account):
    account.put("p", in_priority=True)
    account.put("q")

    assert account.taken(skip_priority=True, limit=1, priority_ratio=0.5) == ["q"]
    assert account.scores("p") == (account.now_ms, None)


def test_another_zset_can_stand_for_the_normal_queue(account):
    account.put_due("ab")
    account.client.zadd(account.keys.candidates, {"b": account.now_ms})

    assert account.taken(queue_key=account.keys.candidates) == ["b"]


def test_a_priority_card_loses_its_mark(account):
    account.put("1", in_priority=True, fields={"prio": "1", "ok:carddata": 5})

    account.claim()

    assert account.fields("1") == {"ok:carddata": "5"}
    assert account.scores("1") == (account.now_ms + account.lease_ms, None)


def test_a_card_of_the_normal_queue_keeps_its_mark(account):
    account.put("1", fields={"prio": "1"})

    account.claim()

    assert account.fields("1") == {"prio": "1"}


def test_a_card_in_both_queues_is_taken_once(account):
    account.put("1", in_priority=True)
    account.put("1")

    assert account.taken() == ["1"]
    assert account.scores("1") == (account.now_ms + account.lease_ms,) * 2


# Cards that are claimed already


def test_a_claimed_card_is_not_taken_again(account):
    account.put("1")
    account.hold("1", token="first")

    assert account.taken() == []
    assert account.client.get(account.keys.claim("1")) == "first"
    assert account.in_flight() == {"first": account.now_ms + account.lease_ms}


@pytest.mark.parametrize("in_priority", [True, False])
def test_a_claimed_card_comes_again_when_that_claim_ends(account, in_priority):
    account.put("1", in_priority=in_priority)
    account.client.set(account.keys.claim("1"), "first", px=40_000)

    account.claim()

    score = account.scores("1")[not in_priority]
    assert account.now_ms + 30_000 < score <= account.now_ms + 40_000


def test_a_claim_without_expiry_is_given_the_lease(account):
    account.put("1")
    account.client.set(account.keys.claim("1"), "leaked")

    assert account.taken() == []
    assert 50_000 < account.client.pttl(account.keys.claim("1")) <= account.lease_ms
    assert account.scores("1") == (None, account.now_ms + account.lease_ms)


def test_a_claim_that_is_no_string_is_a_claim(account):
    account.put("1")
    account.client.rpush(account.keys.claim("1"), "garbage")

    assert account.taken() == []
    assert 50_000 < account.client.pttl(account.keys.claim("1")) <= account.lease_ms


def test_a_claimed_card_uses_up_neither_room_nor_budget(account):
    account.put_due("ab", STATUS)
    account.client.set(account.keys.claim("a"), "first", px=40_000)

    assert account.taken(limit=1, budgets={"query": 1}, groups=GROUPS) == ["b"]


def test_a_claimed_card_keeps_its_mark(account):
    account.put("1", in_priority=True, fields={"prio": "1"})
    account.hold("1")

    account.claim()

    assert account.fields("1") == {"prio": "1"}


def test_two_claims_in_turn_share_the_cards_between_them(account):
    account.put_due("abcd")

    first = account.taken(limit=2, token_prefix="first")
    second = account.taken(limit=4, token_prefix="second")

    assert (first, second) == (["a", "b"], ["c", "d"])
    assert account.client.get(account.keys.claim("a")) == "first:a"


# Budgets


@pytest.mark.parametrize("budgets", [{}, {"query": None}, {"usage": 0}])
def test_a_group_without_a_budget_is_not_limited(account, budgets):
    account.put_due("abc", STATUS, REALNAME)

    assert account.taken(budgets=budgets, groups=GROUPS) == ["a", "b", "c"]


@pytest.mark.parametrize("left", [0, -3])
def test_a_group_with_no_budget_left_admits_nothing(account, left):
    account.put_due("abc", STATUS)
    before = account.everything()

    assert account.taken(budgets={"query": left}, groups=GROUPS) == []
    assert account.everything() == before


def test_a_card_needs_one_call_for_each_due_check_of_a_group(account):
    account.put_due("abc", STATUS, REALNAME, USAGE)

    assert account.taken(budgets={"query": 5, "usage": 100}, groups=GROUPS) == ["a", "b"]


def test_a_check_that_is_not_due_is_no_call(account):
    for card_id in "abc":
        account.put(card_id, fields={f"due:{STATUS}": account.now_ms, f"due:{REALNAME}": 2**52})

    assert account.taken(budgets={"query": 2}, groups=GROUPS) == ["a", "b"]


def test_a_check_without_a_group_is_no_call(account):
    account.put_due("abc", PACKAGE)

    assert account.taken(budgets={"query": 0, "usage": 0}, groups=GROUPS) == ["a", "b", "c"]


@pytest.mark.parametrize(("counts", "taken"), [(True, ["a"]), (False, ["a", "b"])])
def test_realname_counts_where_it_is_said_to(account, counts, taken):
    account.put_due("abc", STATUS, REALNAME)

    budgets = {"query": 2}
    assert account.taken(budgets=budgets, groups=GROUPS, realname_counts=counts) == taken


def test_realname_alone_passes_an_exhausted_group_where_it_does_not_count(account):
    account.put_due("a", REALNAME)

    assert account.taken(budgets={"query": 0}, groups=GROUPS, realname_counts=False) == ["a"]


def test_a_group_with_budget_admits_a_first_card_that_needs_more(account):
    account.put_due("abc", STATUS, REALNAME)

    assert account.taken(budgets={"query": 1}, groups=GROUPS) == ["a"]


def test_after_its_first_card_a_group_admits_only_what_fits_whole(account):
    account.put_due("ab", STATUS, REALNAME)
    account.put("c", fields={f"due:{STATUS}": account.now_ms})

    assert account.taken(budgets={"query": 3}, groups=GROUPS) == ["a", "c"]


def test_the_first_card_is_told_group_by_group(account):
    account.put("a", score=1, fields={f"due:{STATUS}": 1})
    account.put("b", score=2, fields={f"due:{USAGE}": 1, f"due:{PACKAGE}": 1})

    groups = {STATUS: "query", USAGE: "usage", PACKAGE: "usage"}
    assert account.taken(budgets={"query": 1, "usage": 1}, groups=groups) == ["a", "b"]


def test_a_card_must_fit_every_group_it_needs(account):
    account.put_due("a", STATUS, USAGE)

    assert account.taken(budgets={"query": 5, "usage": 0}, groups=GROUPS) == []


def test_a_card_passed_over_uses_up_no_budget(account):
    account.put("a", score=1, fields={f"due:{STATUS}": 1, f"due:{USAGE}": 1})
    account.put("b", score=2, fields={f"due:{STATUS}": 1})

    assert account.taken(budgets={"query": 1, "usage": 0}, groups=GROUPS) == ["b"]


def test_the_budget_is_shared_by_both_queues(account):
    account.put_due(("p1", "p2"), STATUS, in_priority=True)
    account.put_due(("q1", "q2"), STATUS)

    assert account.taken(budgets={"query": 3}, groups=GROUPS) == ["p1", "p2", "q1"]


@pytest.mark.parametrize(
    "due", ["", "abc", "-5", "1e300", "1.5", " 7", "nan", "inf", "9" * 400, str(2**53), "１２"]
)
def test_a_due_field_that_is_no_number_counts_as_due_now(account, due):
    account.put("1", fields={f"due:{STATUS}": due})

    assert account.taken(budgets={"query": 0}, groups=GROUPS) == []
    assert account.taken(budgets={"query": 1}, groups=GROUPS) == ["1"]


def test_the_largest_valid_due_field_is_not_due(account):
    account.put("1", fields={f"due:{STATUS}": 2**53 - 1})

    assert account.taken(budgets={"query": 0}, groups=GROUPS) == ["1"]


@pytest.mark.parametrize("in_priority", [True, False])
def test_a_due_hash_that_is_none_counts_as_all_due_and_aborts_nothing(account, in_priority):
    account.put("1", in_priority=in_priority)
    account.put("2")
    account.client.set(account.keys.due("1"), "garbage")

    assert account.taken(budgets={"query": 1, "usage": 0}, groups=GROUPS) == ["2"]
    assert account.taken(budgets={"query": 1, "usage": 1}, groups=GROUPS) == ["1"]


# Passing over


def test_a_passed_over_card_keeps_its_place(account):
    account.put("1", score=account.now_ms - 500, fields={f"due:{STATUS}": 1})

    account.claim(budgets={"query": 0}, groups=GROUPS)

    assert account.scores("1") == (None, account.now_ms - 500)


def test_a_claimed_card_that_does_not_fit_keeps_its_place_too(account):
    account.put("1", score=account.now_ms - 500, fields={f"due:{STATUS}": 1})
    account.client.set(account.keys.claim("1"), "leaked")

    account.claim(budgets={"query": 0}, groups=GROUPS)

    assert account.scores("1") == (None, account.now_ms - 500)
    assert account.client.pttl(account.keys.claim("1")) == -1


def test_an_exhausted_group_never_idles_another(account):
    account.put_due((f"s{n}" for n in range(300)), STATUS)
    account.put_due(("u1", "u2"), USAGE)

    assert account.taken(budgets={"query": 0, "usage": 2}, groups=GROUPS) == ["u1", "u2"]


def test_blocked_priority_cards_do_not_idle_the_normal_queue(account):
    account.put_due((f"s{n}" for n in range(50)), STATUS, in_priority=True)
    account.put_due(("u1",), USAGE)

    assert account.taken(budgets={"query": 0}, groups=GROUPS, scan_limit=40) == ["u1"]


@pytest.mark.parametrize(("scan_limit", "taken"), [(4, []), (5, ["u1"]), (6, ["u1", "u2"])])
def test_one_call_looks_at_no_more_members_than_the_scan_limit(account, scan_limit, taken):
    account.put_due((f"s{n}" for n in range(4)), STATUS)
    account.put("u1", score=account.now_ms - 2)
    account.put("u2", score=account.now_ms - 1)

    assert account.taken(budgets={"query": 0}, groups=GROUPS, scan_limit=scan_limit) == taken


def test_the_scan_limit_holds_for_all_queues_together(account):
    account.put_due(("p1", "p2"), in_priority=True)
    account.put_due(("q1", "q2"))

    assert account.taken(scan_limit=3) == ["p1", "p2", "q1"]


def test_the_scan_limit_is_2000_where_nothing_is_said(account):
    blocked = {f"s{n}": n for n in range(1999)}
    account.client.zadd(account.keys.queue, {**blocked, "u1": 5000, "u2": 5001})
    for card_id in blocked:
        account.client.set(account.keys.due(card_id), "garbage")

    assert account.taken(budgets={"query": 0}, groups=GROUPS) == ["u1"]


def test_a_passed_over_priority_card_is_not_counted_twice(account):
    account.put_due(("p1", "p2", "p3", "p4"), in_priority=True)
    account.put_due(("q1",))
    for card_id in ("p1", "p2"):
        account.client.hset(account.keys.due(card_id), f"due:{STATUS}", 1)

    room = {"limit": 3, "priority_ratio": 0.34, "scan_limit": 5}
    taken = account.taken(budgets={"query": 0}, groups=GROUPS, **room)

    assert taken == ["p3", "q1", "p4"]


def test_claimed_and_blocked_cards_across_pages_hide_nothing(account):
    for n in range(700):
        account.put(f"{n:03}", score=n, fields={f"due:{STATUS}": 1} if n % 3 == 0 else None)
        if n % 3 == 1:
            account.client.set(account.keys.claim(f"{n:03}"), "other", px=60_000)

    taken = account.taken(limit=1000, budgets={"query": 0}, groups=GROUPS)

    assert taken == [f"{n:03}" for n in range(700) if n % 3 == 2]


# Validate, then write


@pytest.mark.parametrize("kind", ["priority", "queue", "inflight"])
def test_a_queue_that_is_none_is_told_and_nothing_is_written(account, kind):
    account.put("1")
    account.put("2", in_priority=True)
    account.client.zadd(account.keys.inflight, {"old": 1})
    key = getattr(account.keys, kind)
    account.client.delete(key)
    account.client.set(key, "garbage")
    before = account.everything()

    with pytest.raises(ResponseError, match="WRONGTYPE"):
        account.claim()
    assert account.everything() == before


@pytest.mark.parametrize(
    "wrong",
    [
        {"now_ms": "soon"},
        {"lease_ms": ""},
        {"lease_ms": 0},
        {"limit": "many"},
        {"priority_ratio": -0.1},
        {"priority_ratio": "half"},
        {"token_prefix": ""},
        {"scan_limit": "all"},
    ],
    ids=str,
)
def test_a_wrong_argument_is_told_and_nothing_is_written(account, wrong):
    account.put("1")
    account.client.zadd(account.keys.inflight, {"old": 1})
    before = account.everything()

    with pytest.raises(ResponseError, match="claim: "):
        account.claim(**wrong)
    assert account.everything() == before
