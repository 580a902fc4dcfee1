"""The clients as the rest of the platform uses them: what a block sets reaches the guard, whatever is away."""

import asyncio
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from cardpolling import clock, connection
from cardpolling.keys import AccountKeys
from carriers.gateway import (
    AsyncGateway,
    GatewayError,
    SyncGateway,
    statistics,
    with_carrier,
    with_rate_limit_exempt,
    with_rate_limit_wait,
)
from carriers.gateway.accounts import AccountDirectory, Group
from carriers.gateway.statistics import MINUTE_MS
from carriers.models import Card, Carrier
from tests.carriers.gateway.conftest import CARRIER_ID, ICCID
from tests.carriers.gateway.outcomes import TOKEN, chain

GOOD = "good"
OPERATIONS = ["card_status", "carddata", "realname", "suspend", "resume"]


@pytest.fixture
def gateway(client):
    """A blocking gateway of its own."""
    made = SyncGateway(accounts=AccountDirectory())
    yield made
    made.close()


@pytest.fixture
def limited(make_account, simulator):
    """An account with one call a second for everything."""
    return make_account(gateway_url=simulator.url, groups=(Group("all", 1.0, tuple(OPERATIONS)),))


@pytest.fixture
def stored(transactional_db, simulator):
    """Two accounts in SQL, by code, each with one call a second; the first has the card."""
    rows = {}
    for code in ("first", "second"):
        rows[code] = Carrier.objects.create(
            name=code, code=code, gateway_url=simulator.url, gateway_token=TOKEN
        )
        rows[code].rate_limit_groups.create(name="all", max_per_second=1, operations=OPERATIONS)
    Card.objects.create(carrier=rows["first"], iccid=ICCID)
    return rows


@pytest.fixture
def away(client, settings):
    """Take Redis away, and give the function that brings it back."""

    def bring_back():
        settings.POLLING_REDIS_URL = good
        connection.reset()

    good = settings.POLLING_REDIS_URL
    clock.now_us()
    settings.POLLING_REDIS_URL = "redis://:hidden-word@127.0.0.1:1/0"
    connection.reset()
    yield bring_back
    bring_back()


@pytest.fixture
def hanging(client, settings):
    """Put a server in Redis's place that takes connections and never says a word."""
    good = settings.POLLING_REDIS_URL
    clock.now_us()
    with socket.create_server(("127.0.0.1", 0)) as server:
        settings.POLLING_REDIS_URL = f"redis://127.0.0.1:{server.getsockname()[1]}/0"
        connection.reset()
        yield
        settings.POLLING_REDIS_URL = good
        connection.reset()


def ask(client, operation="card_status"):
    """Category of what a call came to."""
    try:
        arguments = (ICCID, "test") if operation in ("suspend", "resume") else (ICCID,)
        getattr(client, operation)(*arguments)
    except GatewayError as error:
        for told in chain(error):
            assert "hidden-word" not in f"{told} {told!r}"
            assert TOKEN not in f"{told} {told!r}"
        return str(error.category)
    return GOOD


def totals(gateway, client, carrier_id=CARRIER_ID):
    """What a gateway counted."""
    gateway.statistics.flush(client)
    minute = clock.now_ms() // MINUTE_MS
    span = {"first_minute": minute - 1, "last_minute": minute}
    return statistics.totals(client, [carrier_id], **span)[carrier_id]


# --- Which account


def test_blocks_that_name_accounts_nest(gateway, stored, simulator):
    free = gateway.client(timeout_s=5)
    with with_rate_limit_exempt("manual"):
        ask(free)
        with with_carrier(stored["second"].pk):
            ask(free)
            with with_carrier(stored["first"].pk):
                ask(free)
            ask(free)
            with with_carrier(None):
                ask(free)
        ask(free)

    assert [made.carrier for made in simulator.calls] == [
        *("first", "second", "first", "second", "first", "first")
    ]


def test_the_account_that_is_called_is_the_one_that_is_charged(gateway, stored, client):
    free = gateway.client(timeout_s=5)

    assert ask(free) == GOOD
    assert ask(free) == "rate_limited"
    with with_carrier(stored["second"].pk):
        assert ask(free) == GOOD
        assert ask(free) == "rate_limited"

    for row in stored.values():
        found = totals(gateway, client, row.pk)
        assert (found.calls, found.refused) == (1, 1)


@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("source", [None, "manual"])
def test_account_that_cannot_be_found_is_a_config_error(
    gateway, stored, simulator, operation, source
):
    Card.objects.all().delete()

    with with_rate_limit_exempt(source):
        assert ask(gateway.client(), operation) == "config"
        with with_carrier(stored["second"].pk + 1):
            assert ask(gateway.client(), operation) == "config"

    assert simulator.calls == []


# --- Exempt


def test_exempt_ends_with_its_block_and_can_be_switched_off_within(gateway, limited):
    guarded = gateway.client(limited, timeout_s=5)
    with with_rate_limit_exempt("manual"):
        assert [ask(guarded), ask(guarded)] == [GOOD, GOOD]
        with with_rate_limit_exempt(None):
            assert ask(guarded) == "rate_limited"
            with with_rate_limit_exempt("refresh"):
                assert ask(guarded) == GOOD
            assert ask(guarded) == "rate_limited"
        assert ask(guarded) == GOOD
    assert ask(guarded) == "rate_limited"


@pytest.mark.parametrize("start", ["thread", "pool"])
def test_exempt_is_not_inherited_by_a_thread(gateway, limited, start):
    guarded, found = gateway.client(limited, timeout_s=5), []

    def work():
        found.append(ask(guarded))

    with ThreadPoolExecutor(1) as pool, with_rate_limit_exempt("manual"):
        ask(guarded)
        if start == "thread":
            thread = threading.Thread(target=work)
            thread.start()
            thread.join()
        else:
            pool.submit(work).result()

    assert found == ["rate_limited"]


@pytest.mark.parametrize("source", ["polling", "", "Manual", 1])
def test_unknown_source_calls_nobody(gateway, limited, simulator, source):
    guarded = gateway.client(limited, timeout_s=5)

    with pytest.raises(ValueError, match="not a valid"), with_rate_limit_exempt(source):
        ask(guarded)

    assert simulator.calls == []
    assert ask(guarded) == GOOD
    assert ask(guarded) == "rate_limited"


@pytest.mark.parametrize("source", ["manual", "threshold", "renewal", "refresh"])
def test_exempt_calls_stand_in_the_record(gateway, limited, client, source):
    with with_rate_limit_exempt(source):
        for _ in range(3):
            ask(gateway.client(limited, timeout_s=5))

    assert client.zcard(AccountKeys(CARRIER_ID).limit("all")) == 3
    assert totals(gateway, client).calls == 3


# --- Waits


def test_waits_nest_and_end_with_their_block(gateway, limited):
    guarded = gateway.client(limited, timeout_s=5)
    ask(guarded)
    with with_rate_limit_wait(3):
        with with_rate_limit_wait(0):
            assert ask(guarded) == "rate_limited"
        assert ask(guarded) == GOOD
        with with_rate_limit_wait(None):
            assert ask(guarded) == "rate_limited"
    assert ask(guarded) == "rate_limited"


def test_wait_is_counted_and_timed_apart(gateway, limited, client):
    guarded = gateway.client(limited, timeout_s=5)
    with with_rate_limit_wait(3):
        assert [ask(guarded), ask(guarded)] == [GOOD, GOOD]

    found = totals(gateway, client)
    assert (found.calls, found.failures, found.refused) == (2, 0, 0)
    assert found.waits in (1, 2)
    assert 0.8 < found.wait_s < 1.5
    assert found.duration_s < 0.8


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf")])
def test_wait_that_is_no_time_calls_nobody(gateway, limited, simulator, seconds):
    with pytest.raises(ValueError, match="number of seconds"), with_rate_limit_wait(seconds):
        ask(gateway.client(limited))

    assert simulator.calls == []


def test_threads_that_wait_start_one_after_the_other(gateway, make_account, simulator):
    groups = (Group("all", 10.0, ("card_status",)),)
    guarded = gateway.client(make_account(gateway_url=simulator.url, groups=groups), timeout_s=10)

    def work(_):
        with with_rate_limit_wait(5):
            return ask(guarded)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, range(25))) == {GOOD}

    starts = sorted(made.arrived_s for made in simulator.calls)
    # No second holds more than ten; half a hundredth of one is how exact an arrival is.
    assert all(later - sooner > 0.98 for sooner, later in zip(starts, starts[10:], strict=False))


# --- Retries


@pytest.mark.parametrize("most", [1, 2, 3])
def test_every_retry_takes_a_slot_of_its_own(gateway, make_account, simulator, client, most):
    groups = (Group("all", 50.0, ("card_status",)),)
    simulator.set_faults("close_before_header")
    account = make_account(gateway_url=simulator.url, groups=groups)

    assert ask(gateway.client(account, timeout_s=5, max_attempts=most)) == "network"

    assert len(simulator.calls) == most
    assert client.zcard(AccountKeys(CARRIER_ID).limit("all")) == most
    found = totals(gateway, client)
    assert (found.calls, found.failures) == (most, most)


def test_refused_retry_reports_what_was_really_met(gateway, limited, simulator, client):
    simulator.set_faults("close_before_header")

    assert ask(gateway.client(limited, timeout_s=5)) == "network"

    assert len(simulator.calls) == 1
    found = totals(gateway, client)
    assert (found.calls, found.failures, found.refused) == (1, 1, 1)


# --- Redis is away


@pytest.mark.parametrize("is_time_known", [True, False], ids=["after a while", "from the start"])
@pytest.mark.parametrize(
    ("source", "category", "sent"),
    [(None, "rate_limited", 0), *((s, GOOD, 1) for s in ("manual", "threshold", "renewal"))],
)
def test_without_redis_polling_is_refused_and_exempt_calls_pass(
    gateway, limited, simulator, away, source, category, sent, is_time_known
):
    if not is_time_known:
        clock.forget()

    with with_rate_limit_exempt(source):
        assert ask(gateway.client(limited, timeout_s=5)) == category

    assert len(simulator.calls) == sent


@pytest.mark.parametrize("wait_s", [None, 0, 2])
def test_without_redis_nobody_waits_for_a_slot(gateway, limited, away, wait_s):
    began_s = time.monotonic()
    with with_rate_limit_wait(wait_s):
        assert ask(gateway.client(limited, timeout_s=5)) == "rate_limited"

    assert time.monotonic() - began_s < 1


@pytest.mark.parametrize(
    ("source", "category", "sent"), [(None, "rate_limited", 0), ("manual", GOOD, 1)]
)
def test_redis_that_hangs_counts_as_away_within_the_deadline(
    gateway, limited, simulator, hanging, source, category, sent
):
    began_s = time.monotonic()
    with with_rate_limit_exempt(source):
        assert ask(gateway.client(limited, timeout_s=1)) == category

    assert time.monotonic() - began_s < 1
    assert len(simulator.calls) == sent


def test_without_redis_operations_of_no_group_pass(gateway, account, away):
    assert ask(gateway.client(account, timeout_s=5)) == GOOD


def test_without_redis_a_provider_that_refuses_is_still_reported(gateway, limited, simulator, away):
    simulator.set_faults("http429")
    with with_rate_limit_exempt("manual"):
        assert ask(gateway.client(limited, timeout_s=5)) == "provider_rate_limited"


def test_what_was_counted_without_redis_is_written_when_it_is_back(gateway, limited, client, away):
    guarded = gateway.client(limited, timeout_s=5)
    ask(guarded)
    with with_rate_limit_exempt("manual"):
        ask(guarded)
    away()

    assert ask(guarded) == GOOD
    found = totals(gateway, connection.polling_redis())
    assert (found.calls, found.refused) == (2, 1)


# --- On a loop


@pytest.fixture
def on_loop(client):
    """Run a coroutine function with a gateway of its own loop and a deadline."""

    def run(body):
        async def main():
            with ThreadPoolExecutor(2) as pool:
                gateway = AsyncGateway(client, pool, concurrency=8, accounts=AccountDirectory())
                try:
                    return await body(gateway, asyncio.get_running_loop().time() + 5)
                finally:
                    await gateway.close()

        return asyncio.run(main())

    return run


async def ask_on_loop(client):
    """Category of what a call came to."""
    try:
        await client.card_status(ICCID)
    except GatewayError as error:
        return str(error.category)
    return GOOD


def test_blocks_of_tasks_side_by_side_do_not_mix(on_loop, limited):
    async def body(gateway, deadline):
        guarded = gateway.client(limited, deadline=deadline, observer=None)

        async def work(source):
            with with_rate_limit_exempt(source), with_rate_limit_wait(0):
                await asyncio.sleep(0)
                return await ask_on_loop(guarded)

        await work(None)
        return await asyncio.gather(*map(work, ["manual", None, "renewal", None]))

    assert on_loop(body) == [GOOD, "rate_limited", GOOD, "rate_limited"]


def test_close_refuses_who_waits(on_loop, limited, simulator):
    async def body(gateway, deadline):
        guarded = gateway.client(limited, deadline=deadline, observer=None)
        await ask_on_loop(guarded)
        waiting = [asyncio.create_task(ask_on_loop(guarded)) for _ in range(3)]
        await asyncio.sleep(0)
        await gateway.close()
        return await asyncio.wait_for(asyncio.gather(*waiting), 1)

    assert on_loop(body) == ["rate_limited"] * 3
    assert len(simulator.calls) == 1


def test_call_of_no_time_is_a_timeout_and_sends_nothing(on_loop, account, simulator):
    async def body(gateway, _deadline):
        late = asyncio.get_running_loop().time() - 1
        return await ask_on_loop(gateway.client(account, deadline=late, observer=None))

    assert on_loop(body) == "timeout"
    assert simulator.calls == []
