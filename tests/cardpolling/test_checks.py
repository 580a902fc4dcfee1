"""System checks."""

import pytest
from cryptography.fernet import Fernet
from django.core.checks.registry import registry

from cardpolling import checks

POOLED = {"ENGINE": "django.db.backends.postgresql", "OPTIONS": {"pool": True}}
SQLITE = {"ENGINE": "django.db.backends.sqlite3"}
SECRET = "hunter2"


def ids(messages):
    return [message.id for message in messages]


@pytest.fixture
def redis_server(client, settings):
    """A Redis whose policy a test may change."""
    number = client.connection_pool.connection_kwargs["port"]
    settings.POLLING_REDIS_URL = f"redis://127.0.0.1:{number}/0"
    yield client
    client.config_set("maxmemory-policy", "noeviction")
    client.config_set("maxmemory", 0)


@pytest.fixture
def pooled(settings, monkeypatch):
    """Pooled database connections."""
    monkeypatch.setitem(settings.DATABASES, "default", POOLED)


def test_the_defaults_are_all_right(settings):
    settings.FIELD_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]

    assert checks.check_knobs() + checks.check_pool() + checks.check_encryption_keys() == []


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("POLLING_DISPATCH_INTERVAL_MS", 1001),
        ("POLLING_DISPATCH_INTERVAL_MS", 0),
        ("POLLING_LEASE_MS", 0),
        ("POLLING_LEASE_MS", -1),
        ("POLLING_LEASE_MS", 10**9),
        ("POLLING_CONCURRENCY", 0),
        ("POLLING_CARDS_PER_JOB", 0),
        ("POLLING_CARDS_PER_JOB", "20"),
        ("POLLING_CARDS_PER_JOB", None),
        ("POLLING_GRACE_S", -1),
    ],
)
def test_a_knob_out_of_range_is_an_error(settings, setting, value):
    setattr(settings, setting, value)

    (error,) = checks.check_knobs()

    assert error.id == "cardpolling.E001"
    assert setting in error.msg
    assert setting in error.hint


def test_a_lease_that_is_short_against_the_interval_is_a_warning(settings):
    settings.POLLING_LEASE_MS, settings.POLLING_DISPATCH_INTERVAL_MS = 5000, 1000

    assert ids(checks.check_knobs()) == ["cardpolling.W001"]


def test_a_job_larger_than_a_process_is_a_warning(settings):
    settings.POLLING_CARDS_PER_JOB, settings.POLLING_CONCURRENCY = 20, 10

    assert ids(checks.check_knobs()) == ["cardpolling.W002"]


@pytest.mark.parametrize("keys", [[], ["too short"], [SECRET]])
def test_unusable_encryption_keys_are_an_error_that_does_not_show_them(settings, keys):
    settings.FIELD_ENCRYPTION_KEYS = keys

    (error,) = checks.check_encryption_keys()

    assert error.id == "cardpolling.E002"
    assert "FIELD_ENCRYPTION_KEYS" in error.msg
    assert SECRET not in error.msg + error.hint


@pytest.mark.parametrize("worker_class", ["", "rq.Worker", "rq.worker.Worker"])
def test_a_pool_with_forking_workers_is_an_error(pooled, settings, worker_class):
    settings.RQ = {"WORKER_CLASS": worker_class}

    assert ids(checks.check_pool()) == ["cardpolling.E003"]


def test_a_pool_with_our_workers_is_all_right(pooled, settings):
    settings.RQ = {"WORKER_CLASS": "cardpolling.worker.PollingWorker"}

    assert checks.check_pool() == []


def test_a_redis_that_keeps_its_keys_is_all_right(redis_server):
    assert checks.check_redis() == []


@pytest.mark.parametrize("policy", ["volatile-lru", "allkeys-lru", "volatile-ttl"])
def test_a_redis_that_evicts_keys_is_an_error(redis_server, policy):
    redis_server.config_set("maxmemory", 10**9)
    redis_server.config_set("maxmemory-policy", policy)

    (error,) = checks.check_redis()

    assert (error.id, policy in error.msg) == ("cardpolling.E004", True)
    assert "noeviction" in error.hint


def test_an_evicting_policy_without_a_limit_is_a_warning(redis_server):
    redis_server.config_set("maxmemory-policy", "allkeys-lru")

    assert ids(checks.check_redis()) == ["cardpolling.W004"]


@pytest.mark.parametrize("url", [f"redis://:{SECRET}@127.0.0.1:1/0", "nonsense"])
def test_a_redis_that_is_away_is_a_warning_without_its_password(settings, url):
    settings.POLLING_REDIS_URL = url

    (warning,) = checks.check_redis()

    assert warning.id == "cardpolling.W003"
    assert SECRET not in warning.msg + warning.hint


@pytest.mark.parametrize(("debug", "expected"), [(True, []), (False, ["cardpolling.W005"])])
def test_a_made_up_secret_in_production_is_a_warning(settings, debug, expected):
    settings.DEBUG, settings.GENERATED_SECRETS = debug, ("SECRET_KEY",)

    assert ids(checks.check_secrets()) == expected


@pytest.mark.parametrize(("debug", "expected"), [(True, []), (False, ["cardpolling.W006"])])
def test_sqlite_in_production_is_a_warning(settings, monkeypatch, debug, expected):
    settings.DEBUG = debug
    monkeypatch.setitem(settings.DATABASES, "default", SQLITE)

    assert ids(checks.check_database()) == expected


def test_the_checks_are_registered():
    registered = registry.registered_checks | registry.deployment_checks
    ours = {
        checks.check_knobs,
        checks.check_encryption_keys,
        checks.check_pool,
        checks.check_redis,
        checks.check_secrets,
        checks.check_database,
    }
    assert ours <= registered
