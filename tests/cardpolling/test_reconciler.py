"""Reconciler: every difference between SQL and the polling state is mended, and running executions are left alone."""

from collections import Counter

import pytest

from cardpolling import enrolment, reconciler, state
from cardpolling.enrolment import PolledCard
from cardpolling.keys import AccountKeys
from cardpolling.models import PollingConfig
from cardpolling.reconciler import Summary
from carriers.models import Card

pytestmark = pytest.mark.usefixtures("config", "now_ms")

YEAR_MS = 366 * 86_400_000


@pytest.fixture(autouse=True)
def _no_patience(monkeypatch):
    monkeypatch.setattr(reconciler, "LONGEST_PAUSES_S", 0.0)


@pytest.fixture
def carrier(make_carrier):
    """An account."""
    return make_carrier()


@pytest.fixture
def keys(carrier):
    """Its key names."""
    return AccountKeys(carrier.pk)


@pytest.fixture
def cards(client, carrier, make_cards):
    """Its three cards, under polling."""
    made = make_cards(carrier, 3)
    enrolment.enroll(client, [PolledCard(c.pk, carrier.pk, c.status, None) for c in made])
    return list(Card.objects.filter(pk__in=[c.pk for c in made]).order_by("pk"))


@pytest.fixture
def claimed(client, keys, cards, now_ms):
    """The claim of the first card, which is being executed."""
    client.zadd(keys.queue, {cards[0].pk: 0})
    (claim,) = state.claim(
        client,
        keys,
        now_ms=now_ms,
        lease_ms=30_000,
        limit=1,
        priority_ratio=0,
        token_prefix="prefix",
        budgets={},
        groups={},
    ).claims
    state.acquire_exec(client, claim, executor_id="e", ttl_ms=30_000)
    client.hset(keys.running, claim.card_id, claim.token)
    return claim


def dump(client):
    """Everything in Redis."""
    readers = {"hash": client.hgetall, "string": client.get}
    kinds = {name: client.type(name) for name in client.scan_iter()}
    return {
        name: readers[kind](name)
        if kind in readers
        else client.zrange(name, 0, -1, withscores=True)
        for name, kind in kinds.items()
    }


def test_where_nothing_is_wrong_nothing_is_mended(client, cards, claimed):
    before = dump(client)

    assert reconciler.reconcile(client).total == 0
    assert dump(client) == before


def test_a_missing_card_is_enrolled(client, cards, keys):
    state.remove(client, keys.carrier_id, cards[1].pk)

    assert reconciler.reconcile(client) == Summary(enrolled=1)
    assert client.zscore(keys.queue, cards[1].pk) is not None


def test_everything_is_rebuilt_spread_over_the_interval_after_a_flushall(
    client, carrier, make_cards, keys, now_ms
):
    make_cards(carrier, 6_000)

    assert reconciler.reconcile(client) == Summary(enrolled=6_000)
    scores = client.zrange(keys.queue, 0, -1, withscores=True)
    seconds = Counter((score - now_ms) // 1000 for _card_id, score in scores)
    assert max(seconds.values()) <= 2 * 6_000 / 600


@pytest.mark.parametrize(
    "leave",
    [
        pytest.param(lambda card, other: card.delete(), id="deleted"),
        pytest.param(
            lambda card, other: Card.objects.filter(pk=card.pk).update(is_polled=False),
            id="switched off",
        ),
        pytest.param(
            lambda card, other: Card.objects.filter(pk=card.pk).update(carrier=other),
            id="moved",
        ),
    ],
)
def test_a_ghost_is_removed(client, cards, keys, make_carrier, leave):
    card_id = cards[0].pk
    leave(cards[0], make_carrier())

    assert reconciler.reconcile(client).ghosts == 1
    assert client.zscore(keys.queue, card_id) is None
    assert not client.exists(keys.due(card_id))


@pytest.mark.parametrize("card_id", ["no card", "", "-1", "9" * 30, "٣"])
def test_a_ghost_that_can_be_no_card_is_removed(client, cards, keys, card_id):
    client.zadd(keys.priority, {card_id: 1})

    assert reconciler.reconcile(client) == Summary(ghosts=1)


def test_cards_that_no_configuration_polls_any_more_are_removed(
    client, cards, keys, django_capture_on_commit_callbacks
):
    with django_capture_on_commit_callbacks(execute=True):
        PollingConfig.objects.all().delete()
    reconciler.configuration.forget()

    assert reconciler.reconcile(client) == Summary(ghosts=3)
    assert not client.exists(keys.queue)


def test_a_card_in_both_queues_stays_in_the_priority_queue_at_its_earlier_score(
    client, cards, keys
):
    client.zadd(keys.priority, {cards[0].pk: 50})
    client.zadd(keys.queue, {cards[0].pk: 40})

    assert reconciler.reconcile(client) == Summary(in_both_queues=1)
    assert client.zscore(keys.queue, cards[0].pk) is None
    assert client.zscore(keys.priority, cards[0].pk) == 40


def test_a_card_without_due_hash_is_enrolled_anew(client, cards, keys):
    client.delete(keys.due(cards[0].pk))

    assert reconciler.reconcile(client) == Summary(without_due=1)
    assert client.hexists(keys.due(cards[0].pk), "due:card_status")
    assert client.zscore(keys.queue, cards[0].pk) is not None


def test_a_card_due_too_far_ahead_is_pulled_back(client, cards, keys, now_ms):
    client.hset(keys.due(cards[0].pk), "due:card_status", now_ms + YEAR_MS)
    client.hset(keys.due(cards[0].pk), "due:carddata", now_ms + 1_100_000)
    client.zadd(keys.queue, {cards[0].pk: now_ms + YEAR_MS})

    assert reconciler.reconcile(client) == Summary(far_ahead=1)
    status_ms, usage_ms = map(
        int, client.hmget(keys.due(cards[0].pk), "due:card_status", "due:carddata")
    )
    assert status_ms <= now_ms + 600_000
    assert usage_ms == now_ms + 1_100_000
    assert client.zscore(keys.queue, cards[0].pk) == min(status_ms, usage_ms)


def test_the_longest_wait_that_planning_gives_is_not_too_far_ahead(client, cards, keys, now_ms):
    client.zadd(keys.queue, {cards[0].pk: now_ms + 24 * 3_600_000 + 1_000})

    assert reconciler.reconcile(client).total == 0


@pytest.mark.parametrize("suffix", ["claim", "exec"])
def test_a_claim_without_expiry_is_given_the_lease(client, cards, keys, suffix):
    name = f"{keys.card_prefix}{cards[0].pk}:{suffix}"
    client.set(name, "token")

    assert reconciler.reconcile(client) == Summary(without_expiry=1)
    assert 0 < client.pttl(name) <= 30_000


def test_in_flight_leftovers_of_a_disabled_account_are_dropped(
    client, cards, keys, carrier, now_ms
):
    type(carrier).objects.filter(pk=carrier.pk).update(is_enabled=False)
    client.zadd(keys.inflight, {f"old:{cards[0].pk}": now_ms - 1, "live:7": now_ms + 1})

    assert reconciler.reconcile(client) == Summary(inflight=1)
    assert client.zrange(keys.inflight, 0, -1) == ["live:7"]


def test_in_flight_tokens_that_would_never_expire_are_dropped(client, cards, keys, now_ms):
    client.zadd(keys.inflight, {f"leaked:{cards[0].pk}": now_ms + YEAR_MS})

    assert reconciler.reconcile(client) == Summary(inflight=1)
    assert not client.exists(keys.inflight)


def test_marks_of_executions_that_are_no_more_are_dropped(client, cards, keys, claimed, now_ms):
    client.hset(keys.running, cards[1].pk, "gone")
    client.hset(keys.crashes, mapping={cards[1].pk: "2|5", cards[2].pk: f"2|{now_ms}"})

    assert reconciler.reconcile(client) == Summary(marks=2)
    assert client.hkeys(keys.running) == [claimed.card_id]
    assert client.hkeys(keys.crashes) == [str(cards[2].pk)]


def test_due_times_of_a_card_that_stands_nowhere_are_deleted(client, cards, keys):
    client.hset(keys.due(987_654), "due:card_status", 5)

    assert reconciler.reconcile(client) == Summary(orphans=1)
    assert not client.exists(keys.due(987_654))


def test_keys_of_an_account_that_is_no_more_are_deleted(client, cards, keys):
    dead = AccountKeys(987_654)
    client.zadd(dead.queue, {"1": 1})
    client.set(dead.claim(1), "token")

    assert reconciler.reconcile(client) == Summary(dead_keys=2)
    assert not client.keys(dead.prefix + "*")


def test_a_dry_run_counts_and_writes_nothing(client, cards, keys, now_ms):
    state.remove(client, keys.carrier_id, cards[0].pk)
    client.zadd(keys.priority, {cards[1].pk: 1, "ghost": 1})
    client.delete(keys.due(cards[2].pk))
    client.set(keys.claim(5), "token")
    client.zadd(AccountKeys(987_654).queue, {"1": 1})
    before = dump(client)

    summary = reconciler.reconcile(client, dry_run=True)

    assert summary == Summary(
        enrolled=1, ghosts=1, in_both_queues=1, without_due=1, without_expiry=1, dead_keys=1
    )
    assert dump(client) == before


@pytest.mark.parametrize(
    "spoil",
    [
        pytest.param(
            lambda client, keys, card_id: Card.objects.filter(pk=card_id).update(is_polled=False),
            id="a ghost",
        ),
        pytest.param(
            lambda client, keys, card_id: client.zadd(keys.priority, {card_id: 1}),
            id="in both queues",
        ),
        pytest.param(
            lambda client, keys, card_id: client.delete(keys.due(card_id)),
            id="without due hash",
        ),
        pytest.param(
            lambda client, keys, card_id: client.zadd(keys.queue, {card_id: 10**15}),
            id="due too far ahead",
        ),
    ],
)
def test_a_card_that_is_being_executed_is_left_to_its_execution(client, keys, claimed, spoil):
    spoil(client, keys, int(claimed.card_id))
    before = dump(client)

    assert reconciler.reconcile(client).total == 0
    assert dump(client) == before


def test_what_was_mended_is_counted_with_the_account(client, cards, keys):
    client.zadd(keys.priority, {"ghost": 1})

    reconciler.reconcile(client)

    assert client.hget(keys.counts, "mended") == "1"


def test_a_second_run_finds_nothing(client, cards, keys):
    client.delete(keys.due(cards[0].pk), keys.due(cards[1].pk))
    client.zadd(keys.priority, {cards[2].pk: 1, "ghost": 1})

    reconciler.reconcile(client)

    assert reconciler.reconcile(client).total == 0
