"""The limiter's scripts: never more than N in any second, all of N used, nobody overtaken, nothing left behind."""

import itertools
import math
import random
from collections import deque

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cardpolling import clock
from cardpolling.keys import AccountKeys
from carriers.gateway import limiter
from carriers.gateway.accounts import Account, Group
from carriers.gateway.limiter import Reservation, Want

START_MS = 1_764_547_200_000
SECOND_US = 1_000_000


@pytest.fixture(autouse=True)
def frozen(client):
    """A clock that stands still until it is advanced."""
    with clock.frozen(START_MS):
        yield


def limit(per_second, name="query"):
    return 1, Group(name, per_second, ("card_status",))


def most_in_a_window(times_us, per_second):
    """The most starts in any second, or in the longer time that a rate below one a second has for one start."""
    window_us = SECOND_US if per_second >= 1 else SECOND_US / per_second
    times = sorted(times_us)
    most = 0
    first = 0
    for last, at_us in enumerate(times):
        while times[first] <= at_us - window_us:
            first += 1
        most = max(most, last - first + 1)
    return most


def wait(client, of, seconds=60):
    """Reserve as a caller that can wait so long."""
    return limiter.reserve(client, of, clock.now_us() + round(seconds * SECOND_US))


@pytest.mark.parametrize("per_second", [0.5, 1, 2.5, 7, 100, 333.3])
def test_waiters_are_paced_evenly_and_use_almost_all(client, per_second):
    of = limit(per_second)
    number = max(4, round(per_second * 5))

    times = [wait(client, of, seconds=600) for _ in range(number)]

    assert times == sorted(times)
    assert most_in_a_window(times, per_second) <= math.ceil(per_second)
    used = (number - 1) / ((times[-1] - times[0]) / SECOND_US) / per_second
    assert 0.98 <= used <= 1.0


def test_at_once_n_are_free_and_no_more(client):
    of = limit(5)

    answers = [limiter.reserve(client, of, Want.NOW) for _ in range(8)]

    assert answers[:5] == [clock.now_us()] * 5
    assert answers[5:] == [None] * 3


def test_a_refused_call_consumes_nothing(client):
    of = limit(2)
    for _ in range(2):
        limiter.reserve(client, of, Want.NOW)
    before = client.zrange(AccountKeys(1).limit("query"), 0, -1)

    assert limiter.reserve(client, of, Want.NOW) is None
    assert limiter.reserve(client, of, clock.now_us() + 1000) is None
    assert client.zrange(AccountKeys(1).limit("query"), 0, -1) == before


def test_those_who_wait_are_served_in_order_before_those_who_do_not(client):
    of = limit(10)
    times = [wait(client, of) for _ in range(15)]

    clock.advance(1)
    assert limiter.reserve(client, of, Want.NOW) is None
    assert wait(client, of) > times[-1]


def test_exempt_calls_start_now_and_the_others_give_way(client):
    of = limit(10)
    exempt = [limiter.reserve(client, of, Want.EXEMPT) for _ in range(25)]
    waiting = [wait(client, of) for _ in range(10)]

    assert exempt == [clock.now_us()] * 25
    assert min(waiting) >= clock.now_us() + SECOND_US * 0.99


def test_groups_and_accounts_do_not_share(client):
    for _ in range(3):
        limiter.reserve(client, limit(3), Want.NOW)

    assert limiter.reserve(client, limit(3), Want.NOW) is None
    assert limiter.reserve(client, limit(3, "usage"), Want.NOW)
    assert limiter.reserve(client, (2, limit(3)[1]), Want.NOW)


def test_a_slot_given_back_goes_to_the_next_who_can_use_it(client):
    of = limit(10)
    times = [wait(client, of) for _ in range(10)]

    assert limiter.give_back(client, {of: [times[4]]}) == 1
    assert wait(client, of) == times[4]


def test_the_last_slots_given_back_are_gone(client):
    of = limit(10)
    times = [wait(client, of) for _ in range(10)]

    limiter.give_back(client, {of: times[5:]})

    assert wait(client, of) == pytest.approx(times[5], abs=2)


def test_a_slot_that_was_never_granted_cannot_be_given_back(client):
    of = limit(10)
    wait(client, of)

    assert limiter.give_back(client, {of: [clock.now_us() + 77]}) == 0


def test_a_provider_that_refuses_lowers_the_rate_for_a_while(client):
    of = limit(100)

    factor = limiter.throttle(client, 1, None)
    times = [wait(client, of) for _ in range(50)]

    assert factor == 0.5
    assert (times[-1] - times[0]) / SECOND_US >= 0.8
    clock.advance(60_000)
    later = [wait(client, of) for _ in range(100)]
    assert (later[-1] - later[0]) / SECOND_US <= 1.01


def test_many_refusals_at_once_are_one(client):
    factors = [limiter.throttle(client, 1, None) for _ in range(50)]

    assert set(factors) == {0.5}


@pytest.mark.parametrize("asked_ms", [2_000, 10**9])
def test_the_providers_own_time_is_honoured_up_to_a_bound(client, asked_ms):
    of = limit(100)
    limiter.throttle(client, 1, asked_ms)

    assert limiter.reserve(client, of, Want.NOW) is None
    at_us = wait(client, of, seconds=3600)

    assert at_us >= clock.now_us() + min(asked_ms, limiter.LONGEST_RETRY_AFTER_MS) * 1000
    assert at_us <= clock.now_us() + (limiter.LONGEST_RETRY_AFTER_MS + 1000) * 1000


def test_calls_left_are_what_a_waiter_could_get(client):
    account = Account(
        carrier_id=1,
        code="a",
        provider="standard",
        gateway_url="",
        token="",
        is_enabled=True,
        max_in_flight=1,
        priority_ratio=0.5,
        groups=(limit(50)[1],),
    )
    for taken in (0, 10, 30):
        for _ in range(taken):
            wait(client, limit(50))
        left = limiter.calls_left(client, account, 1_000)["query"]
        granted = [
            limiter.reserve(client, limit(50), clock.now_us() + SECOND_US) for _ in range(120)
        ]
        assert abs(sum(g is not None for g in granted) - left) <= 1
        client.flushall()


def test_every_key_ends_by_itself(client):
    of = limit(10)
    times = [wait(client, of) for _ in range(30)]
    limiter.give_back(client, {of: [times[3]]})
    limiter.throttle(client, 1, 1000)

    names = client.keys("*")

    assert len(names) == 3
    assert all(0 < client.pttl(name) < 120_000 for name in names)


def test_a_broken_record_costs_its_own_limit_only(client):
    client.set(AccountKeys(1).limit("query"), "no sorted set")

    broken, good = limiter.reserve_many(
        client, [Reservation(limit(5), [Want.NOW]), Reservation(limit(5, "usage"), [Want.NOW])]
    )

    assert isinstance(broken, redis.ResponseError)
    assert good == [clock.now_us()]


steps = st.lists(
    st.tuples(
        st.sampled_from(["now", "wait", "wait", "wait", "exempt", "back", "advance", "advance"]),
        st.integers(0, 1_500),
    ),
    min_size=5,
    max_size=120,
)


@settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(per_second=st.sampled_from([0.5, 1.0, 3.0, 7.5, 20.0]), moves=steps, seed=st.integers(0, 9))
def test_whatever_callers_do_no_second_holds_more_than_n(client, per_second, moves, seed):
    """Those who pass the limit are not counted, but the others must leave room for them."""
    client.flushall()
    clock.freeze(START_MS)
    dice = random.Random(seed)
    of = limit(per_second)
    used, exempt = [], []
    for kind, number in moves:
        if kind == "advance":
            clock.advance(number)
            continue
        if kind == "back":
            to_come = [at for at in used if at > clock.now_us()]
            if to_come:
                slot = dice.choice(to_come)
                used.remove(slot)
                limiter.give_back(client, {of: [slot]})
            continue
        if kind == "exempt":
            exempt.append(limiter.reserve(client, of, Want.EXEMPT))
            continue
        want = Want.NOW if kind == "now" else clock.now_us() + number * 10_000
        at_us = limiter.reserve(client, of, want)
        if at_us is not None:
            assert at_us >= clock.now_us()
            used.append(at_us)

    assert most_in_a_window(used, per_second) <= math.ceil(per_second)


def test_thousands_can_ask_at_once(client):
    of = limit(10_000)
    latest_us = clock.now_us() + 60 * SECOND_US

    (times,) = limiter.reserve_many(client, [Reservation(of, [latest_us] * 20_000)])

    assert len(times) == 20_000
    assert times == sorted(times)
    assert limiter.give_back(client, {of: times[10_000:]}) == 10_000


def test_fraction_means_one_call_in_so_many_seconds(client):
    of = limit(0.5)

    times = [wait(client, of, seconds=600) for _ in range(5)]

    gaps_s = [(b - a) / SECOND_US for a, b in itertools.pairwise(times)]
    assert all(2.0 <= gap_s <= 2.05 for gap_s in gaps_s)
    assert limiter.reserve(client, of, Want.NOW) is None
    clock.advance((times[-1] - clock.now_us()) / 1000 + 2_000)
    assert limiter.reserve(client, of, Want.NOW) is None
    clock.advance(50)
    assert limiter.reserve(client, of, Want.NOW) == clock.now_us()


def test_slot_that_passed_unused_lets_a_later_caller_follow_closer(client):
    of = limit(10)
    times = [wait(client, of) for _ in range(10)]
    clock.advance(450)
    missed = next(at for at in times if at > clock.now_us() - 100_000)
    clock.advance(200)
    limiter.give_back(client, {of: [missed]})

    # Who cannot wait so long takes nothing of what is owed to the others.
    assert limiter.reserve(client, of, clock.now_us() + 1) is None
    assert limiter.reserve(client, of, clock.now_us() + 1) is None
    closer, usual = wait(client, of), wait(client, of)

    assert closer - times[-1] < 60_000
    assert usual - closer > 100_000


@pytest.mark.parametrize("per_second", [50, 333])
def test_saturated_limit_is_used_though_some_slots_are_missed(client, per_second):
    """Ten callers in line; one in a hundred comes too late for its slot and gives it back; others ask in vain all the time."""
    of = limit(per_second)
    dice = random.Random(per_second)
    line = deque(wait(client, of) for _ in range(10))
    used = []
    began_us = clock.now_us()
    while clock.now_us() < began_us + 20 * SECOND_US:
        at_us = line.popleft()
        clock.advance(max(0, at_us - clock.now_us()) / 1000)
        if dice.random() < 0.01:
            clock.advance(15)
            limiter.give_back(client, {of: [at_us]})
        else:
            used.append(at_us)
        limiter.reserve(client, of, clock.now_us() + 1)
        line.append(wait(client, of))
        line = deque(sorted(line))

    assert most_in_a_window(used, per_second) <= per_second
    assert len(used) / ((used[-1] - used[0]) / SECOND_US) >= 0.98 * per_second


@settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    per_second=st.sampled_from([0.3, 1.0, 4.0, 15.0]),
    moves=st.lists(
        st.tuples(
            st.sampled_from(["now", "wait", "wait", "exempt", "missed", "throttle", "advance"]),
            st.integers(0, 1_200),
        ),
        max_size=80,
    ),
)
def test_whatever_happens_every_key_ends_and_late_slots_do_no_harm(client, per_second, moves):
    """A slot whose time has passed is given back by whoever did not use it; the provider refuses calls now and then."""
    client.flushall()
    clock.freeze(START_MS)
    of = limit(per_second)
    used = []
    for kind, number in moves:
        if kind == "advance":
            clock.advance(number)
        elif kind == "throttle":
            limiter.throttle(client, 1, number)
        elif kind == "exempt":
            limiter.reserve(client, of, Want.EXEMPT)
        elif kind == "missed":
            past = [at for at in used if at < clock.now_us()]
            if past:
                used.remove(past[-1])
                limiter.give_back(client, {of: [past[-1]]})
        else:
            want = Want.NOW if kind == "now" else clock.now_us() + number * 10_000
            at_us = limiter.reserve(client, of, want)
            if at_us is not None:
                used.append(at_us)
        assert all(client.pttl(name) > 0 for name in client.keys("*"))

    assert most_in_a_window(used, per_second) <= math.ceil(per_second)


@pytest.mark.parametrize("burst", [0, 3, 10])
def test_waiter_leaves_room_for_every_exempt_call(client, burst):
    of = limit(10)
    for _ in range(burst):
        limiter.reserve(client, of, Want.EXEMPT)

    times = [clock.now_us()] * burst + [wait(client, of) for _ in range(30)]

    assert most_in_a_window(times, 10) <= 10


def test_exempt_call_between_slots_to_come_delays_those_after_them(client):
    of = limit(10)
    first = [wait(client, of) for _ in range(5)]
    for _ in range(5):
        limiter.reserve(client, of, Want.EXEMPT)
    later = [wait(client, of) for _ in range(10)]

    assert later[0] >= first[0] + SECOND_US
    assert most_in_a_window(first + later, 10) <= 10
