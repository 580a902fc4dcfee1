"""enroll.lua: a card comes under polling once, and what it already has is kept."""

import pytest

from cardpolling import state
from cardpolling.checktypes import CheckType

STATUS, USAGE, REALNAME, PACKAGE = CheckType


def enroll(account, due, card_id="1"):
    return state.enroll(account.client, 7, card_id, due)


def test_a_new_card_stands_in_the_normal_queue_at_its_earliest_due(account):
    assert enroll(account, {STATUS: 3000, USAGE: 2000, PACKAGE: 4000}) is True
    assert account.scores() == (None, 2000)


def test_a_new_card_has_its_due_times_and_its_account(account):
    enroll(account, {STATUS: 3000, USAGE: 2000})

    assert account.fields() == {f"due:{STATUS}": "3000", f"due:{USAGE}": "2000", "carrier": "7"}


@pytest.mark.parametrize("in_priority", [True, False])
def test_a_card_that_stands_in_a_queue_is_left_as_it_is(account, in_priority):
    account.put("1", in_priority=in_priority, fields={f"due:{STATUS}": 5})
    before = account.everything()

    assert enroll(account, {STATUS: 1, USAGE: 1}) is False
    assert account.everything() == before


def test_enrolling_twice_changes_nothing_the_second_time(account):
    enroll(account, {STATUS: 3000})

    assert enroll(account, {STATUS: 2000}) is False
    assert account.scores() == (None, 3000)


def test_due_fields_are_set_only_where_absent(account):
    account.client.hset(account.keys.due("1"), mapping={f"due:{STATUS}": 9000, f"ok:{STATUS}": 8})

    enroll(account, {STATUS: 1000, USAGE: 5000})

    assert account.fields() == {
        f"due:{STATUS}": "9000",
        f"ok:{STATUS}": "8",
        f"due:{USAGE}": "5000",
        "carrier": "7",
    }
    assert account.scores() == (None, 5000)


def test_a_due_field_left_from_before_counts_for_the_place(account):
    account.client.hset(account.keys.due("1"), f"due:{REALNAME}", 1000)

    enroll(account, {STATUS: 3000})

    assert account.scores() == (None, 1000)


def test_a_due_field_that_is_no_number_stays_and_the_given_time_is_the_place(account):
    account.client.hset(account.keys.due("1"), f"due:{STATUS}", "garbage")

    assert enroll(account, {STATUS: 3000}) is True
    assert account.fields()[f"due:{STATUS}"] == "garbage"
    assert account.scores() == (None, 3000)


def test_a_due_hash_that_is_none_gives_way(account):
    account.client.set(account.keys.due("1"), "garbage")

    assert enroll(account, {STATUS: 3000}) is True
    assert account.fields() == {f"due:{STATUS}": "3000", "carrier": "7"}


@pytest.mark.parametrize("due", [{}, {STATUS: "soon"}, {STATUS: -1}, {STATUS: 2**53}])
def test_without_a_valid_due_time_nothing_is_written(account, due):
    assert enroll(account, due) is False
    assert not account.client.keys()


def test_an_invalid_due_time_among_valid_ones_is_ignored(account):
    enroll(account, {STATUS: "1e3", USAGE: 2**53 - 1})

    assert account.fields() == {f"due:{USAGE}": str(2**53 - 1), "carrier": "7"}
    assert account.scores() == (None, 2**53 - 1)


def test_a_card_executed_while_it_is_enrolled_again_is_finished_in_time(account):
    claim = account.hold()
    enroll(account, {STATUS: 3000})

    changes = state.FieldChanges({f"due:{STATUS}": 7000})
    finished = state.finish(account.client, claim, changes, executor_id="me", now_ms=1)

    assert finished is True
    assert account.scores() == (None, 7000)


@pytest.mark.parametrize("card_id", ["007", "1e3", "卡 7", "a:b", "9007199254740993"])
def test_ids_stay_strings(account, card_id):
    enroll(account, {STATUS: 1}, card_id=card_id)

    assert account.client.zrange(account.keys.queue, 0, -1) == [card_id]
    assert account.fields(card_id)["carrier"] == "7"


def test_many_are_enrolled_in_one_pipeline(account):
    account.put("b")

    cards = [(card_id, {STATUS: 1}) for card_id in "abc"]
    assert state.enroll_many(account.client, 7, cards) == [True, False, True]
