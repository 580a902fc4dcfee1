"""Calls are counted per account, operation, outcome and minute, and reach Redis in batches."""

import os
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from cardpolling import clock, connection
from cardpolling.keys import AccountKeys
from carriers.gateway import GatewayClient, GatewayError, SyncGateway, statistics
from carriers.gateway.call import Call
from carriers.gateway.statistics import MAX_KEPT_COUNTS, CallTotals, Statistics
from tests.carriers.gateway.conftest import ICCID, dead_redis

NOW_MS = 1_764_547_230_000
MINUTE = NOW_MS // 60_000


@pytest.fixture(autouse=True)
def now_ms(client):
    """A clock that stands still in the middle of a minute."""
    with clock.frozen(NOW_MS):
        yield NOW_MS


def call(operation="card_status", carrier_id=7):
    return Call(operation, ICCID, carrier_id)


def fields(client, carrier_id=7, minute=MINUTE):
    return client.hgetall(AccountKeys(carrier_id).statistics(minute))


def test_counts_stand_by_operation_and_outcome(client):
    counted = Statistics()
    counted.count_call(call(), None, 0.25)
    counted.count_call(call(), None, 0.5)
    counted.count_call(call(), GatewayError("timeout"), 1.0)
    counted.count_call(call("carddata"), GatewayError("provider"), 0.125)
    counted.count_call(call("carddata"), KeyboardInterrupt(), 0.1)
    counted.count_wait(call(), 0.75)
    counted.count_refusal(call("realname"))
    counted.flush(client)

    assert fields(client) == {
        "card_status|success|n": "2",
        "card_status|success|us": "750000",
        "card_status|timeout|n": "1",
        "card_status|timeout|us": "1000000",
        "carddata|provider|n": "1",
        "carddata|provider|us": "125000",
        "carddata|cancelled|n": "1",
        "carddata|cancelled|us": "100000",
        "card_status|wait|n": "1",
        "card_status|wait|us": "750000",
        "realname|refused|n": "1",
    }


def test_counts_stand_by_account_and_minute(client):
    counted = Statistics()
    counted.count_call(call(), None, 0)
    counted.count_call(call(carrier_id=8), None, 0)
    clock.advance(60_000)
    counted.count_call(call(), None, 0)
    counted.flush(client)

    assert fields(client) == fields(client, 8) == fields(client, 7, MINUTE + 1)
    assert fields(client, 8, MINUTE + 1) == {}


def test_flushes_add_up(client):
    counted = Statistics()
    for _ in range(3):
        counted.count_call(call(), None, 0.1)
        counted.flush(client)

    assert fields(client)["card_status|success|n"] == "3"


def test_counts_are_kept_48_hours(client):
    counted = Statistics()
    counted.count_call(call(), None, 0.1)
    counted.flush(client)

    assert client.ttl(AccountKeys(7).statistics(MINUTE)) == pytest.approx(48 * 3600, abs=2)


def test_flush_is_one_round_trip(client):
    counted = Statistics()
    for carrier_id in range(1, 50):
        counted.count_call(call(carrier_id=carrier_id), None, 0.1)
    client.ping()
    before = client.info("stats")["total_reads_processed"]
    counted.flush(client)

    # One more for the question itself; a large batch may take the server some reads.
    assert client.info("stats")["total_reads_processed"] - before <= 6


def test_flush_of_nothing_asks_nobody():
    Statistics().flush(dead_redis())


def test_counts_survive_an_outage_of_redis(client):
    counted = Statistics()
    counted.count_call(call(), None, 0.5)
    with pytest.raises(redis.RedisError):
        counted.flush(dead_redis())
    counted.count_call(call(), None, 0.5)
    counted.flush(client)

    assert fields(client)["card_status|success|n"] == "2"
    assert fields(client)["card_status|success|us"] == "1000000"


def test_long_outage_keeps_a_bounded_number_of_counts(client):
    counted = Statistics()
    for carrier_id in range(MAX_KEPT_COUNTS // 2 + 10):
        counted.count_call(call(carrier_id=carrier_id), None, 0)
    clock.advance(60_000)
    for carrier_id in range(MAX_KEPT_COUNTS // 2):
        counted.count_call(call(carrier_id=carrier_id), None, 0)
    with pytest.raises(redis.RedisError):
        counted.flush(dead_redis())

    assert len(counted._counts) == MAX_KEPT_COUNTS
    newest = [minute for _, minute, _, _ in counted._counts if minute > MINUTE]
    assert len(newest) == MAX_KEPT_COUNTS // 2


def test_count_that_redis_refuses_spoils_no_other(client, caplog):
    client.set(AccountKeys(7).statistics(MINUTE), "no hash")
    counted = Statistics()
    counted.count_call(call(), None, 0.1)
    counted.count_call(call(carrier_id=8), None, 0.1)

    for _ in range(3):
        counted.flush(client)

    assert fields(client, 8)["card_status|success|n"] == "1"
    assert "statistics not written" in caplog.text


def test_call_of_no_account_is_not_counted(client):
    counted = Statistics()
    counted.count_call(call(carrier_id=None), None, 0.1)
    counted.flush(client)

    assert client.keys("*") == []


def test_threads_count_together(client):
    counted = Statistics()

    def work(_):
        for _ in range(500):
            counted.count_call(call(), None, 0.000001)
            counted.flush(client)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(work, range(4)))

    assert fields(client)["card_status|success|n"] == "2000"
    assert fields(client)["card_status|success|us"] == "2000"


def test_counting_never_waits_for_redis(client, monkeypatch):
    clock.unfreeze()
    clock.now_us()
    monkeypatch.setattr(connection, "polling_redis", dead_redis)
    counted = Statistics()

    began_s = time.monotonic()
    for _ in range(1_000):
        counted.count_call(call(), None, 0.1)

    assert time.monotonic() - began_s < 0.2


def test_totals(client):
    counted = Statistics()
    counted.count_call(call(), None, 0.25)
    counted.count_call(call("carddata"), GatewayError("timeout"), 1.0)
    counted.count_call(call("carddata"), KeyboardInterrupt(), 0.25)
    counted.count_wait(call(), 2.0)
    counted.count_refusal(call())
    counted.flush(client)
    clock.advance(60_000)

    totals = statistics.last_minute(client, [7, 8], now_ms=clock.now_ms())

    assert totals[7] == CallTotals(
        calls=3, failures=2, refused=1, waits=1, duration_s=1.5, wait_s=2.0
    )
    assert totals[8] == CallTotals()


def test_totals_of_a_span(client):
    counted = Statistics()
    for _ in range(3):
        counted.count_call(call(), None, 1.0)
        clock.advance(60_000)
    counted.flush(client)

    span = {"first_minute": MINUTE + 1, "last_minute": MINUTE + 2}

    assert statistics.totals(client, [7], **span)[7].calls == 2
    assert statistics.totals(client, [], **span) == {}
    assert statistics.totals(client, [7], first_minute=5, last_minute=4)[7].calls == 0


# --- In processes without a loop


def wait_until(is_so, within_s=5):
    ends_s = time.monotonic() + within_s
    while not (found := is_so()):
        assert time.monotonic() < ends_s
        time.sleep(0.02)
    return found


def test_blocking_gateway_writes_its_counts_within_a_second(client, account):
    gateway = SyncGateway()
    gateway.client(account, timeout_s=5).card_status(ICCID)
    began_s = time.monotonic()
    carrier_id = account.carrier_id

    wait_until(lambda: fields(client, carrier_id), within_s=2)

    assert time.monotonic() - began_s < 1.5
    gateway.close()


def test_blocking_gateway_writes_its_counts_when_it_is_closed(client, account):
    gateway = SyncGateway()
    gateway.client(account, timeout_s=5).card_status(ICCID)
    gateway.close()

    assert fields(client)["card_status|success|n"] == "1"


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork:DeprecationWarning")
def test_forked_child_writes_its_own_counts_and_no_others(client, account):
    gateway = SyncGateway()
    gateway.client(account, timeout_s=5).card_status(ICCID)

    child = os.fork()
    if child == 0:
        # Whatever happens, the child must not go on with the tests.
        try:
            gateway.statistics.begin_anew()
            gateway.statistics.count_refusal(call())
            written = connection.polling_redis()
            wait_until(lambda: "card_status|refused|n" in fields(written))
        finally:
            os._exit(0)
    os.waitpid(child, 0)
    gateway.close()

    assert fields(client)["card_status|success|n"] == "1"
    assert fields(client)["card_status|refused|n"] == "1"


def test_gateway_without_redis_still_closes(account, client, monkeypatch):
    gateway = SyncGateway()
    made = gateway.client(account, timeout_s=5)
    assert isinstance(made, GatewayClient)
    made.card_status(ICCID)
    monkeypatch.setattr(connection, "polling_redis", dead_redis)

    gateway.close()
