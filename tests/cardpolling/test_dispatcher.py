"""One tick: who dispatches, how much is claimed, what becomes of claims that cannot be published."""

import json
import uuid

import pytest
import redis

from cardpolling import clock, heartbeat, publishing, state
from cardpolling.checktypes import CheckType
from cardpolling.counting import Counts
from cardpolling.dispatcher import Dispatcher
from cardpolling.heartbeat import WorkerBeat
from cardpolling.keys import AccountKeys
from cardpolling.ledger import AccountLoad, Ledger
from carriers.gateway.accounts import Account, Group

QUERY = ("card_status", "realname")


def account(
    carrier_id=1, *, per_second=1000.0, ratio=0.5, max_in_flight=500, usage_per_second=None
):
    groups = [Group("query", per_second, QUERY)]
    if usage_per_second is not None:
        groups.append(Group("usage", usage_per_second, ("carddata",)))
    return Account(
        carrier_id=carrier_id,
        code=f"account-{carrier_id}",
        provider="standard",
        gateway_url="http://127.0.0.1:9",
        token="token",
        is_enabled=True,
        max_in_flight=max_in_flight,
        priority_ratio=ratio,
        groups=tuple(groups),
    )


@pytest.fixture
def rq():
    """RQ's own connection, to the same private server."""
    return publishing.rq_connection()


class Process:
    """A dispatcher with its heartbeat."""

    def __init__(self, client, rq, *, places=500):
        self.client = client
        self.id = uuid.uuid4().hex
        self.ledger, self.counts = Ledger(), Counts()
        self.places = places
        self.dispatcher = Dispatcher(
            client, rq, process_id=self.id, ledger=self.ledger, counts=self.counts
        )

    def beat(self, **fields):
        beat = WorkerBeat(
            process_id=self.id,
            host="here",
            pid=1,
            version="1",
            started_ms=1,
            beat_ms=clock.now_ms(),
            places=self.places,
            busy=0,
            **fields,
        )
        heartbeat.publish(self.client, beat)
        return beat

    def tick(self, *accounts, **fields):
        self.beat(**fields)
        return self.dispatcher.tick(accounts, heartbeat.workers(self.client, clock.now_ms()))

    def counted(self, name, carrier_id=1):
        self.counts.flush(self.client)
        return int(self.client.hget(AccountKeys(carrier_id).counts, name) or 0)


@pytest.fixture
def process(client, rq):
    """The only process there is."""
    return Process(client, rq)


def enroll(
    client, number, *, carrier_id=1, types=(CheckType.CARD_STATUS,), first=1, priority=False
):
    now_ms = clock.now_ms()
    cards = [
        (str(i), dict.fromkeys(types, now_ms - 10_000 + i)) for i in range(first, first + number)
    ]
    state.enroll_many(client, carrier_id, cards)
    if priority:
        for card_id, _ in cards:
            state.request_check(
                client, carrier_id, card_id, list(types), now_ms=now_ms, to_priority=True
            )


def published(rq, carrier_id=1):
    """Claims in the account's RQ queue, oldest job first."""
    queue = publishing.queue_of(carrier_id, rq)
    return [claim for job in queue.jobs for claim in publishing.decode(*job.args)]


def test_due_cards_are_claimed_and_published_in_jobs_of_many(process, client, rq, settings):
    settings.POLLING_CARDS_PER_JOB = 20
    enroll(client, 50)

    assert process.tick(account()) == 50

    claims = published(rq)
    assert sorted(int(c.card_id) for c in claims) == list(range(1, 51))
    assert publishing.queue_of(1, rq).count == 3
    for claim in claims:
        assert client.get(AccountKeys(1).claim(claim.card_id)) == claim.token
    assert process.counted("published") == 50


def test_a_job_carries_ids_and_tokens_as_json_and_lives_as_long_as_its_leases(
    process, client, rq, settings
):
    enroll(client, 1)

    process.tick(account())

    (job,) = publishing.queue_of(1, rq).jobs
    raw = rq.hget(job.key, "data")
    assert b"pickle" not in raw
    assert 0 < rq.pttl(job.key) <= settings.POLLING_LEASE_MS
    assert json.dumps(job.args)


def test_nothing_due_claims_nothing(process, client, rq):
    state.enroll(client, 1, "1", {CheckType.CARD_STATUS: clock.now_ms() + 60_000})

    assert process.tick(account()) == 0
    assert published(rq) == []


def test_no_more_is_claimed_than_the_limit_can_call_soon(process, client):
    enroll(client, 400)

    process.tick(account(per_second=20))

    assert 10 <= process.counted("claimed") <= 20


def test_what_is_claimed_and_not_yet_called_is_not_claimed_again(process, client):
    enroll(client, 400)
    limited = account(per_second=20)
    process.tick(limited)
    first = process.counted("claimed")

    for _ in range(5):
        process.tick(limited)

    assert process.counted("claimed") <= first + 3


def test_calls_owed_by_other_processes_count_too(process, client):
    enroll(client, 400)

    process.tick(account(per_second=20), loads={1: AccountLoad(30, {"query": 30})})

    assert process.counted("claimed") == 0


def test_the_accounts_own_in_flight_limit_holds(process, client):
    enroll(client, 100)

    for _ in range(3):
        process.tick(account(max_in_flight=7))

    assert process.counted("claimed") == 7
    assert client.zcard(AccountKeys(1).inflight) == 7


def test_priority_gets_its_ratio_of_many_single_slots(process, client, rq):
    enroll(client, 100)
    enroll(client, 100, first=1001, priority=True)
    claims = []
    for _ in range(100):
        process.tick(account(ratio=0.3, max_in_flight=client.zcard(AccountKeys(1).inflight) + 1))
        claims += published(rq)
        publishing.queue_of(1, rq).empty()

    assert len(claims) == 100
    assert 25 <= sum(claim.from_priority for claim in claims) <= 35


@pytest.mark.parametrize(("normal", "priority"), [(0, 50), (50, 0)])
def test_one_queue_alone_gets_all(process, client, normal, priority):
    enroll(client, normal)
    enroll(client, priority, first=1001, priority=True)

    assert process.tick(account(ratio=0.3)) == 50


def test_claims_that_cannot_be_published_are_released_at_once(client):
    dead = redis.Redis(port=1, socket_connect_timeout=0.2)
    process = Process(client, dead)
    enroll(client, 3)

    with pytest.raises(redis.ConnectionError):
        process.tick(account())

    assert client.zcard(AccountKeys(1).inflight) == 0
    assert client.keys(AccountKeys(1).claim("*")) == []


def test_publication_that_fails_half_way_releases_its_claims(process, client, rq):
    enroll(client, 3)
    key = publishing.queue_of(1, rq).key
    rq.set(key, "not a list")

    process.tick(account())

    assert client.zcard(AccountKeys(1).inflight) == 0
    assert process.counted("released") == 3
    rq.delete(key)
    assert process.tick(account()) == 3


def test_an_account_in_trouble_stops_no_other(process, client):
    client.set(AccountKeys(1).queue, "not a sorted set")
    enroll(client, 5, carrier_id=2)

    for _ in range(2):
        try:
            process.tick(account(1), account(2))
        except redis.ResponseError:
            continue

    assert process.counted("published", 2) == 5


def test_one_process_dispatches_an_account(client, rq):
    processes = [Process(client, rq) for _ in range(3)]
    enroll(client, 300)
    for process in processes:
        process.beat()

    numbers = [process.tick(account(per_second=10_000)) for process in processes]

    assert sorted(numbers)[:2] == [0, 0]
    assert max(numbers) > 0


def test_accounts_are_spread_over_the_processes(client, rq):
    processes = [Process(client, rq) for _ in range(2)]
    accounts = [account(i) for i in range(1, 41)]
    for one in accounts:
        enroll(client, 1, carrier_id=one.carrier_id)
    for process in processes:
        process.beat()

    numbers = [process.tick(*accounts) for process in processes]

    assert sum(numbers) == 40
    assert min(numbers) >= 8


def test_a_process_that_is_gone_is_replaced_when_its_locks_end(client, rq):
    gone, stays = Process(client, rq), Process(client, rq)
    gone.beat()
    stays.beat()
    accounts = [account(i) for i in range(1, 11)]
    gone.tick(*accounts)
    heartbeat.withdraw(client, gone.id)
    for one in accounts:
        enroll(client, 1, carrier_id=one.carrier_id)
        client.delete(AccountKeys(one.carrier_id).dispatch)

    assert stays.tick(*accounts) == 10


def test_expired_claims_are_counted_and_claimed_again(process, client):
    enroll(client, 2)
    process.tick(account())
    keys = AccountKeys(1)
    past_ms = clock.now_ms() - 1
    for token in client.zrange(keys.inflight, 0, -1):
        client.zadd(keys.inflight, {token: past_ms})
    for card_id in ("1", "2"):
        client.delete(keys.claim(card_id))
        client.zadd(keys.queue, {card_id: past_ms})

    assert process.tick(account()) == 2
    assert process.counted("expired") == 2


def test_cards_behind_an_exhausted_group_are_found(process, client):
    """More blocked cards stand ahead than one claim looks at."""
    client.set(AccountKeys(1).throttle, "")
    enroll(client, 4_500, types=(CheckType.CARD_STATUS,))
    enroll(client, 10, first=9_001, types=(CheckType.CARDDATA,))
    both = account(per_second=0.0001, usage_per_second=1000.0)
    claimed = []
    for _ in range(6):
        process.tick(both)
        claimed = [c for c in range(9_001, 9_011) if client.exists(AccountKeys(1).claim(str(c)))]
        if len(claimed) == 10:
            break

    assert len(claimed) == 10


def test_the_locks_are_given_up_at_a_stop(process, client):
    process.tick(account())
    assert client.exists(AccountKeys(1).dispatch)

    process.dispatcher.stop()

    assert not client.exists(AccountKeys(1).dispatch)


def test_a_holder_that_was_frozen_claims_nothing_with_its_old_lock(client, rq):
    frozen, other = Process(client, rq), Process(client, rq)
    frozen.tick(account())
    heartbeat.withdraw(client, frozen.id)
    client.set(AccountKeys(1).dispatch, other.id, px=5_000)
    enroll(client, 10)

    frozen.tick(account())
    frozen.dispatcher.stop()

    assert frozen.counted("claimed") == 0
    assert client.get(AccountKeys(1).dispatch) == other.id


def test_the_holder_ticks_every_time_though_its_lock_outlives_the_tick(process, client):
    for i in range(10):
        enroll(client, 1, first=i + 1)
        assert process.tick(account()) == 1


def test_an_account_without_budget_does_not_hold_up_another(process, client):
    enroll(client, 3_000, carrier_id=1)
    enroll(client, 10, carrier_id=2)

    process.tick(account(1, per_second=0.0001), account(2))

    assert process.counted("published", 2) == 10


def test_requests_do_not_wait_for_the_earliest_due(process, client):
    state.enroll(client, 1, "1", {CheckType.CARD_STATUS: clock.now_ms() + 30_000})
    enroll(client, 100, first=2, priority=True)

    assert process.tick(account()) == 100


def test_jobs_of_workers_that_are_away_do_not_pile_up(process, client, rq):
    """Nobody takes the jobs: leases end, cards are claimed again, and what waits in RQ stays bounded."""
    enroll(client, 3_000)
    for _ in range(30):
        process.tick(account(max_in_flight=5_000, per_second=10_000))

    assert len(published(rq)) <= 2 * process.places


def test_a_claim_whose_reply_was_lost_is_published_in_the_next_tick(
    process, client, rq, monkeypatch
):
    enroll(client, 5)
    claim = state.claim

    def losing_its_reply(*arguments, **options):
        claim(*arguments, **options)
        raise redis.ConnectionError("reply lost")

    monkeypatch.setattr(state, "claim", losing_its_reply)
    process.tick(account())
    assert published(rq) == []
    monkeypatch.undo()

    process.tick(account())

    assert len(published(rq)) == 5
    assert process.counted("recovered") == 5
