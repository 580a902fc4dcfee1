"""Workers come, go, are killed, stopped and frozen; no card is lost, none is asked about twice at a time."""

import contextlib
import signal
import time

import pytest
import redis

from cardpolling import clock, keys, state
from cardpolling.checktypes import CheckType
from carriers.models import Card, Carrier
from tests import settings as ground

pytestmark = pytest.mark.timeout(120)


def test_a_worker_checks_all_cards_once_and_stops_when_told(site):
    cards = site.make_cards(150)
    worker = site.start_worker()

    site.wait_until(lambda: site.checked() == 150)
    site.wait_until(site.is_at_rest)
    worker.send_signal(signal.SIGTERM)

    assert worker.wait(15) == 0
    assert site.strays(cards) == []
    assert len(site.simulator.calls) == 150
    assert not site.client.hgetall(keys.WORKERS)
    assert not site.client.keys("rq:job:*")


def test_a_stop_under_load_loses_nothing(site):
    cards = site.make_cards(400)
    worker = site.start_worker()
    site.wait_until(lambda: site.checked() > 30)

    worker.send_signal(signal.SIGTERM)
    assert worker.wait(20) == 0

    assert not site.client.keys(site.keys.prefix + "card:*:exec")
    assert site.strays(cards) == []
    site.start_worker()
    site.wait_until(lambda: site.checked() == 400)
    assert len(site.simulator.calls) == 400


def test_the_cards_of_a_killed_worker_are_checked_again(site):
    cards = site.make_cards(400)
    first, _second = site.start_worker(), site.start_worker()
    site.wait_until(lambda: site.checked() > 50)

    first.kill()

    site.wait_until(lambda: site.checked() == 400)
    site.wait_until(site.is_at_rest)
    assert site.strays(cards) == []
    assert site.overlapping() == 0


def test_all_workers_killed_and_one_started_later(site):
    cards = site.make_cards(200)
    workers = [site.start_worker(), site.start_worker()]
    site.wait_until(lambda: site.checked() > 20)

    for worker in workers:
        worker.kill()
    site.start_worker()

    site.wait_until(lambda: site.checked() == 200)
    site.wait_until(site.is_at_rest)
    assert site.strays(cards) == []


def test_a_worker_frozen_for_longer_than_its_leases_does_no_harm(site):
    cards = site.make_cards(400)
    frozen, _other = site.start_worker(), site.start_worker()
    site.wait_until(lambda: site.checked() > 50)

    frozen.send_signal(signal.SIGSTOP)
    time.sleep(5)
    frozen.send_signal(signal.SIGCONT)

    site.wait_until(lambda: site.checked() == 400)
    site.wait_until(site.is_at_rest)
    assert site.strays(cards) == []
    assert site.overlapping() == 0


def test_a_redis_that_hangs_for_a_while_is_outlived(site):
    cards = site.make_cards(300)
    worker = site.start_worker()
    site.wait_until(lambda: site.checked() > 30)

    ground.redis_process.send_signal(signal.SIGSTOP)
    time.sleep(4)
    ground.redis_process.send_signal(signal.SIGCONT)

    site.wait_until(lambda: site.checked() == 300)
    site.wait_until(site.is_at_rest)
    assert worker.poll() is None
    assert site.strays(cards) == []


def test_scripts_and_connections_that_vanish_are_outlived(site):
    cards = site.make_cards(300)
    worker = site.start_worker()
    site.wait_until(lambda: site.checked() > 30)

    for _ in range(5):
        site.client.script_flush()
        with contextlib.suppress(redis.ConnectionError):
            site.client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
        time.sleep(0.2)

    site.wait_until(lambda: site.checked() == 300)
    site.wait_until(site.is_at_rest)
    assert worker.poll() is None
    assert site.strays(cards) == []


def test_a_redis_that_was_emptied_is_rebuilt(site):
    cards = site.make_cards(100)
    site.start_worker()
    site.wait_until(lambda: site.checked() == 100)

    site.client.flushall()

    site.wait_until(lambda: not site.strays(cards), within_s=15)
    dues = [int(site.client.hget(site.keys.due(card.pk), "due:card_status")) for card in cards]
    assert max(dues) - min(dues) > 3600_000 / 2
    card = cards[0]
    state.request_check(
        site.client,
        site.carrier.pk,
        str(card.pk),
        [CheckType.CARD_STATUS],
        now_ms=clock.now_ms(),
        to_priority=True,
    )
    site.wait_until(lambda: site.calls_of(card) == 2)


def test_accounts_come_and_go_without_a_restart(site):
    site.start_worker()
    site.make_cards(5)
    site.wait_until(lambda: site.checked() == 5)

    other = site.make_carrier("other", per_second=50)
    site.make_cards(5, other)
    site.wait_until(lambda: site.checked(other) == 5)

    Carrier.objects.filter(pk=other.pk).update(is_enabled=False)
    time.sleep(2.5)
    late = site.make_cards(5, other, first=100)
    time.sleep(2)
    assert not any(site.calls_of(card) for card in late)

    Carrier.objects.filter(pk=other.pk).update(is_enabled=True)
    site.wait_until(lambda: all(site.calls_of(card) == 1 for card in late))


def test_a_request_overtakes_the_backlog(site):
    cards = site.make_cards(1500)
    site.start_worker()
    site.wait_until(lambda: site.checked() > 20)
    last = cards[-1]

    state.request_check(
        site.client,
        site.carrier.pk,
        str(last.pk),
        [CheckType.CARD_STATUS],
        now_ms=clock.now_ms(),
        to_priority=True,
    )

    site.wait_until(lambda: site.calls_of(last), within_s=8)
    assert site.checked() < 1500


def test_a_gateway_that_hangs_does_not_hold_up_another_account(site):
    hanging = site.make_carrier("hanging", per_second=1000)
    site.simulator.set_faults("hang:1:hanging")
    site.make_cards(600, hanging)
    site.start_worker(POLLING_CONCURRENCY="60")
    site.wait_until(lambda: len(site.simulator.calls) >= 20)

    site.make_cards(200)

    site.wait_until(lambda: site.checked() == 200, within_s=15)


def test_a_changed_token_is_used_within_two_seconds(site):
    site.simulator.api.token = "new-token"
    (card,) = site.make_cards(1)
    site.start_worker()
    site.wait_until(lambda: site.client.hget(site.keys.due(card.pk), "err:card_status"))

    row = Carrier.objects.get(pk=site.carrier.pk)
    row.gateway_token = "new-token"
    row.save()
    time.sleep(2)
    state.request_check(
        site.client,
        site.carrier.pk,
        str(card.pk),
        [CheckType.CARD_STATUS],
        now_ms=clock.now_ms(),
        to_priority=True,
    )

    site.wait_until(lambda: Card.objects.get(pk=card.pk).status_checked_at)
    assert "new-token" not in site.log.read_text()
