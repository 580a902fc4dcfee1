"""drop_dispatch.lua: a dispatch lock is given up by its holder alone."""

from cardpolling import dispatchlock
from cardpolling.dispatchlock import DispatchLocks
from cardpolling.keys import AccountKeys


def drop(client, holder):
    return dispatchlock._drop.run(client, [AccountKeys(7).dispatch], [holder])


def test_the_holder_gives_its_lock_up(client):
    client.set(AccountKeys(7).dispatch, "me", px=30_000)

    assert drop(client, "me") == 1
    assert not client.keys()


def test_a_lock_that_is_another_ones_stays(client):
    client.set(AccountKeys(7).dispatch, "another", px=30_000)

    assert drop(client, "me") == 0
    assert client.get(AccountKeys(7).dispatch) == "another"


def test_no_lock_is_nobodys(client):
    assert drop(client, "me") == 0


def test_a_process_that_stops_leaves_its_accounts_to_others_at_once(client):
    locks = DispatchLocks(client, "me", 30_000)
    locks.hold([7, 8], ["me"])

    locks.give_up_all()

    assert not client.keys()
    assert not locks.is_held(7)
    assert DispatchLocks(client, "another", 30_000).hold([7, 8], ["another"]) == [7, 8]


def test_a_stopped_process_whose_lock_was_outlived_leaves_the_next_holder_alone(client):
    locks = DispatchLocks(client, "me", 30_000)
    locks.hold([7], ["me"])
    client.set(AccountKeys(7).dispatch, "another", px=30_000)

    locks.give_up_all()

    assert client.get(AccountKeys(7).dispatch) == "another"
