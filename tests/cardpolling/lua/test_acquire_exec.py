"""acquire_exec.lua: one executor at most runs a card."""

import pytest
from redis import ResponseError

from cardpolling import state
from cardpolling.state import Claim, ExecRight


def acquire(account, claim, executor="me", *, ttl_ms=60_000):
    return state.acquire_exec(account.client, claim, executor_id=executor, ttl_ms=ttl_ms)


def test_the_right_is_taken_where_the_claim_is_this_token(account):
    claim = account.hold(executor=None)

    assert acquire(account, claim) is ExecRight.TAKEN
    assert account.client.get(account.keys.exec_right("1")) == "me"
    assert 50_000 < account.client.pttl(account.keys.exec_right("1")) <= 60_000


def test_the_right_is_lost_where_there_is_no_claim(account):
    assert acquire(account, Claim(7, "1", "token")) is ExecRight.LOST
    assert not account.client.keys()


def test_the_right_is_lost_where_the_claim_is_another_token(account):
    account.hold(token="later", executor=None)
    before = account.everything()

    assert acquire(account, Claim(7, "1", "token")) is ExecRight.LOST
    assert account.everything() == before


def test_another_ones_right_keeps_the_next_executor_waiting(account):
    claim = account.hold(executor="another")

    assert acquire(account, claim, ttl_ms=90_000) is ExecRight.BUSY
    assert account.client.get(account.keys.exec_right("1")) == "another"
    assert account.client.pttl(account.keys.exec_right("1")) <= 60_000


def test_an_executor_that_holds_the_right_extends_it(account):
    claim = account.hold(executor="me")

    assert acquire(account, claim, ttl_ms=90_000) is ExecRight.TAKEN
    assert account.client.pttl(account.keys.exec_right("1")) > 60_000


def test_a_lost_claim_does_not_extend_the_right(account):
    account.hold(token="later", executor="me")

    assert acquire(account, Claim(7, "1", "token"), ttl_ms=90_000) is ExecRight.LOST
    assert account.client.pttl(account.keys.exec_right("1")) <= 60_000


def test_the_right_is_free_again_once_the_other_has_finished(account):
    claim = account.hold(executor="another")
    acquire(account, claim)
    account.client.delete(account.keys.exec_right("1"))

    assert acquire(account, claim) is ExecRight.TAKEN


def test_another_ones_right_without_expiry_is_given_one(account):
    claim = account.hold(executor=None)
    account.client.set(account.keys.exec_right("1"), "leaked")

    assert acquire(account, claim) is ExecRight.BUSY
    assert 50_000 < account.client.pttl(account.keys.exec_right("1")) <= 60_000


def test_taking_the_right_leaves_claim_flight_and_queues_alone(account):
    account.put("1", fields={"prio": "1"})
    claim = account.hold(executor=None)
    before = account.everything()

    acquire(account, claim)

    after = account.everything()
    after.keys.pop(account.keys.exec_right("1"))
    after.ttls_ms.pop(account.keys.exec_right("1"))
    assert after == before


def test_a_claim_that_is_no_string_is_not_this_token(account):
    account.client.rpush(account.keys.claim("1"), "token")

    assert acquire(account, Claim(7, "1", "token")) is ExecRight.LOST


def test_a_right_that_is_no_string_is_another_ones_and_ends(account):
    claim = account.hold(executor=None)
    account.client.rpush(account.keys.exec_right("1"), "me")

    assert acquire(account, claim) is ExecRight.BUSY
    assert account.client.pttl(account.keys.exec_right("1")) > 0


@pytest.mark.parametrize("ttl_ms", [0, -1, "soon", ""])
def test_a_wrong_expiry_is_told_and_nothing_is_written(account, ttl_ms):
    claim = account.hold(executor=None)
    before = account.everything()

    with pytest.raises(ResponseError):
        acquire(account, claim, ttl_ms=ttl_ms)
    assert account.everything() == before


def test_many_rights_are_taken_in_one_pipeline(account):
    mine, busy = account.hold("a", executor=None), account.hold("b", executor="another")
    lost = Claim(7, "c", "token")

    requests = [(mine, "me"), (busy, "me"), (lost, "me")]
    answers = state.acquire_exec_many(account.client, requests, ttl_ms=60_000)

    assert answers == [ExecRight.TAKEN, ExecRight.BUSY, ExecRight.LOST]
