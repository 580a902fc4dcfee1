"""What a call carries, and what sets it."""

import contextvars
import math
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from carriers.gateway.call import (
    Call,
    ExemptSource,
    current_carrier_id,
    current_exempt_source,
    current_wait_s,
    with_carrier,
    with_rate_limit_exempt,
    with_rate_limit_wait,
)

MANAGERS = [
    (with_carrier, current_carrier_id, 1, 2),
    (with_rate_limit_exempt, current_exempt_source, "manual", "refresh"),
    (with_rate_limit_wait, current_wait_s, 1.0, 0.0),
]
each_manager = pytest.mark.parametrize(("manager", "current", "outer", "inner"), MANAGERS)


@each_manager
def test_blocks_nest(manager, current, outer, inner):
    assert current() is None
    with manager(outer):
        with manager(inner):
            assert current() == inner
            with manager(None):
                assert current() is None
            assert current() == inner
        assert current() == outer
    assert current() is None


@each_manager
def test_block_ends_by_an_error_too(manager, current, outer, inner):
    with pytest.raises(LookupError), manager(outer), manager(inner):
        raise LookupError

    assert current() is None


@each_manager
def test_thread_inherits_nothing(manager, current, outer, inner):
    seen = []
    with manager(outer):
        thread = threading.Thread(target=lambda: seen.append(current()))
        thread.start()
        thread.join()

    assert seen == [None]


@each_manager
def test_thread_of_a_pool_inherits_nothing(manager, current, outer, inner):
    with ThreadPoolExecutor(1) as pool, manager(outer):
        assert pool.submit(current).result() is None


@each_manager
def test_managers_do_not_touch_each_other(manager, current, outer, inner):
    def settings():
        return [now() for _, now, _, _ in MANAGERS if now is not current]

    with manager(outer):
        assert settings() == [None, None]


@pytest.mark.parametrize("source", ["manual", "threshold", "renewal", "refresh"])
def test_exempt_sources(source):
    with with_rate_limit_exempt(source):
        assert current_exempt_source() is ExemptSource(source)


@pytest.mark.parametrize("source", ["", "polling", "MANUAL", True, 0])
def test_no_other_source_is_exempt(source):
    with pytest.raises(ValueError, match="not a valid"), with_rate_limit_exempt(source):
        pass

    assert current_exempt_source() is None


@pytest.mark.parametrize("seconds", [-0.1, math.nan, math.inf])
def test_wait_that_is_no_time(seconds):
    with pytest.raises(ValueError, match="number of seconds"), with_rate_limit_wait(seconds):
        pass


def test_context_of_a_block_can_be_taken_along_on_purpose():
    with with_carrier(5):
        context = contextvars.copy_context()

    assert context.run(current_carrier_id) == 5


def test_request_ids_are_unique_over_threads():
    with ThreadPoolExecutor(4) as pool:
        calls = list(pool.map(lambda _: Call("realname", "x", 1), range(2_000)))

    ids = {call.request_id for call in calls}
    assert len(ids) == 2_000
    assert {len(request_id) for request_id in ids} == {32}
