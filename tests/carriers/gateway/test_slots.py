"""Slots on an event loop: callers in line, slots reserved in bulk, and what becomes of both when somebody goes away."""

import asyncio
import itertools
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from cardpolling.keys import AccountKeys
from carriers.gateway.accounts import Group
from carriers.gateway.errors import Category, GatewayError
from carriers.gateway.slots import SlotReserver

KEYS = AccountKeys(1)


def limit(per_second):
    return 1, Group("query", per_second, ("card_status",))


@pytest.fixture
def on_loop(client):
    """Run a coroutine function with a reserver of its own loop."""

    def run(body, redis_client=None):
        async def main():
            with ThreadPoolExecutor(2) as pool:
                reserver = SlotReserver(redis_client or client, pool)
                try:
                    return await body(reserver)
                finally:
                    await reserver.close()

        return asyncio.run(main())

    return run


def in_s(seconds):
    return asyncio.get_running_loop().time() + seconds


async def take_all(reserver, of, number, *, within_s=5):
    """Take slots as so many callers at once; gives when each came to its turn."""

    async def one():
        slot = await reserver.take(of, latest_s=in_s(within_s))
        return slot, asyncio.get_running_loop().time()

    return await asyncio.gather(*(one() for _ in range(number)))


def test_callers_are_served_in_order_at_the_slots_times(on_loop):
    async def body(reserver):
        return await take_all(reserver, limit(50), 25)

    taken = on_loop(body)

    assert [slot for slot, _ in taken] == sorted(slot for slot, _ in taken)
    for (at_s, _), turn_s in taken:
        assert -0.001 <= turn_s - at_s <= 0.010
    span_s = taken[-1][0][0] - taken[0][0][0]
    assert span_s == pytest.approx(24 / 49.5, rel=0.05)


def test_a_caller_that_cannot_wait_long_enough_is_refused_at_once(on_loop):
    async def body(reserver):
        await take_all(reserver, limit(1), 1)
        began_s = time.monotonic()
        with pytest.raises(GatewayError) as caught:
            await reserver.take(limit(1), latest_s=in_s(0.5))
        return caught.value, time.monotonic() - began_s

    error, elapsed_s = on_loop(body)

    assert error.category is Category.RATE_LIMITED
    assert elapsed_s < 0.3


def test_a_caller_that_goes_away_leaves_its_slot_to_the_next(on_loop):
    async def body(reserver):
        of = limit(2)
        first = asyncio.create_task(take_all(reserver, of, 1))
        await first
        going = asyncio.create_task(reserver.take(of, latest_s=in_s(5)))
        await asyncio.sleep(0.1)
        staying = asyncio.create_task(reserver.take(of, latest_s=in_s(5)))
        await asyncio.sleep(0.1)
        going.cancel()
        began_s = time.monotonic()
        await staying
        return time.monotonic() - began_s

    assert on_loop(body) < 0.6


def test_a_slot_released_by_its_caller_goes_to_the_next(on_loop):
    async def body(reserver):
        of = limit(2)
        slot = await reserver.take(of, latest_s=in_s(5))
        waiting = asyncio.create_task(reserver.take(of, latest_s=in_s(5)))
        await asyncio.sleep(0)
        reserver.release(of, slot)
        return slot, await asyncio.wait_for(waiting, 1)

    slot, again = on_loop(body)

    assert again == slot


def test_a_slot_that_would_be_used_late_is_not_used(on_loop):
    async def body(reserver):
        taking = asyncio.create_task(take_all(reserver, limit(100), 20))
        await asyncio.sleep(0.03)
        time.sleep(0.15)
        return await taking

    taken = on_loop(body)

    assert max(turn_s - at_s for (at_s, _), turn_s in taken) < 0.02
    assert len({slot for slot, _ in taken}) == 20


def test_the_end_gives_back_every_slot_to_come(on_loop, client):
    async def body(reserver):
        tasks = [asyncio.create_task(reserver.take(limit(5), latest_s=in_s(60))) for _ in range(20)]
        await asyncio.sleep(0.5)
        await reserver.close()
        return await asyncio.gather(*tasks, return_exceptions=True)

    answers = on_loop(body)

    refused = [a for a in answers if isinstance(a, GatewayError)]
    assert len(refused) >= 15
    used = client.zcard(KEYS.limit("query")) - client.zcard(KEYS.free_slots("query"))
    assert used <= 5


def test_take_now_gets_what_is_free_or_is_refused(on_loop):
    async def body(reserver):
        of = limit(3)
        answers = await asyncio.gather(
            *(reserver.take_now(of) for _ in range(5)), return_exceptions=True
        )
        return [isinstance(a, GatewayError) for a in answers]

    assert on_loop(body) == [False] * 3 + [True] * 2


def test_exempt_calls_make_the_others_wait(on_loop):
    async def body(reserver):
        of = limit(5)
        for _ in range(5):
            reserver.enter_exempt(of)
        began_s = time.monotonic()
        await reserver.take(of, latest_s=in_s(5))
        return time.monotonic() - began_s

    assert on_loop(body) > 0.9


def test_without_redis_everybody_who_asks_is_refused_soon(on_loop):
    dead = redis.Redis(port=1, retry=Retry(NoBackoff(), 0), socket_connect_timeout=0.2)

    async def body(reserver):
        began_s = time.monotonic()
        answers = await asyncio.gather(
            *(reserver.take(limit(5), latest_s=in_s(5)) for _ in range(10)), return_exceptions=True
        )
        return answers, time.monotonic() - began_s

    answers, elapsed_s = on_loop(body, dead)

    assert all(isinstance(a, GatewayError) for a in answers)
    assert elapsed_s < 1


def test_two_loops_share_one_limit(client):
    async def body():
        with ThreadPoolExecutor(4) as pool:
            one, other = SlotReserver(client, pool), SlotReserver(client, pool)
            try:
                both = await asyncio.gather(
                    take_all(one, limit(40), 20), take_all(other, limit(40), 20)
                )
            finally:
                await one.close()
                await other.close()
            return sorted(slot[0] for slot, _ in both[0] + both[1])

    times = asyncio.run(body())

    assert times[-1] - times[0] == pytest.approx(39 / 39.6, rel=0.06)
    assert min(b - a for a, b in itertools.pairwise(times)) > 0.02
