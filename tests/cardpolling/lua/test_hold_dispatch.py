"""hold_dispatch.lua: one process at most claims for an account."""

import time

import pytest
from redis import ResponseError

from cardpolling import dispatchlock
from cardpolling.dispatchlock import DispatchLocks
from cardpolling.keys import AccountKeys

ALONE = ["me"]


def lock(client, holder="me", *, ttl_ms=30_000):
    return DispatchLocks(client, holder, ttl_ms)


def until_gone(client):
    deadline_s = time.monotonic() + 5
    while client.exists("polling:{c7}:dispatch"):
        assert time.monotonic() < deadline_s


def test_a_free_lock_is_taken_for_its_time(client):
    assert lock(client).hold([7], ALONE) == [7]
    assert client.get("polling:{c7}:dispatch") == "me"
    assert 20_000 < client.pttl("polling:{c7}:dispatch") <= 30_000


def test_a_holder_keeps_its_lock_from_tick_to_tick(client):
    locks = lock(client)
    locks.hold([7], ALONE)
    client.pexpire("polling:{c7}:dispatch", 500)

    assert locks.hold([7], ALONE) == [7]
    assert client.pttl("polling:{c7}:dispatch") > 20_000


def test_another_ones_lock_is_left_as_it_is(client):
    lock(client, "another", ttl_ms=5_000).hold([7], ["another"])
    locks = lock(client)

    assert locks.hold([7], ALONE) == []
    assert not locks.is_held(7)
    assert client.get("polling:{c7}:dispatch") == "another"
    assert client.pttl("polling:{c7}:dispatch") <= 5_000


def test_a_lock_whose_time_is_over_is_free(client):
    client.set("polling:{c7}:dispatch", "another", px=1)
    until_gone(client)

    assert lock(client).hold([7], ALONE) == [7]


def test_one_of_two_processes_holds_each_account(client):
    both = ["me", "another"]
    carriers = list(range(1, 41))

    mine = lock(client).hold(carriers, both)
    others = lock(client, "another").hold(carriers, both)

    assert sorted(mine + others) == carriers
    assert min(len(mine), len(others)) > 8


def test_a_process_that_is_preferred_no_more_gives_its_lock_up(client):
    locks = lock(client)
    foreign = [c for c in range(1, 20) if dispatchlock.preferred(c, ["me", "new"]) == "new"]
    locks.hold(foreign, ALONE)

    assert locks.hold(foreign, ["me", "new"]) == []
    assert not client.exists(*(AccountKeys(c).dispatch for c in foreign))


def test_a_lock_outlived_by_its_holder_is_not_held(client):
    locks = lock(client, ttl_ms=60)
    locks.hold([7], ALONE)
    until_gone(client)

    assert not locks.is_held(7)


def test_a_lock_is_held_by_its_holders_clock_until_shortly_before_its_end(client):
    locks = lock(client)
    locks.hold([7], ALONE)

    assert locks.is_held(7)
    assert not locks.is_held(8)


@pytest.mark.parametrize("ttl_ms", [0, -1, "soon"])
def test_a_wrong_time_is_told_and_nothing_is_written(client, ttl_ms):
    keys, arguments = [AccountKeys(7).dispatch], ["me", ttl_ms]

    with pytest.raises(ResponseError):
        dispatchlock._hold.run(client, keys, arguments)
    assert not client.keys()


def test_who_is_preferred_is_the_same_for_whoever_asks():
    assert dispatchlock.preferred(7, ["a", "b", "c"]) == dispatchlock.preferred(7, ["c", "a", "b"])
    assert dispatchlock.preferred(7, []) is None


def test_a_process_that_leaves_moves_no_account_of_the_others():
    three = {c: dispatchlock.preferred(c, ["a", "b", "c"]) for c in range(100)}
    two = {c: dispatchlock.preferred(c, ["a", "b"]) for c in range(100)}

    assert all(two[c] == owner for c, owner in three.items() if owner != "c")
