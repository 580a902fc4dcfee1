"""What an account may start now."""

import pytest

from cardpolling import budget
from cardpolling.budget import Backlog, PriorityTurns


@pytest.mark.parametrize(
    ("changed", "limit"),
    [
        pytest.param({}, 500, id="the configured limit"),
        pytest.param({"places": 200}, 400, id="the places of the live workers"),
        pytest.param({"calls_per_s": 2.0}, 30, id="what the limit allows within half a lease"),
        pytest.param({"calls_per_s": 0.01}, 1, id="never less than one for a slow account"),
        pytest.param({"calls_per_s": None}, 500, id="an unlimited account"),
        pytest.param({"waiting": 1450}, 50, id="less what waits in RQ"),
        pytest.param({"waiting": 1500}, 0, id="nothing while too much waits in RQ"),
    ],
)
def test_in_flight_limit_is_the_least_of(changed, limit):
    standing = {
        "configured": 500,
        "places": 1000,
        "calls_per_s": 100.0,
        "lease_ms": 30_000,
        "waiting": 0,
    }

    assert budget.in_flight_limit(**(standing | changed)) == limit


def test_calls_claimed_and_not_yet_made_are_not_claimed_again():
    backlog = Backlog(owed={"query": 30}, cards_not_begun=10)

    left = budget.calls_left({"query": 75, "usage": 75}, backlog, {"query": 2.0, "usage": 0.5})

    assert left == {"query": 75 - 30 - 20, "usage": 75 - 5}


def test_calls_left_are_never_negative():
    assert budget.calls_left({"query": 5}, Backlog({"query": 80}, 0), {}) == {"query": 0}


def _play(turns: PriorityTurns, rooms: list[int], ratio: float) -> int:
    """Slots that priority gets where both queues are full."""
    taken = 0
    for room in rooms:
        quota = turns.quota(room, ratio)
        turns.settle(
            room=room, quota=quota, ratio=ratio, from_priority=quota, from_normal=room - quota
        )
        taken += quota
    return taken


@pytest.mark.parametrize("ratio", [0.1, 0.25, 0.5, 0.8, 1.0])
@pytest.mark.parametrize("room", [1, 2, 3, 7])
def test_priority_gets_its_ratio_however_few_slots_a_tick_has(ratio, room):
    rooms = [room] * (100 // room)

    assert _play(PriorityTurns(), rooms, ratio) == pytest.approx(sum(rooms) * ratio, abs=2)


def test_priority_may_take_all_where_the_ratio_is_zero():
    assert PriorityTurns().quota(7, 0) == 7


def test_a_turn_that_the_normal_queue_could_not_use_goes_to_priority_next():
    turns = PriorityTurns()
    turns.settle(room=1, quota=0, ratio=0.5, from_priority=0, from_normal=0)

    assert turns.quota(1, 0.5) == 1


def test_debts_do_not_pile_up_while_one_queue_is_short():
    turns = PriorityTurns()
    for _ in range(50):
        turns.settle(room=10, quota=5, ratio=0.5, from_priority=1, from_normal=9)

    assert turns.quota(10, 0.5) == 5
