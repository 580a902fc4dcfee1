"""The clock: time is the Redis server's, moved on by a monotonic clock."""

import multiprocessing
import threading
import time
from datetime import UTC

import pytest
from redis import RedisError

from cardpolling import clock, connection

AWAY = "redis://127.0.0.1:1/0"


@pytest.fixture
def away(settings):
    """A server that nobody can reach."""
    settings.POLLING_REDIS_URL = AWAY
    connection.reset()


def server_ms(client):
    seconds, microseconds = client.time()
    return seconds * 1000 + microseconds / 1000


def test_time_is_that_of_the_server(client):
    before = server_ms(client)
    now_ms = clock.now_ms()
    after = server_ms(client)

    assert before - 20 <= now_ms <= after + 20


def test_the_units_agree(client):
    now_us, now_ms, now = clock.now_us(), clock.now_ms(), clock.now()

    assert 0 <= now_ms - now_us // 1000 < 1000
    assert 0 <= now.timestamp() - now_us / 1e6 < 1
    assert now.tzinfo is UTC


@pytest.mark.parametrize("jump_s", [3600, -3600])
def test_a_host_whose_clock_is_wrong_does_no_harm(client, monkeypatch, jump_s):
    right_ms = server_ms(client)
    monkeypatch.setattr("time.time", lambda: right_ms / 1000 + jump_s)

    assert abs(clock.now_ms() - right_ms) < 1000


def test_the_server_is_asked_now_and_then_and_not_each_time(client):
    clock.now_ms()
    asked = calls_of_time(client)

    readings = [clock.now_us() for _ in range(1000)]

    assert calls_of_time(client) == asked
    assert readings == sorted(readings)


def test_after_a_while_the_server_is_asked_again_without_making_anybody_wait(client, monkeypatch):
    monkeypatch.setattr(clock, "RESYNC_INTERVAL_US", 0)
    clock.now_ms()
    asked = calls_of_time(client)

    clock.now_ms()

    deadline_s = clock.monotonic() + 5
    while calls_of_time(client) == asked:
        assert clock.monotonic() < deadline_s


def test_a_first_reading_that_had_to_wait_is_not_behind_by_the_wait(client):
    client.client_pause(400, all=True)

    first_us = clock.now_us()

    assert clock.now_us() - first_us < 200_000


def test_a_reading_that_took_long_does_not_shift_the_time(client):
    clock.now_us()
    behind_us = clock.now_us() - time.monotonic_ns() // 1000
    client.client_pause(300)

    clock.resync()

    assert abs(clock.now_us() - time.monotonic_ns() // 1000 - behind_us) < 20_000


def test_a_server_that_hangs_makes_nobody_wait_for_the_time(client, monkeypatch):
    monkeypatch.setattr(clock, "RESYNC_INTERVAL_US", 0)
    clock.now_ms()
    client.client_pause(500, all=True)

    began_s = clock.monotonic()
    clock.now_ms()

    assert clock.monotonic() - began_s < 0.3
    client.ping()


def calls_of_time(client):
    return client.info("commandstats").get("cmdstat_time", {}).get("calls", 0)


def test_while_the_server_is_away_the_last_offset_is_used(client, settings):
    before = clock.now_ms()
    settings.POLLING_REDIS_URL = AWAY
    connection.reset()

    clock.resync()

    assert 0 <= clock.now_ms() - before < 5000


def test_without_any_offset_an_absent_server_is_told(client, away):
    with pytest.raises(RedisError):
        clock.now_ms()


def test_a_server_that_comes_back_is_asked_again(client, settings):
    url = settings.POLLING_REDIS_URL
    settings.POLLING_REDIS_URL = AWAY
    connection.reset()
    with pytest.raises(RedisError):
        clock.now_ms()
    settings.POLLING_REDIS_URL = url
    connection.reset()

    assert abs(clock.now_ms() - server_ms(client)) < 1000


def test_a_frozen_clock_stands_still_and_needs_no_server(client, away):
    with clock.frozen(1_000):
        assert (clock.now_ms(), clock.now_us()) == (1_000, 1_000_000)
        assert clock.now().timestamp() == 1
        assert clock.now_ms() == 1_000


def test_a_frozen_clock_can_be_advanced(client):
    with clock.frozen(1_000):
        clock.advance(0.5)
        assert (clock.now_us(), clock.now_ms()) == (1_000_500, 1_000)

        clock.advance(500)
        assert clock.now_ms() == 1_500


def test_a_running_clock_cannot_be_advanced(client):
    with pytest.raises(RuntimeError):
        clock.advance(1)


def test_a_clock_runs_on_after_an_error_in_a_frozen_block(client):
    with pytest.raises(ValueError, match="within"), clock.frozen(1_000):
        raise ValueError("within")

    assert clock.now_ms() > 1_000_000


def test_monotonic_runs_on_while_the_clock_is_frozen(client):
    with clock.frozen(1_000):
        began_s = clock.monotonic()
        while clock.monotonic() == began_s:
            pass

        assert clock.monotonic() > began_s


def test_threads_read_one_clock(client):
    readings = []
    threads = [threading.Thread(target=lambda: readings.append(clock.now_ms())) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert max(readings) - min(readings) < 5000


def _read(results):
    results.put(clock.now_ms())


def test_a_forked_child_asks_the_server_itself(client):
    now_ms = clock.now_ms()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_read, args=(results,))
    child.start()
    read_ms = results.get(timeout=10)
    child.join(10)

    assert 0 <= read_ms - now_ms < 5000
