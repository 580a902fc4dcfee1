"""The other ways in which RQ starts workers."""

import os
import signal
import subprocess
import sys

import pytest

from cardpolling import clock, keys, publishing, state
from tests.scenarios.conftest import LEASE_MS, ROOT, database_url

pytestmark = pytest.mark.timeout(120)


def start(site, *arguments):
    """Start a management command with the environment of a worker."""
    return run_python(site, str(ROOT / "manage.py"), *arguments)


def run_python(site, *arguments):
    """Start Python with the environment of a worker."""
    with site.log.open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, *arguments],
            cwd=ROOT,
            env={
                **os.environ,
                "DJANGO_SETTINGS_MODULE": "cardpolling.settings",
                "DATABASE_URL": database_url(),
                "POLLING_LEASE_MS": str(LEASE_MS),
                "POLLING_GRACE_S": "5",
            },
            stdout=log,
            stderr=log,
        )
    site.workers.append(process)
    return process


def test_a_pool_of_workers(site):
    cards = site.make_cards(200)
    pool = start(site, "rqworker-pool", "polling", "--num-workers", "2")

    site.wait_until(lambda: site.checked() == 200)
    site.wait_until(lambda: site.client.hlen(keys.WORKERS) == 2)
    assert site.strays(cards) == []
    assert site.overlapping() == 0
    pool.send_signal(signal.SIGTERM)
    assert pool.wait(30) == 0
    assert not site.client.hgetall(keys.WORKERS)


RUN = """
import os, django
django.setup()
import rq
from cardpolling import publishing
queue = publishing.queue_of({carrier_id}, publishing.rq_connection())
worker = rq.{worker_class}([queue], connection=queue.connection, serializer=queue.serializer)
worker.work(burst=True)
"""


@pytest.mark.parametrize("worker_class", ["SimpleWorker", "Worker"])
def test_rqs_own_worker_classes_run_the_jobs_too(site, worker_class):
    """Slowly; they do not dispatch, but what was published they execute to its end, also in a forked child."""
    cards = site.make_cards(45)
    claims = state.claim(
        site.client,
        site.keys,
        now_ms=clock.now_ms(),
        lease_ms=60_000,
        limit=100,
        priority_ratio=0,
        token_prefix="some-tick",
        budgets={},
        groups={},
    ).claims
    assert publishing.publish(claims, publishing.rq_connection()) == []

    script = RUN.format(carrier_id=site.carrier.pk, worker_class=worker_class)
    assert run_python(site, "-c", script).wait(60) == 0

    assert site.checked() == 45
    assert site.is_at_rest()
    assert site.strays(cards) == []


def test_a_burst_checks_what_is_due_and_ends(site):
    cards = site.make_cards(50)

    worker = start(site, "rqworker", "polling", "--burst")

    assert worker.wait(60) == 0, site.log.read_text()[-3000:]
    assert site.checked() == 50
    assert site.is_at_rest()
    assert site.strays(cards) == []
