"""What Redis and the way to it can do to a running site."""

import contextlib
import signal
import socket
import threading
import time

import pytest
import redis

from cardpolling import clock, keys, publishing, state
from cardpolling.checktypes import CheckType
from tests import settings as ground

pytestmark = pytest.mark.timeout(120)


class CuttingProxy:
    """Passes bytes to the private server; cuts every connection when told to."""

    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"redis://127.0.0.1:{self.listener.getsockname()[1]}/0"
        self.pairs = []
        self.thread = threading.Thread(target=self.accept, daemon=True)
        self.thread.start()

    def accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            far = socket.create_connection(self.target)
            self.pairs.append((near, far))
            threading.Thread(target=self.carry, args=(near, far), daemon=True).start()

    def carry(self, near, far):
        with near, far:
            back = threading.Thread(target=self.pump, args=(far, near), daemon=True)
            back.start()
            self.pump(near, far)
            back.join()

    def pump(self, source, sink):
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                sink.sendall(data)
        self.shut(source, sink)

    def shut(self, *sockets):
        for one in sockets:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def cut(self):
        pairs, self.pairs = self.pairs, []
        for pair in pairs:
            self.shut(*pair)

    def close(self):
        self.shut(self.listener)
        self.thread.join()
        self.listener.close()
        self.cut()


@pytest.fixture
def proxy():
    """A way to the private server that can be cut."""
    made = CuttingProxy(ground.redis_port)
    yield made
    made.close()


def test_connections_that_are_cut_again_and_again(site, proxy):
    cards = site.make_cards(300)
    worker = site.start_worker(REDIS_URL=proxy.url, POLLING_REDIS_URL=proxy.url)
    site.wait_until(lambda: site.checked() > 20)

    for _ in range(15):
        time.sleep(0.3)
        proxy.cut()

    site.wait_until(lambda: site.checked() == 300)
    site.wait_until(site.is_at_rest)
    assert worker.poll() is None
    assert site.strays(cards) == []
    assert site.overlapping() == 0


def test_jobs_that_make_no_sense_kill_nobody(site):
    cards = site.make_cards(20)
    rq = publishing.rq_connection()
    queue = publishing.queue_of(site.carrier.pk, rq)
    queue.enqueue("no.such.function")
    queue.enqueue("cardpolling.jobs.execute_claims", "no id", "no claims")
    queue.enqueue("cardpolling.jobs.execute_claims", site.carrier.pk, [["1"]])
    broken = queue.enqueue("no.such.function", 1)
    rq.hset(broken.key, "data", b"\x80\x04 broken bytes")
    gone = queue.enqueue("no.such.function", 2)
    rq.delete(gone.key)

    worker = site.start_worker()

    site.wait_until(lambda: site.checked() == 20)
    site.wait_until(lambda: queue.count == 0)
    assert worker.poll() is None
    assert site.strays(cards) == []


def test_a_job_that_was_popped_and_never_begun_heals_by_its_leases(site):
    """What a kill between pop and start leaves behind."""
    cards = site.make_cards(20)
    rq = publishing.rq_connection()
    worker = site.start_worker(POLLING_CONCURRENCY="1")
    site.wait_until(lambda: site.checked() >= 1)
    worker.kill()
    worker.wait()
    for name in rq.scan_iter("rq:queue:polling.card.*"):
        rq.delete(name)

    site.start_worker()

    site.wait_until(lambda: site.checked() == 20)
    site.wait_until(site.is_at_rest)
    assert site.strays(cards) == []
    left = {name: (rq.ttl(name), rq.hget(name, "status")) for name in rq.scan_iter("rq:job:*")}
    assert [name for name, (ttl_s, _) in left.items() if not 0 < ttl_s <= 120] == [], left


def test_on_a_redis_that_evicts_keys_nothing_is_claimed(site):
    site.start_worker()
    site.wait_until(lambda: site.client.hgetall(keys.WORKERS))
    site.client.config_set("maxmemory-policy", "allkeys-lru")
    site.client.config_set("maxmemory", 500_000_000)
    try:
        site.wait_until(lambda: "set noeviction" in site.log.read_text())
        site.make_cards(5)
        time.sleep(1)
        assert site.simulator.calls == []
        assert any("evicts" in text for text in site.client.hgetall(keys.WORKERS).values())
    finally:
        site.client.config_set("maxmemory-policy", "noeviction")
        site.client.config_set("maxmemory", 0)

    site.wait_until(lambda: site.checked() == 5)


def test_workers_that_start_before_redis_answers(site):
    cards = site.make_cards(10)
    ground.redis_process.send_signal(signal.SIGSTOP)
    try:
        worker = site.start_worker()
        time.sleep(3)
    finally:
        ground.redis_process.send_signal(signal.SIGCONT)

    if worker.poll() is not None:
        # Without Redis there is nothing to do; a supervisor starts it again.
        assert worker.returncode != 0
        site.start_worker()
    site.wait_until(lambda: site.checked() == 10)
    assert site.strays(cards) == []


def test_a_lost_claim_reply_is_found_by_its_token_prefix(site, proxy):
    """The claim took effect and its reply did not arrive: the cards are published within a few ticks, not after the lease."""
    cards = site.make_cards(5)
    now_ms = clock.now_ms()
    with contextlib.suppress(redis.RedisError):
        state.claim(
            site.client,
            site.keys,
            now_ms=now_ms,
            lease_ms=60_000,
            limit=5,
            priority_ratio=0,
            token_prefix="never-answered",
            budgets={},
            groups={},
        )
    # Claims of nobody that knows of them end with their leases, here made short.
    for card in cards:
        site.client.pexpire(site.keys.claim(card.pk), 2_000)
        site.client.zadd(site.keys.queue, {str(card.pk): now_ms + 2_000})
        site.client.zadd(site.keys.inflight, {f"never-answered:{card.pk}": now_ms + 2_000})

    site.start_worker()

    site.wait_until(lambda: site.checked() == 5, within_s=15)


def test_a_poison_card_is_backed_off_and_the_others_go_on(site, tmp_path):
    """A card whose answer kills the process; here a site module in the worker's path does it, as a broken parser would."""
    cards = site.make_cards(60)
    poison = cards[30]
    (tmp_path / "sitecustomize.py").write_text(
        "import os, threading\n"
        "def arm():\n"
        "    from carriers.gateway import answers\n"
        "    read = answers.read_data\n"
        "    def deadly(reply, *, iccid, secret):\n"
        f"        if iccid == {poison.iccid!r}:\n"
        "            os.kill(os.getpid(), 9)\n"
        "        return read(reply, iccid=iccid, secret=secret)\n"
        "    answers.read_data = deadly\n"
        "def wait():\n"
        "    import sys, time\n"
        "    while 'cardpolling.engine' not in sys.modules:\n"
        "        time.sleep(0.01)\n"
        "    time.sleep(0.2)\n"
        "    arm()\n"
        "import sys\n"
        "if 'rqworker' in sys.argv:\n"
        "    threading.Thread(target=wait, daemon=True).start()\n"
    )
    deaths = 0
    worker = site.start_worker(PYTHONPATH=str(tmp_path))
    ends_s = time.monotonic() + 90
    while time.monotonic() < ends_s:
        if worker.poll() is not None:
            deaths += 1
            worker = site.start_worker(PYTHONPATH=str(tmp_path))
        backed_off = int(site.client.hget(site.keys.counts, "crashing") or 0)
        if backed_off and site.checked() == 59:
            break
        time.sleep(0.1)

    assert site.checked() == 59
    assert deaths >= 3
    due_ms = int(site.client.hget(site.keys.due(poison.pk), "due:card_status"))
    assert due_ms > clock.now_ms() + 60_000
    time.sleep(4)
    assert worker.poll() is None


def test_a_card_requested_again_and_again_is_served_in_its_turn(site):
    cards = site.make_cards(600)
    site.start_worker()
    site.wait_until(lambda: site.checked() > 20)
    wanted = cards[-1]

    for _ in range(20):
        state.request_check(
            site.client,
            site.carrier.pk,
            str(wanted.pk),
            [CheckType.CARD_STATUS],
            now_ms=clock.now_ms(),
            to_priority=True,
        )
        if site.calls_of(wanted):
            break
        time.sleep(0.5)

    assert site.calls_of(wanted)
