"""Executing claims: what becomes of a card, in SQL and in the polling state, whatever happens on the way."""

import threading
import time

import pytest
from django.db import connection as sql

from cardpolling import clock, state, steps
from cardpolling.checktypes import CheckType
from carriers.gateway import with_rate_limit_exempt
from carriers.models import Card, CardEvent, Carrier, DailyUsage, Package
from tests.cardpolling.execution.conftest import LEASE_MS, wait_until

MINUTE_MS = 60_000
ALL_TYPES = tuple(CheckType)


def test_a_check_brings_facts_to_sql_and_the_next_due_time_to_redis(world):
    (card,) = world.make_cards(1, status="active", status_checked_at=clock.now())
    world.simulator.set_card(card.iccid, status="suspended", online=False)
    world.enroll(card)
    began_ms = clock.now_ms()

    world.execute()

    row = Card.objects.get(pk=card.pk)
    assert (row.status, row.raw_status, row.is_online) == ("suspended", "suspended", False)
    assert row.status_checked_at is not None
    due_ms = int(world.due(card)["due:card_status"])
    assert began_ms + 600_000 <= due_ms <= clock.now_ms() + 600_000 * 1.2
    assert world.client.zscore(world.keys.queue, card.pk) == due_ms
    assert int(world.due(card)["ok:card_status"]) >= began_ms
    assert world.stands_once(card)
    assert CardEvent.objects.filter(card_id=card.pk, new="suspended").exists()


def test_many_cards_run_side_by_side(world):
    cards = world.make_cards(60)
    world.simulator.api.latency_ms = 300
    world.enroll(*cards)
    began_s = time.monotonic()

    world.execute()

    assert time.monotonic() - began_s < 60 * 0.3 / 3
    assert Card.objects.filter(status_checked_at__isnull=False).count() == 60
    assert all(world.stands_once(card) for card in cards)


def test_all_due_types_are_checked_in_the_configured_order(world):
    world.configure(
        carddata_interval_s=600,
        realname_interval_s=600,
        package_interval_s=600,
        step_order=["realname", "carddata", "card_status", "package"],
    )
    package = Package.objects.create(name="IoT", allowance_bytes=10**15)
    (card,) = world.make_cards(1, package=package)
    world.enroll(card, types=ALL_TYPES)

    world.execute()

    assert [c.operation for c in world.simulator.calls] == ["realname", "carddata", "card_status"]
    row = Card.objects.get(pk=card.pk)
    assert None not in (
        row.status_checked_at,
        row.realname_checked_at,
        row.usage_checked_at,
        row.package_checked_at,
    )
    assert DailyUsage.objects.filter(card_id=card.pk).count() == 1
    dues = [int(world.due(card)[f"due:{t}"]) for t in ALL_TYPES]
    assert min(dues) > clock.now_ms() + 500_000


@pytest.mark.parametrize(
    ("fault", "category"),
    [
        ("http500_html", "http"),
        ("empty_body", "bad_response"),
        ("code_1001", "provider"),
        ("code_1003", "auth"),
        ("reset_before_header", "network"),
    ],
)
def test_a_failed_check_backs_off_and_says_why(world, fault, category):
    (card,) = world.make_cards(1)
    world.simulator.set_faults(fault)
    world.enroll(card)

    world.execute()

    fields = world.due(card)
    assert fields["fail:card_status"] == "1"
    assert fields["err:card_status"].startswith(f"{category}|")
    assert int(fields["due:card_status"]) > clock.now_ms() + 30_000
    assert Card.objects.get(pk=card.pk).status_checked_at is None
    assert world.stands_once(card)


def test_success_resets_the_failures(world):
    (card,) = world.make_cards(1)
    world.enroll(card)
    world.client.hset(
        world.keys.due(card.pk),
        mapping={"fail:card_status": 3, "ffail:card_status": 5, "err:card_status": "http|500|"},
    )

    world.execute()

    assert not {"fail:card_status", "ffail:card_status", "err:card_status"} & set(world.due(card))


def test_a_card_without_a_slot_is_no_failure_and_comes_again_shortly(world):
    world.configure(step_timeout_s=1, total_timeout_s=2)
    world.limit(0.02)
    cards = world.make_cards(3)
    world.enroll(*cards)

    world.execute()

    assert len(world.simulator.calls) == 1
    unserved = [c for c in cards if "ok:card_status" not in world.due(c)]
    assert len(unserved) == 2
    for card in unserved:
        assert "fail:card_status" not in world.due(card)
        assert int(world.due(card)["due:card_status"]) < clock.now_ms() + 10_000


def test_a_provider_that_refuses_is_no_failure_of_the_card(world):
    (card,) = world.make_cards(1)
    world.limit(100)
    world.simulator.set_faults("code_1004")
    world.enroll(card)

    world.execute()

    assert "fail:card_status" not in world.due(card)
    assert world.client.exists(world.keys.throttle)


def test_a_gateway_that_hangs_costs_no_more_than_the_step_timeout(world):
    world.configure(step_timeout_s=1, total_timeout_s=2)
    world.simulator.set_faults("hang")
    (card,) = world.make_cards(1)
    world.enroll(card)
    began_s = time.monotonic()

    world.execute()

    assert time.monotonic() - began_s < 3
    assert world.due(card)["err:card_status"].startswith("timeout|")


def test_the_total_timeout_leaves_later_steps_due(world):
    world.configure(
        step_timeout_s=1, total_timeout_s=1, carddata_interval_s=600, realname_interval_s=600
    )
    world.simulator.set_faults("hang")
    (card,) = world.make_cards(1)
    world.enroll(card, types=ALL_TYPES[:3])

    world.execute()

    fields = world.due(card)
    assert fields["fail:card_status"] == "1"
    assert "fail:carddata" not in fields
    assert int(fields["due:carddata"]) <= clock.now_ms() + 10_000
    assert world.stands_once(card)


def test_a_bug_in_a_step_is_that_steps_failure_and_the_next_step_runs(world, monkeypatch):
    async def broken(card, gateway, now):
        raise KeyError("a bug")

    monkeypatch.setitem(steps.REGISTRY, CheckType.CARD_STATUS, broken)
    world.configure(realname_interval_s=600)
    (card,) = world.make_cards(1)
    world.enroll(card, types=(CheckType.CARD_STATUS, CheckType.REALNAME))

    world.execute()

    assert world.due(card)["err:card_status"].startswith("internal|")
    assert "ok:realname" in world.due(card)


def test_a_deleted_card_leaves_the_queues(world):
    (card,) = world.make_cards(1)
    world.enroll(card)
    claims = world.claim()
    Card.objects.filter(pk=card.pk)._raw_delete("default")

    world.submit(claims).result(10)

    assert not world.client.keys(world.keys.prefix + "card:*")
    assert world.client.zcard(world.keys.queue) == 0
    assert world.simulator.calls == []


def test_a_card_moved_away_is_not_checked_here_any_more(world):
    (card,) = world.make_cards(1)
    world.enroll(card)
    claims = world.claim()
    other = Carrier.objects.create(name="other", code="other", gateway_url="http://127.0.0.1:9")
    Card.objects.filter(pk=card.pk).update(carrier=other)

    world.submit(claims).result(10)

    assert world.simulator.calls == []
    assert world.client.zscore(world.keys.queue, card.pk) is None


def test_a_card_that_moved_while_it_was_asked_about_is_not_overwritten(world):
    (card,) = world.make_cards(1)
    world.simulator.api.latency_ms = 600
    world.enroll(card)
    running = world.submit(world.claim())
    wait_until(lambda: world.simulator.calls)
    other = Carrier.objects.create(name="other", code="other", gateway_url="http://127.0.0.1:9")
    Card.objects.filter(pk=card.pk).update(carrier=other)
    state.remove(world.client, world.carrier.pk, str(card.pk))

    running.result(10)

    assert Card.objects.get(pk=card.pk).status_checked_at is None
    assert not world.client.exists(world.keys.due(card.pk))


def test_cards_of_a_disabled_account_are_put_back_untouched(world):
    from carriers.gateway import directory

    (card,) = world.make_cards(1)
    world.enroll(card)
    before = world.due(card)
    claims = world.claim()
    Carrier.objects.update(is_enabled=False)
    directory.refresh(force=True)

    world.submit(claims).result(10)

    assert world.simulator.calls == []
    assert world.due(card) == before
    assert world.stands_once(card)


def test_a_card_in_the_queue_without_due_times_is_enrolled_anew(world):
    (card,) = world.make_cards(1)
    world.enroll(card)
    world.client.delete(world.keys.due(card.pk))

    world.execute()

    assert "due:card_status" in world.due(card)
    assert world.counted("reenrolled") == 1
    assert world.stands_once(card)


def test_a_type_that_is_not_polled_is_never_left_due(world):
    (card,) = world.make_cards(1)
    world.enroll(card, types=(CheckType.REALNAME, CheckType.CARD_STATUS))

    world.execute()

    assert "due:realname" not in world.due(card)
    assert [c.operation for c in world.simulator.calls] == ["card_status"]


def test_a_card_that_nobody_polls_any_more_leaves_the_queues(world):
    world.configure(card_status_interval_s=None)
    (card,) = world.make_cards(1)
    world.enroll(card)

    world.execute()

    assert world.client.zscore(world.keys.queue, card.pk) is None
    assert not world.client.exists(world.keys.due(card.pk))


def test_a_check_requested_while_the_card_runs_runs_again_after_the_finish(world):
    (card,) = world.make_cards(1)
    world.simulator.api.latency_ms = 500
    world.enroll(card)
    running = world.submit(world.claim())
    wait_until(lambda: world.simulator.calls)
    requested_ms = clock.now_ms()
    state.request_check(
        world.client,
        world.carrier.pk,
        str(card.pk),
        [CheckType.CARD_STATUS],
        now_ms=requested_ms,
        to_priority=True,
    )

    running.result(10)

    assert int(world.due(card)["due:card_status"]) == requested_ms
    assert world.client.zscore(world.keys.priority, card.pk) == requested_ms
    (again,) = world.execute()
    assert again.from_priority
    assert len(world.simulator.calls) == 2


def test_two_executors_of_one_claim_call_once(world):
    (card,) = world.make_cards(1)
    world.simulator.api.latency_ms = 500
    world.enroll(card)
    claims = world.claim()
    other = world.start_engine()
    try:
        for engine in (world.engine, other):
            world.ledger.hold(world.carrier.pk, 1)
            engine.submit(claims)
        wait_until(lambda: world.stands_once(card))
        wait_until(lambda: not world.ledger.held())
    finally:
        other.stop(1)

    assert len(world.simulator.calls) == 1


def test_a_long_execution_keeps_its_lease(world):
    world.configure(step_timeout_s=30, total_timeout_s=60)
    (card,) = world.make_cards(1)
    world.simulator.api.latency_ms = 2 * LEASE_MS
    world.enroll(card)

    world.execute(within_s=20)

    assert "ok:card_status" in world.due(card)
    assert len(world.simulator.calls) == 1


def test_a_lost_lease_cancels_the_call_on_the_wire(world):
    world.configure(step_timeout_s=30, total_timeout_s=60)
    (card,) = world.make_cards(1)
    world.simulator.set_faults("hang")
    world.enroll(card)
    (claim,) = claims = world.claim()
    running = world.submit(claims)
    wait_until(lambda: world.simulator.calls)
    world.client.delete(world.keys.claim(card.pk), world.keys.exec_right(card.pk))

    running.result(2 * LEASE_MS / 1000 + 2)

    assert world.counted("lost") == 1
    assert "fail:card_status" not in world.due(card)
    assert claim.token


def test_results_wait_for_a_database_that_is_away(world):
    """A writer that holds SQLite's or the row's lock for a while is a database that is away for that while."""
    (card,) = world.make_cards(1)
    world.simulator.api.latency_ms = 300
    world.enroll(card)
    running = world.submit(world.claim())
    wait_until(lambda: world.simulator.calls)
    table = sql.ops.quote_name(Card._meta.db_table)
    away = sql.ops.quote_name("card_away")
    with sql.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {table} RENAME TO {away}")
    time.sleep(1.5)
    assert not running.done()
    with sql.cursor() as cursor:
        cursor.execute(f"ALTER TABLE {away} RENAME TO {table}")

    running.result(15)

    assert Card.objects.get(pk=card.pk).status_checked_at is not None
    assert "ok:card_status" in world.due(card)


def test_a_stop_lets_running_executions_end(world):
    (card,) = world.make_cards(1)
    world.simulator.api.latency_ms = 500
    world.enroll(card)
    world.submit(world.claim())
    wait_until(lambda: world.simulator.calls)

    world.engine.stop(5)

    assert "ok:card_status" in world.due(card)
    assert world.stands_once(card)


def test_a_stop_puts_back_what_does_not_end_in_time(world):
    world.configure(step_timeout_s=30, total_timeout_s=60)
    (card,) = world.make_cards(1)
    world.simulator.set_faults("hang")
    world.enroll(card)
    world.submit(world.claim())
    wait_until(lambda: world.simulator.calls)

    world.engine.stop(0.2)

    assert world.stands_once(card)
    assert int(world.due(card)["due:card_status"]) <= clock.now_ms()
    assert "fail:card_status" not in world.due(card)


def test_a_used_up_package_suspends_the_card_and_watches_it_take_effect(world):
    world.configure(carddata_interval_s=600)
    package = Package.objects.create(name="small", allowance_bytes=1000, action="suspend")
    (card,) = world.make_cards(1, package=package, status="active", status_checked_at=clock.now())
    world.simulator.set_card(card.iccid, used_bytes=5000)
    world.enroll(card, types=(CheckType.CARDDATA,))

    world.execute()

    assert [c.operation for c in world.simulator.calls] == ["carddata", "suspend"]
    fields = world.due(card)
    assert fields["exp:card_status"] == "suspended"
    assert fields["cfm:card_status"] == "30,60,300"
    assert Card.objects.get(pk=card.pk).package_state == "exhausted"


def test_executions_of_many_threads_do_not_disturb_each_other(world):
    cards = world.make_cards(100)
    world.enroll(*cards)
    claims = world.claim()
    threads = [
        threading.Thread(target=lambda part=claims[i::4]: world.submit(part).result(10))
        for i in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(world.stands_once(card) for card in cards)
    assert len(world.simulator.calls) == 100


def test_an_exemption_around_the_submit_is_not_inherited(world):
    world.configure(step_timeout_s=1, total_timeout_s=2)
    world.limit(0.02)
    cards = world.make_cards(3)
    world.enroll(*cards)

    with with_rate_limit_exempt("manual"):
        world.execute()

    assert len(world.simulator.calls) == 1
