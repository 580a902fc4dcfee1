"""Many small requests, few calls."""

import asyncio
from concurrent.futures import ThreadPoolExecutor

import pytest

from cardpolling.batching import Batcher


@pytest.fixture
def pool():
    with ThreadPoolExecutor(2) as threads:
        yield threads


def test_items_of_one_moment_are_answered_by_one_call(pool):
    calls = []

    def work(items):
        calls.append(list(items))
        return [item * 2 for item in items]

    async def ask():
        batcher = Batcher(pool, work, linger_ms=5, max_items=100)
        return await asyncio.gather(*(batcher.ask(n) for n in range(5)))

    assert asyncio.run(ask()) == [0, 2, 4, 6, 8]
    assert calls == [[0, 1, 2, 3, 4]]


def test_a_batch_is_never_larger_than_its_limit(pool):
    sizes = []

    def work(items):
        sizes.append(len(items))
        return list(items)

    async def ask():
        batcher = Batcher(pool, work, linger_ms=1, max_items=3)
        return await asyncio.gather(*(batcher.ask(n) for n in range(10)))

    assert asyncio.run(ask()) == list(range(10))
    assert max(sizes) <= 3


def test_an_answer_that_is_an_exception_reaches_its_caller_only(pool):
    async def ask():
        batcher = Batcher(
            pool,
            lambda items: [ValueError() if n == 1 else n for n in items],
            linger_ms=1,
            max_items=9,
        )
        return await asyncio.gather(*(batcher.ask(n) for n in range(3)), return_exceptions=True)

    first, second, third = asyncio.run(ask())

    assert (first, third) == (0, 2)
    assert isinstance(second, ValueError)


def test_work_that_breaks_is_told_to_every_caller_of_the_batch_and_the_next_batch_runs(pool):
    answers = iter([OSError(), None])

    def work(items):
        if (error := next(answers)) is not None:
            raise error
        return list(items)

    async def ask():
        batcher = Batcher(pool, work, linger_ms=1, max_items=9)
        broken = await asyncio.gather(batcher.ask(1), batcher.ask(2), return_exceptions=True)
        return broken, await batcher.ask(3)

    broken, whole = asyncio.run(ask())

    assert [type(error) for error in broken] == [OSError, OSError]
    assert whole == 3


def test_a_caller_that_was_cancelled_does_not_disturb_the_others(pool):
    async def ask():
        batcher = Batcher(pool, list, linger_ms=5, max_items=9)
        gone, stays = batcher.ask(1), batcher.ask(2)
        gone.cancel()
        return await stays

    assert asyncio.run(ask()) == 2
