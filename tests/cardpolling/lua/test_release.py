"""release.lua: a claim that was never published is given back."""

import pytest
from redis import ResponseError

from cardpolling import state
from cardpolling.state import Claim


def release(account, claim):
    return state.release(account.client, claim, now_ms=account.now_ms)


def test_a_claim_that_is_given_back_leaves_nothing_behind(account):
    claim = account.hold(executor=None)

    assert release(account, claim) is True
    assert not account.client.keys()


@pytest.mark.parametrize("in_priority", [True, False])
def test_its_card_is_due_now_where_it_stands(account, in_priority):
    account.put("1", in_priority=in_priority, score=account.now_ms + account.lease_ms)
    claim = account.hold(executor=None)

    release(account, claim)

    now_ms = account.now_ms
    assert account.scores("1") == ((now_ms, None) if in_priority else (None, now_ms))


def test_a_card_that_was_removed_is_not_put_back(account):
    claim = account.hold(executor=None)

    release(account, claim)

    assert account.scores("1") == (None, None)


def test_the_card_can_be_claimed_again_at_once(account):
    account.put("1")
    (claim,) = account.claim().claims
    release(account, claim)

    assert account.taken(token_prefix="next") == ["1"]


def test_a_released_priority_card_is_taken_from_priority_again(account):
    account.put("1", in_priority=True, fields={"prio": "1"})
    (claim,) = account.claim().claims
    release(account, claim)

    (again,) = account.claim(token_prefix="next").claims
    assert again.from_priority


@pytest.mark.parametrize("token", ["another", None])
def test_a_claim_that_is_not_this_token_is_left_alone(account, token):
    account.put("1", score=account.now_ms + 5)
    if token:
        account.hold(token=token)
    before = account.everything()

    assert release(account, Claim(7, "1", "token")) is False
    assert account.everything() == before


def test_releasing_twice_gives_nothing_back_the_second_time(account):
    account.put("1")
    claim = account.hold(executor=None)

    assert [release(account, claim), release(account, claim)] == [True, False]


def test_the_due_hash_is_not_touched(account):
    account.put("1", fields={"due:carddata": 5})
    claim = account.hold(executor=None)

    release(account, claim)

    assert account.fields("1") == {"due:carddata": "5"}


def test_a_claim_that_is_no_string_is_not_this_token(account):
    account.client.rpush(account.keys.claim("1"), "token")

    assert release(account, Claim(7, "1", "token")) is False


def test_a_wrong_time_is_told_and_nothing_is_written(account):
    account.put("1")
    claim = account.hold(executor=None)
    before = account.everything()

    with pytest.raises(ResponseError, match="release: "):
        state.release(account.client, claim, now_ms="soon")
    assert account.everything() == before


def test_many_are_released_in_one_pipeline(account):
    mine = account.hold("a", executor=None)

    claims = [mine, Claim(7, "b", "token")]
    assert state.release_many(account.client, claims, now_ms=account.now_ms) == [True, False]
