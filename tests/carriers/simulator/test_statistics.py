"""What the simulator counts."""

import pytest

from carriers.simulator.statistics import Limit, SlidingCount, Statistics


def test_the_most_in_a_sliding_second_is_found_across_full_seconds():
    arrivals = SlidingCount()

    for at_s in (0.0, 0.6, 0.7, 0.8, 1.5, 1.65, 3.0):
        arrivals.add(at_s)

    assert arrivals.most == 4


def test_calls_exactly_a_second_apart_are_not_within_one():
    arrivals = SlidingCount()

    for at_s in range(5):
        arrivals.add(float(at_s))

    assert arrivals.most == 1


def test_a_limit_refuses_and_counts_what_passes_it():
    limit = Limit(2)

    admitted = [limit.admit(at_s) for at_s in (0.0, 0.1, 0.2, 0.9, 1.0, 1.05, 1.1)]

    assert admitted == [True, True, False, False, True, False, True]
    assert limit.violations == 3
    assert limit.retry_after_ms(1.2) == 801


@pytest.mark.parametrize(
    ("max_per_second", "spacing_s"),
    [(0.5, 2.0), (2.5, 0.4), (1, 1.0)],
)
def test_an_evenly_paced_caller_never_passes_a_fractional_limit(max_per_second, spacing_s):
    limit = Limit(max_per_second)

    assert all(limit.admit(n * spacing_s + n * 1e-9) for n in range(100))


def test_half_a_call_a_second_means_one_in_two_seconds():
    limit = Limit(0.5)

    assert [limit.admit(at_s) for at_s in (0.0, 1.9, 2.0)] == [True, False, True]


def test_two_calls_for_one_card_at_once_are_counted():
    statistics = Statistics()
    first = statistics.begin("acme", "carddata", "1", 0.0)
    statistics.begin("acme", "realname", "1", 0.1)
    statistics.begin("acme", "realname", "2", 0.1)
    statistics.end(first, "1")

    counts = statistics.as_json()["accounts"]["acme"]

    assert counts["overlapping_calls_of_a_card"] == 1
    assert (counts["calls"], counts["most_at_once"]) == (3, 3)
    assert counts["operations"] == {"carddata": 1, "realname": 2}
