"""scout.lua: cards that need no exhausted group are found behind many that do."""

import pytest
from redis import ResponseError

from cardpolling import scouting
from cardpolling.checktypes import CheckType
from cardpolling.scouting import Scout

STATUS, USAGE, REALNAME, PACKAGE = CheckType


def scout(account, *types, offset=0, count=100):
    return scouting.scout(
        account.client,
        account.keys,
        now_ms=account.now_ms,
        offset=offset,
        count=count,
        types=types or (STATUS,),
    )


def test_cards_of_which_no_exhausted_type_is_due_are_found_with_their_scores(account):
    account.put("1", score=5, fields={f"due:{STATUS}": account.now_ms})
    account.put("2", score=6, fields={f"due:{STATUS}": account.now_ms + 1, f"due:{USAGE}": 1})
    account.put("3", score=7)

    assert scout(account) == (3, {"2": 6, "3": 7})


def test_a_card_blocked_by_any_of_the_types_is_not_found(account):
    account.put("1", fields={f"due:{REALNAME}": 1})

    assert scout(account, STATUS, REALNAME) == (1, {})


def test_only_due_members_are_looked_at(account):
    account.put("1", score=account.now_ms + 1)

    assert scout(account) == (0, {})


def test_only_the_normal_queue_is_looked_at(account):
    account.put("1", in_priority=True)

    assert scout(account) == (0, {})


def test_offset_and_count_are_members_looked_at(account):
    account.put_due("abcde")
    account.client.hset(account.keys.due("b"), f"due:{STATUS}", 1)

    looked, found = scout(account, offset=1, count=3)

    assert (looked, list(found)) == (3, ["c", "d"])


def test_behind_the_end_there_is_nothing(account):
    account.put("1")

    assert scout(account, offset=1) == (0, {})


@pytest.mark.parametrize("due", ["", "abc", "-5", "1e300", "1.5", "nan"])
def test_a_due_field_that_is_no_number_counts_as_due(account, due):
    account.put("1", fields={f"due:{STATUS}": due})

    assert scout(account) == (1, {})


@pytest.mark.parametrize("due", [str(2**53), "9" * 30])
def test_a_due_field_that_is_too_large_counts_as_due_as_it_does_for_a_claim(account, due):
    account.put("1", fields={f"due:{STATUS}": due})

    assert scout(account) == (1, {})


def test_a_due_hash_that_is_none_is_blocked(account):
    account.put("1")
    account.put("2")
    account.client.set(account.keys.due("1"), "garbage")

    assert list(scout(account)[1]) == ["2"]


def test_looking_changes_nothing(account):
    account.put_due("abc", STATUS)
    before = account.everything()

    scout(account)

    assert account.everything() == before


@pytest.mark.parametrize("card_id", ["007", "1e3", "卡 7", "a:b"])
def test_ids_stay_strings(account, card_id):
    account.put(card_id)

    assert list(scout(account)[1]) == [card_id]


def test_without_an_exhausted_type_there_is_nothing_to_look_for(account):
    with pytest.raises(ResponseError, match="scout: "):
        scouting.scout(
            account.client, account.keys, now_ms=account.now_ms, offset=0, count=1, types=()
        )


# Paging from tick to tick


@pytest.fixture
def small_pages(monkeypatch):
    """Pages of three members, two a tick."""
    monkeypatch.setattr(scouting, "PAGE", 3)
    monkeypatch.setattr(scouting, "PAGES_PER_TICK", 2)


def look(account, scout, *, wanted=100):
    key = scout.look(account.client, now_ms=account.now_ms, exhausted=[STATUS], wanted=wanted)
    return key and account.client.zrange(key, 0, -1)


def fill(account, number, free):
    blocked = [f"{n:02}" for n in range(number) if n not in free]
    account.put_due(f"{n:02}" for n in range(number))
    for card_id in blocked:
        account.client.hset(account.keys.due(card_id), f"due:{STATUS}", 1)


@pytest.mark.usefixtures("small_pages")
def test_pages_go_on_where_the_last_tick_stopped(account):
    fill(account, 20, free=(1, 4, 9, 17))
    scout = Scout(account.keys)

    assert [look(account, scout) for _ in range(3)] == [["04"], ["09"], ["17"]]


@pytest.mark.usefixtures("small_pages")
def test_after_the_end_the_next_tick_begins_again_behind_the_first_page(account):
    fill(account, 7, free=(0, 5))
    scout = Scout(account.keys)

    assert [look(account, scout) for _ in range(2)] == [["05"], ["05"]]


@pytest.mark.usefixtures("small_pages")
def test_enough_is_enough(account):
    fill(account, 20, free=(3, 4, 6))

    assert look(account, Scout(account.keys), wanted=2) == ["03", "04"]


@pytest.mark.usefixtures("small_pages")
def test_nothing_found_is_none_and_leaves_no_key(account):
    fill(account, 9, free=())

    assert look(account, Scout(account.keys)) is None
    assert not account.client.exists(account.keys.candidates)


@pytest.mark.usefixtures("small_pages")
def test_candidates_can_be_claimed_and_end_by_themselves(account):
    fill(account, 9, free=(5,))
    key = Scout(account.keys).look(
        account.client, now_ms=account.now_ms, exhausted=[STATUS], wanted=9
    )

    assert 0 < account.client.pttl(key) <= scouting.CANDIDATES_KEPT_MS
    assert account.taken(queue_key=key, budgets={"q": 0}, groups={STATUS: "q"}) == ["05"]
