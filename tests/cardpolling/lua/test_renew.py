"""renew.lua: lease and exec right are extended together, as long as both are the caller's."""

import pytest
from redis import ResponseError

from cardpolling import state
from cardpolling.state import Claim


def renew(account, claim, executor="me", *, lease_ms=90_000):
    return state.renew(
        account.client, claim, executor_id=executor, lease_ms=lease_ms, now_ms=account.now_ms
    )


def test_lease_and_exec_right_are_extended(account):
    claim = account.hold()

    assert renew(account, claim) is True
    assert 80_000 < account.client.pttl(account.keys.claim("1")) <= 90_000
    assert 80_000 < account.client.pttl(account.keys.exec_right("1")) <= 90_000


def test_a_lease_can_be_made_shorter(account):
    claim = account.hold()

    renew(account, claim, lease_ms=5_000)

    assert account.client.pttl(account.keys.claim("1")) <= 5_000


def test_the_expiry_in_flight_moves_along(account):
    claim = account.hold()

    renew(account, claim)

    assert account.in_flight() == {"token": account.now_ms + 90_000}


def test_a_token_that_was_dropped_from_flight_is_put_back(account):
    claim = account.hold()
    account.client.delete(account.keys.inflight)

    renew(account, claim)

    assert account.in_flight() == {"token": account.now_ms + 90_000}


@pytest.mark.parametrize("in_priority", [True, False])
def test_the_queue_score_moves_along_where_the_card_stands(account, in_priority):
    account.put("1", in_priority=in_priority)
    claim = account.hold()

    renew(account, claim)

    moved = account.now_ms + 90_000
    assert account.scores("1") == ((moved, None) if in_priority else (None, moved))


def test_a_removed_card_is_not_put_back(account):
    claim = account.hold()

    renew(account, claim)

    assert account.scores("1") == (None, None)


def test_the_due_hash_is_not_touched(account):
    account.put("1", fields={"prio": "1", "due:carddata": 5})
    claim = account.hold()

    renew(account, claim)

    assert account.fields("1") == {"prio": "1", "due:carddata": "5"}


@pytest.mark.parametrize(
    ("token", "executor"),
    [("another", "me"), ("token", "another"), ("token", None), ("another", "another")],
)
def test_a_lease_or_right_that_is_no_longer_ours_is_left_alone(account, token, executor):
    account.put("1")
    account.hold(token=token, executor=executor)
    before = account.everything()

    assert renew(account, Claim(7, "1", "token")) is False
    assert account.everything() == before
    assert account.client.pttl(account.keys.claim("1")) <= account.lease_ms


def test_a_claim_that_has_ended_cannot_be_renewed(account):
    account.client.set(account.keys.exec_right("1"), "me", px=60_000)

    assert renew(account, Claim(7, "1", "token")) is False
    assert account.in_flight() == {}


@pytest.mark.parametrize("kind", ["claim", "exec_right"])
def test_a_key_that_is_no_string_is_not_ours(account, kind):
    claim = account.hold()
    key = getattr(account.keys, kind)("1")
    account.client.delete(key)
    account.client.rpush(key, "token")

    assert renew(account, claim) is False


@pytest.mark.parametrize("lease_ms", [0, -1, "", "soon"])
def test_a_wrong_lease_is_told_and_nothing_is_written(account, lease_ms):
    account.put("1")
    claim = account.hold()
    before = account.everything()

    with pytest.raises(ResponseError):
        renew(account, claim, lease_ms=lease_ms)
    assert account.everything() == before


def test_many_are_renewed_in_one_pipeline(account):
    mine, foreign = account.hold("a"), account.hold("b", executor="another")

    held = [(mine, "me"), (foreign, "me")]
    answers = state.renew_many(account.client, held, lease_ms=90_000, now_ms=account.now_ms)

    assert answers == [True, False]
