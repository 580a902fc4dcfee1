"""How many places one account may hold."""

import pytest

from cardpolling import bulkhead


def _fill(places: int, accounts: int, hogs: int) -> list[int]:
    held = [0] * hogs
    is_growing = True
    while is_growing:
        is_growing = False
        for hog in range(hogs):
            free = places - sum(held)
            if bulkhead.may_take(held=held[hog], free=free, places=places, accounts=accounts):
                held[hog] += 1
                is_growing = True
    return held


def test_one_account_alone_gets_half_of_the_places():
    assert _fill(500, accounts=50, hogs=1) == [250]


@pytest.mark.parametrize("hogs", [2, 8, 20])
def test_accounts_that_hang_always_leave_room_for_one_more(hogs):
    held = _fill(500, accounts=50, hogs=hogs)

    assert 500 - sum(held) >= 500 // (hogs + 1)


def test_an_account_below_its_even_share_gets_the_last_place():
    assert bulkhead.may_take(held=9, free=1, places=500, accounts=50)
    assert not bulkhead.may_take(held=10, free=1, places=500, accounts=50)


def test_all_places_are_used_when_every_account_wants_them():
    assert sum(_fill(500, accounts=50, hogs=50)) == 500


def test_a_job_is_not_started_without_places_for_all_its_cards():
    assert not bulkhead.may_take(held=0, free=19, places=500, accounts=3, wanted=20)


def test_a_job_larger_than_the_process_is_let_into_an_empty_one():
    assert bulkhead.may_take(held=0, free=5, places=5, accounts=3, wanted=20)
    assert not bulkhead.may_take(held=0, free=4, places=5, accounts=3, wanted=20)
