"""Nothing reaches a gateway without a slot, and everything that does is counted once."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from cardpolling import clock
from cardpolling.keys import AccountKeys
from carriers.gateway import (
    AsyncGateway,
    GatewayClient,
    GatewayError,
    statistics,
    with_carrier,
    with_rate_limit_exempt,
    with_rate_limit_wait,
)
from carriers.gateway.accounts import AccountDirectory, Group
from carriers.gateway.guard import Guard
from carriers.gateway.statistics import MINUTE_MS, Statistics
from carriers.gateway.transport import RequestsTransport
from carriers.models import Card, Carrier, RateLimitGroup
from tests.carriers.gateway.conftest import CARRIER_ID, ICCID
from tests.carriers.gateway.outcomes import TOKEN, assert_clean

ONE_A_SECOND = Group("query", 1.0, ("card_status", "carddata", "realname"))


@pytest.fixture
def limited(make_account, simulator):
    """An account at the simulator with one call a second."""
    return make_account(gateway_url=simulator.url, groups=(ONE_A_SECOND,))


def test_call_without_a_slot_is_refused_at_once_and_not_sent(call, limited, simulator):
    with with_rate_limit_wait(0):
        outcomes = [call(limited), call(limited)]

    assert [outcome.category for outcome in outcomes] == ["good", "rate_limited"]
    assert not outcomes[1].error.was_sent
    assert outcomes[1].elapsed_s < 0.5
    assert len(simulator.calls) == 1
    totals = call.totals()
    assert (totals.calls, totals.failures, totals.refused) == (1, 0, 1)


def test_call_waits_for_its_slot_as_long_as_it_may(call, limited, simulator):
    with with_rate_limit_wait(3):
        outcomes = [call(limited, deadline_s=5), call(limited, deadline_s=5)]

    assert [outcome.category for outcome in outcomes] == ["good", "good"]
    assert 0.9 < outcomes[1].elapsed_s < 1.5
    totals = call.totals()
    assert (totals.calls, totals.refused) == (2, 0)
    # Waits are timed apart from the calls.
    assert totals.waits >= 1
    assert totals.wait_s > 0.8
    assert totals.duration_s < 0.8


def test_wait_that_is_too_short_is_refused_without_waiting(call, limited):
    call(limited)
    with with_rate_limit_wait(0.3):
        outcome = call(limited, deadline_s=5)

    assert outcome.category == "rate_limited"
    assert outcome.elapsed_s < 0.3


def test_deadline_bounds_the_wait(call, limited):
    call(limited)
    with with_rate_limit_wait(30):
        outcome = call(limited, deadline_s=0.3)

    assert outcome.category == "rate_limited"
    assert_clean(outcome)


@pytest.mark.parametrize("source", ["manual", "threshold", "renewal", "refresh"])
def test_exempt_calls_pass_and_the_others_give_way(call, limited, simulator, source):
    with with_rate_limit_exempt(source):
        exempt = [call(limited) for _ in range(3)]
    if call.is_async:
        call.idle(0.1)
    with with_rate_limit_wait(0):
        polling = call(limited)

    assert [outcome.category for outcome in exempt] == ["good"] * 3
    assert polling.category == "rate_limited"
    assert len(simulator.calls) == 3


def test_operation_of_no_group_is_not_limited(call, limited):
    outcomes = [call(limited, "suspend") for _ in range(3)]

    assert [outcome.category for outcome in outcomes] == ["good"] * 3


def test_operations_of_a_group_share_its_limit(call, limited):
    with with_rate_limit_wait(0):
        outcomes = [call(limited, operation) for operation in ONE_A_SECOND.operations]

    assert [outcome.category for outcome in outcomes] == ["good", "rate_limited", "rate_limited"]


def test_retry_without_a_slot_reports_the_failure_that_was_met(call, limited, simulator):
    simulator.set_faults("close_before_header")
    with with_rate_limit_wait(0):
        outcome = call(limited)

    assert_clean(outcome)
    assert outcome.category == "network"
    assert len(simulator.calls) == 1
    totals = call.totals()
    assert (totals.calls, totals.failures, totals.refused) == (1, 1, 1)


def test_retry_takes_a_slot_of_its_own(call, limited, simulator):
    simulator.set_faults("close_before_header")
    with with_rate_limit_wait(4):
        outcome = call(limited, deadline_s=5)

    assert outcome.category == "network"
    first, second = (made.arrived_s for made in simulator.calls)
    assert second - first > 0.9


@pytest.mark.parametrize("kind", ["code_1004_retry", "http429"])
def test_provider_that_refuses_lowers_the_rate(call, limited, simulator, client, kind):
    simulator.set_faults(kind)

    call(limited)
    call.idle(0.2)

    assert client.get(AccountKeys(CARRIER_ID).throttle)
    assert call.totals().calls == 1


def test_without_the_limiter_polling_is_refused(call_without_limiter, limited, simulator):
    outcome = call_without_limiter(limited)

    assert outcome.category == "rate_limited"
    assert_clean(outcome)
    assert not simulator.calls


def test_without_the_limiter_exempt_calls_pass(call_without_limiter, limited):
    with with_rate_limit_exempt("manual"):
        outcome = call_without_limiter(limited)

    assert outcome.category == "good"


def test_misconfigured_account_is_counted_as_an_attempt_and_never_sent(call, make_account):
    call(make_account(fault="no key"))

    assert call.totals().failures == 1


# --- Which account


@pytest.fixture
def stored(transactional_db, simulator):
    """An account in SQL with one call a second, and a card of it."""
    carrier = Carrier.objects.create(
        pk=CARRIER_ID + 1,
        name="stored",
        code="stored",
        gateway_url=simulator.url,
        gateway_token=TOKEN,
    )
    RateLimitGroup.objects.create(
        carrier=carrier, name="query", max_per_second=1, operations=["card_status"]
    )
    Card.objects.create(carrier=carrier, iccid=ICCID)
    return carrier


def test_account_named_by_the_caller_is_charged_and_called(call, make_account, stored, simulator):
    nowhere = make_account(gateway_url="http://127.0.0.1:9")
    with with_carrier(stored.pk), with_rate_limit_wait(0):
        outcomes = [call(nowhere), call(nowhere), call(None)]

    assert [outcome.category for outcome in outcomes] == ["good", "rate_limited", "rate_limited"]
    assert [made.carrier for made in simulator.calls] == ["stored"]


def test_named_account_can_be_reset(call, account, stored, simulator):
    with with_carrier(stored.pk), with_carrier(None):
        assert call(account).category == "good"

    assert [made.carrier for made in simulator.calls] == ["acme"]


def test_account_that_does_not_exist_is_never_unlimited(call, account, stored, simulator):
    with with_carrier(999_999):
        outcome = call(account)

    assert (outcome.category, outcome.error.was_sent) == ("config", False)
    assert not simulator.calls


@pytest.fixture
def blocking(client):
    """A blocking client that finds the account of each card."""
    transport = RequestsTransport()
    guard = Guard(AccountDirectory(), Statistics(), lambda *_: None)
    yield GatewayClient(None, guard=guard, transport=transport, timeout_s=2)
    transport.close()


def test_account_is_found_by_the_card_number(blocking, stored, simulator):
    blocking.card_status(ICCID)

    with pytest.raises(GatewayError, match="no slot"):
        blocking.card_status(ICCID)
    assert [made.carrier for made in simulator.calls] == ["stored"]


def test_unknown_card_has_no_account(blocking, stored, simulator):
    with pytest.raises(GatewayError, match="no account") as caught:
        blocking.card_status(ICCID[:-1])

    assert (caught.value.category, caught.value.was_sent) == ("config", False)
    assert not simulator.calls


def test_account_of_a_card_is_not_looked_up_on_a_loop(call, stored, simulator):
    outcome = call(None)

    assert_clean(outcome)
    assert outcome.category == ("internal" if call.is_async else "good")


def test_client_without_a_guard_neither_limits_nor_counts(client, limited, simulator):
    transport = RequestsTransport()
    free = GatewayClient(limited, guard=None, transport=transport, timeout_s=2)
    for _ in range(3):
        free.card_status(ICCID)
    transport.close()

    assert len(simulator.calls) == 3
    assert client.keys("*") == []


def test_client_without_guard_and_account_is_misconfigured():
    nothing = GatewayClient(None, guard=None, transport=RequestsTransport())

    with pytest.raises(GatewayError) as caught:
        nothing.card_status(ICCID)

    assert caught.value.category == "config"


# --- What is recorded


def test_record_that_fails_does_not_change_what_the_call_brought(
    client, account, simulator, caplog
):
    def throttle(*_):
        raise RuntimeError

    simulator.set_faults("http429")
    transport = RequestsTransport()
    guard = Guard(AccountDirectory(), Statistics(), throttle)

    with pytest.raises(GatewayError) as caught:
        GatewayClient(account, guard=guard, transport=transport, timeout_s=2).card_status(ICCID)
    transport.close()

    assert caught.value.category == "provider_rate_limited"
    assert "attempt not recorded" in caplog.text


class Observer:
    """Hears of each attempt, and stops it where asked."""

    def __init__(self, stops=False):
        self.heard = []
        self.stops = stops

    def on_slot(self, call):
        self.heard.append(("slot", call.attempt))

    def before_exchange(self, call):
        self.heard.append(("exchange", call.attempt))
        if self.stops:
            raise LookupError


@pytest.fixture
def on_loop(client):
    """Run a coroutine function with a gateway of its own loop, and give what was counted."""

    def run(body):
        async def main():
            with ThreadPoolExecutor(2) as pool:
                gateway = AsyncGateway(client, pool, concurrency=4)
                try:
                    await body(gateway, asyncio.get_running_loop().time() + 3)
                finally:
                    await gateway.close()
                    gateway.statistics.flush(client)

        asyncio.run(main())
        minute = clock.now_ms() // MINUTE_MS
        span = {"first_minute": minute - 1, "last_minute": minute}
        return statistics.read(client, [CARRIER_ID], **span)[CARRIER_ID]

    return run


def test_call_that_is_cancelled_on_the_wire_is_counted_once(on_loop, limited, simulator):
    simulator.set_faults("hang")

    async def body(gateway, deadline):
        client = gateway.client(limited, deadline=deadline, observer=None)
        task = asyncio.create_task(client.card_status(ICCID))
        while not simulator.calls:
            await asyncio.sleep(0.01)
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert task.cancelled()

    counts = on_loop(body)

    assert counts["card_status|cancelled|n"] == 1
    assert sum(n for name, n in counts.items() if name.endswith("|n") and "wait" not in name) == 1


def test_call_that_is_cancelled_while_it_waits_is_not_counted(on_loop, limited, simulator):
    async def body(gateway, deadline):
        client = gateway.client(limited, deadline=deadline, observer=None)
        await client.card_status(ICCID)
        with suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await client.card_status(ICCID)

    counts = on_loop(body)

    assert counts["card_status|success|n"] == 1
    assert len(simulator.calls) == 1
    assert not any("refused" in name or "cancelled" in name for name in counts)


def test_observer_hears_of_slot_and_exchange(on_loop, limited, simulator):
    observer = Observer()
    simulator.set_faults("close_before_header")

    async def body(gateway, deadline):
        client = gateway.client(limited, deadline=deadline, observer=observer)
        with suppress(GatewayError):
            await client.card_status(ICCID)

    on_loop(body)

    assert observer.heard == [("slot", 1), ("exchange", 1), ("slot", 2), ("exchange", 2)]


def test_observer_that_stops_a_call_leaves_its_slot_to_others(on_loop, limited, simulator):
    async def body(gateway, deadline):
        stopped = gateway.client(limited, deadline=deadline, observer=Observer(stops=True))
        other = gateway.client(limited, deadline=deadline, observer=None)
        for _ in range(3):
            with suppress(LookupError):
                await stopped.card_status(ICCID)
        await other.card_status(ICCID)

    counts = on_loop(body)

    assert len(simulator.calls) == 1
    assert counts["card_status|success|n"] == 1
    assert not any("refused" in name or "internal" in name for name in counts)


def test_threads_share_one_blocking_client(client, account, simulator):
    transport = RequestsTransport()
    counts = Statistics()
    guard = Guard(AccountDirectory(), counts, lambda *_: None)
    shared = GatewayClient(account, guard=guard, transport=transport, timeout_s=5)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: shared.card_status(ICCID).status, range(100)))
    transport.close()

    assert len(set(answers)) == 1
    assert len(simulator.calls) == 100
    assert len({made.request_id for made in simulator.calls}) == 100


def test_nothing_is_left_running(call, account, simulator):
    simulator.set_faults("hang")
    before = set(threading.enumerate())

    call(account, deadline_s=0.2)
    call.idle(0.3)

    left = [
        thread.name for thread in set(threading.enumerate()) - before if "Thread" in thread.name
    ]
    assert [name for name in left if not name.startswith("ThreadPool")] == []
