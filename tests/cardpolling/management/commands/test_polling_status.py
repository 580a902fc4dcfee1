"""``polling_status``: what stands of accounts and workers, as tables and as JSON."""

import json

import pytest
from django.core.management import CommandError

from cardpolling import clock, heartbeat
from cardpolling.heartbeat import WorkerBeat
from cardpolling.keys import AccountKeys
from carriers.gateway import statistics
from carriers.models import Carrier, RateLimitGroup


@pytest.fixture
def worker(client, db):
    """A worker process that is alive."""
    beat = WorkerBeat(
        process_id="f" * 32,
        host="worker-host",
        pid=4711,
        version="1",
        started_ms=clock.now_ms() - 60_000,
        beat_ms=clock.now_ms() - 300,
        places=500,
        busy=7,
        refusal="redis evicts keys (allkeys-lru)",
    )
    heartbeat.publish(client, beat)
    return beat


@pytest.fixture
def at_work(client, cards, now_ms):
    """An account whose two cards are due, one of them in flight, with calls and counts."""
    carrier = Carrier.objects.get()
    RateLimitGroup.objects.create(
        carrier=carrier, name="query", max_per_second=2.5, operations=["card_status"]
    )
    keys = AccountKeys(carrier.pk)
    client.zadd(keys.queue, {str(cards[0].pk): now_ms - 5_000, str(cards[1].pk): now_ms - 1_000})
    client.zadd(keys.inflight, {"token:1": now_ms + 1_000})
    client.hset(keys.counts, mapping={"expired": 3, "lost": 2})
    minute = keys.statistics(now_ms // statistics.MINUTE_MS)
    client.hset(minute, mapping={"card_status|success|n": 40, "card_status|http|n": 2})
    return carrier


def test_json_says_all_of_an_account(run, at_work):
    (account,) = json.loads(run("polling_status", "--json"))["accounts"]

    known = {
        "code": at_work.code,
        "is_enabled": True,
        "cards": 2,
        "due_now": 2,
        "oldest_due_age_s": 5.0,
        "in_flight": 1,
        "calls_last_minute": 42,
        "failures_last_minute": 2,
        "limit_per_second": 2.5,
        "expired": 3,
        "lost_claims": 2,
    }
    assert known.items() <= account.items()


def test_json_says_all_of_a_worker(run, worker):
    (told,) = json.loads(run("polling_status", "--json"))["workers"]

    known = {"host": "worker-host", "pid": 4711, "slots": 500, "slots_busy": 7}
    assert known.items() <= told.items()
    assert 0.2 < told["heartbeat_age_s"] < 5
    assert "evicts" in told["refusal"]


def test_tables_cut_nothing_off(run, at_work, worker):
    printed = run("polling_status")

    for text in (at_work.code, "calls/min", "expired", "5.0 s", "2.5", worker.refusal, "7/500"):
        assert text in printed
    assert "…" not in printed


def test_no_worker_is_said(run, client, db):
    assert "no worker is running" in run("polling_status")


def test_redis_being_away_is_told(run, db, redis_away):
    with pytest.raises(CommandError) as told:
        run("polling_status")

    assert "hidden-word" not in str(told.value)
