"""remove.lua: a card leaves polling, whatever it is doing."""

import pytest

from cardpolling import state
from cardpolling.state import FieldChanges


@pytest.mark.parametrize("in_priority", [True, False])
def test_a_card_leaves_its_queue_and_its_due_hash(account, in_priority):
    account.put("1", in_priority=in_priority, fields={"due:carddata": 5})

    assert state.remove(account.client, 7, "1") is True
    assert not account.client.keys()


def test_a_card_in_both_queues_leaves_both(account):
    account.put("1", in_priority=True)
    account.put("1")

    assert state.remove(account.client, 7, "1") is True
    assert account.scores("1") == (None, None)


def test_a_card_in_no_queue_leaves_no_due_hash_behind(account):
    account.client.hset(account.keys.due("1"), "due:carddata", 5)

    assert state.remove(account.client, 7, "1") is False
    assert not account.client.keys()


def test_a_due_hash_that_is_none_goes_too(account):
    account.put("1")
    account.client.set(account.keys.due("1"), "garbage")

    assert state.remove(account.client, 7, "1") is True
    assert not account.client.keys()


def test_other_cards_stay(account):
    account.put("1", fields={"due:carddata": 5})
    account.put("10", fields={"due:carddata": 6})

    state.remove(account.client, 7, "1")

    assert account.scores("10") == (None, account.now_ms)
    assert account.fields("10") == {"due:carddata": "6"}


def test_a_running_execution_keeps_claim_and_right(account):
    account.put("1")
    account.hold()

    state.remove(account.client, 7, "1")

    assert account.client.get(account.keys.claim("1")) == "token"
    assert account.client.get(account.keys.exec_right("1")) == "me"


def test_a_running_execution_ends_without_putting_the_card_back(account):
    account.put("1", fields={"due:carddata": 5})
    claim = account.hold()
    state.remove(account.client, 7, "1")

    changes = FieldChanges({"due:carddata": account.now_ms + 1, "prio": "1"})
    state.finish(account.client, claim, changes, executor_id="me", now_ms=account.now_ms)

    assert not account.client.keys()


def test_removing_twice_says_so(account):
    account.put("1")

    assert [state.remove(account.client, 7, 1), state.remove(account.client, 7, 1)] == [True, False]


def test_many_are_removed_in_one_pipeline(account):
    account.put_due("ab")

    assert state.remove_many(account.client, 7, ["a", "x", "b"]) == [True, False, True]
