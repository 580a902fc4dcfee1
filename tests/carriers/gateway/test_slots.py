"""Slots on an event loop: callers in line, slots reserved in bulk, and what becomes of both when somebody goes away."""

import asyncio
import itertools
import socket
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
    assert min(b - a for a, b in itertools.pairwise(times)) > 0.012


def in_use(client):
    """Slots of the record that somebody may use, or has used."""
    return client.zcard(KEYS.limit("query")) - client.zcard(KEYS.free_slots("query"))


def refusals(answers):
    return [isinstance(answer, GatewayError) and answer.category for answer in answers]


def test_immediate_caller_that_goes_away_leaves_its_slot(on_loop, client):
    async def body(reserver):
        of = limit(1)
        going = asyncio.create_task(reserver.take_now(of))
        await asyncio.sleep(0)
        going.cancel()
        await asyncio.sleep(0.1)
        return await reserver.take_now(of)

    on_loop(body)

    assert in_use(client) == 1


def test_immediate_caller_that_goes_away_while_the_limiter_is_asked_leaves_its_slot(
    on_loop, client
):
    async def body(reserver):
        of = limit(1)
        going = asyncio.create_task(reserver.take_now(of))
        while reserver._asking is None:
            await asyncio.sleep(0)
        going.cancel()
        await asyncio.sleep(0.1)
        return await reserver.take_now(of)

    on_loop(body)

    assert in_use(client) == 1


@pytest.mark.parametrize("method", ["take", "take_now"])
def test_caller_that_goes_away_as_its_turn_comes_leaves_its_slot(on_loop, client, method):
    async def body(reserver):
        of = limit(1)
        how = {"latest_s": in_s(5)} if method == "take" else {}
        going = asyncio.create_task(getattr(reserver, method)(of, **how))
        await asyncio.sleep(0)
        (line,) = reserver._lines.values()
        waiter = (line.waiters or line.immediate)[0]
        while not waiter.turn.done():
            await asyncio.sleep(0)
        # Its turn was given, and it has not heard of it yet.
        going.cancel()
        await asyncio.wait([going])
        return going.cancelled(), await reserver.take(of, latest_s=in_s(0.5))

    was_cancelled, _ = on_loop(body)

    assert was_cancelled
    assert in_use(client) == 1


def test_all_who_wait_go_away_and_all_slots_come_back(on_loop, client):
    async def body(reserver):
        tasks = [asyncio.create_task(reserver.take(limit(20), latest_s=in_s(9))) for _ in range(30)]
        await asyncio.sleep(0.2)
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.sleep(0.1)
        return sum(not task.cancelled() for task in tasks)

    served = on_loop(body)

    assert in_use(client) == served


def test_late_immediate_slot_is_not_used(on_loop):
    async def body(reserver):
        of = limit(100)
        taking = asyncio.create_task(reserver.take_now(of))
        while reserver._asking is None:
            await asyncio.sleep(0)
        time.sleep(0.1)
        slot = await taking
        return asyncio.get_running_loop().time() - slot[0]

    assert on_loop(body) <= 0.011


def test_after_the_end_everybody_is_refused_at_once(on_loop, client):
    async def body(reserver):
        await reserver.close()
        began_s = time.monotonic()
        answers = await asyncio.gather(
            reserver.take(limit(5), latest_s=in_s(5)),
            reserver.take_now(limit(5)),
            return_exceptions=True,
        )
        reserver.enter_exempt(limit(5))
        reserver.throttle(1, None)
        return answers, time.monotonic() - began_s

    answers, elapsed_s = on_loop(body)

    assert refusals(answers) == [Category.RATE_LIMITED] * 2
    assert elapsed_s < 0.1


def test_pool_that_is_shut_down_refuses_and_hangs_nobody(client, caplog):
    async def main():
        pool = ThreadPoolExecutor(1)
        reserver = SlotReserver(client, pool)
        pool.shutdown()
        answers = await asyncio.gather(
            reserver.take(limit(5), latest_s=in_s(5)),
            reserver.take_now(limit(5)),
            return_exceptions=True,
        )
        await reserver.close()
        return answers

    assert refusals(asyncio.run(main())) == [Category.RATE_LIMITED] * 2
    assert "limiter not asked" in caplog.text


@pytest.fixture
def hanging_redis():
    """A client of a server that accepts, and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = redis.Redis(
            port=server.getsockname()[1], retry=Retry(NoBackoff(), 0), socket_timeout=2.5
        )
        yield client
        client.close()


def test_while_redis_hangs_who_can_wait_no_longer_is_refused(on_loop, hanging_redis):
    async def timed(taking):
        began_s = time.monotonic()
        with pytest.raises(GatewayError):
            await taking
        return time.monotonic() - began_s

    async def body(reserver):
        of = limit(5)
        return await asyncio.gather(
            timed(reserver.take(of, latest_s=in_s(0.2))),
            timed(reserver.take_now(of)),
            timed(reserver.take(of, latest_s=in_s(1.2))),
        )

    early_s, now_s, late_s = on_loop(body, hanging_redis)

    # The watch looks every half second.
    assert early_s < 0.2 + 0.6
    assert now_s < 0.5 + 0.6
    assert 1.0 < late_s < 1.2 + 0.6


def test_redis_that_comes_back_is_used_again(on_loop, client):
    real = client.connection_pool.connection_kwargs["port"]

    async def body(reserver):
        client.connection_pool.reset()
        client.connection_pool.connection_kwargs["port"] = 1
        with pytest.raises(GatewayError):
            await reserver.take(limit(5), latest_s=in_s(5))
        client.connection_pool.connection_kwargs["port"] = real
        client.connection_pool.reset()
        return await reserver.take(limit(5), latest_s=in_s(5))

    assert on_loop(body)


def test_exempt_calls_pass_while_redis_is_away(on_loop):
    dead = redis.Redis(port=1, retry=Retry(NoBackoff(), 0), socket_connect_timeout=0.2)

    async def body(reserver):
        began_s = time.monotonic()
        for _ in range(10):
            reserver.enter_exempt(limit(5))
        return time.monotonic() - began_s

    assert on_loop(body, dead) < 0.05


def test_slot_is_told_once_and_before_its_turn(on_loop):
    async def body(reserver):
        told = []

        async def one(i):
            await reserver.take(
                limit(50), latest_s=in_s(5), on_slot=lambda: told.append(("slot", i))
            )
            told.append(("turn", i))

        going = asyncio.create_task(one("x"))
        others = [asyncio.create_task(one(i)) for i in range(8)]
        await asyncio.sleep(0.03)
        # Everybody behind moves up by one: the slots were asked for in another order than they are used.
        going.cancel()
        late = [asyncio.create_task(one(i)) for i in range(8, 12)]
        await asyncio.wait(others + late)
        return told

    told = on_loop(body)

    for i in range(12):
        assert told.count(("slot", i)) == 1
        assert told.index(("slot", i)) < told.index(("turn", i))


def test_error_of_one_caller_is_not_that_of_the_others(on_loop, client):
    def fail():
        raise LookupError

    async def body(reserver):
        of = limit(50)
        failing = reserver.take(of, latest_s=in_s(5), on_slot=fail)
        return await asyncio.gather(
            failing,
            *(reserver.take(of, latest_s=in_s(5)) for _ in range(5)),
            return_exceptions=True,
        )

    answers = on_loop(body)

    assert isinstance(answers[0], LookupError)
    assert all(isinstance(answer, tuple) for answer in answers[1:])


def test_no_line_starves_another(on_loop):
    async def body(reserver):
        loop = asyncio.get_running_loop()
        busy = (1, Group("query", 200, ("card_status",)))
        calm = [(carrier, Group("query", 10, ("card_status",))) for carrier in range(2, 12)]
        crowd = [asyncio.create_task(reserver.take(busy, latest_s=in_s(3))) for _ in range(400)]
        await asyncio.sleep(0.05)
        began_s = loop.time()
        await asyncio.gather(*(reserver.take(of, latest_s=in_s(3)) for of in calm))
        elapsed_s = loop.time() - began_s
        for task in crowd:
            task.cancel()
        await asyncio.wait(crowd)
        return elapsed_s

    assert on_loop(body) < 0.3


def test_limit_that_is_changed_leaves_nothing_behind(on_loop):
    async def body(reserver):
        for per_second in range(100, 140):
            await reserver.take(limit(per_second), latest_s=in_s(2))
        return len(reserver._lines)

    assert on_loop(body) <= 2
