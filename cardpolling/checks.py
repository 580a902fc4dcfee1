"""System checks: what is misconfigured, and how to mend it. Ids are stable and never used again for something else.

====================  =========================================================================
cardpolling.E001      a knob is no number, or out of its range
cardpolling.E002      FIELD_ENCRYPTION_KEYS is empty, or a key is none
cardpolling.E003      a database connection pool together with workers that fork
cardpolling.E004      Redis evicts keys when its memory is full
cardpolling.W001      the lease is short against the dispatch interval
cardpolling.W002      a job carries more cards than a process takes at a time
cardpolling.W003      Redis does not answer
cardpolling.W004      Redis has an evicting policy, so far without a memory limit
cardpolling.W005      a secret was made up for development (``check --deploy``)
cardpolling.W006      SQLite in production (``check --deploy``)
====================  =========================================================================
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import redis
from django.conf import settings
from django.core import checks
from django.core.checks import CheckMessage, Error, Tags, register
from django.core.exceptions import ImproperlyConfigured
from django.utils.translation import gettext as _
from redis.backoff import NoBackoff
from redis.retry import Retry

from carriers import fields

REDIS_TIMEOUT_S = 1
TICKS_PER_LEASE = 10
KEEPING_POLICY = "noeviction"
FORKING_WORKERS = ("", "rq.Worker", "rq.worker.Worker", "rq.worker.worker.Worker")


class _Range(NamedTuple):
    setting: str
    least: int
    most: int


# The lease is at least three times the longest time for which a process may be busy with something else.
RANGES = (
    _Range("POLLING_LEASE_MS", 1_000, 3_600_000),
    _Range("POLLING_DISPATCH_INTERVAL_MS", 10, 1_000),
    _Range("POLLING_CONCURRENCY", 1, 100_000),
    _Range("POLLING_CARDS_PER_JOB", 1, 1_000),
    _Range("POLLING_GRACE_S", 0, 3_600),
    _Range("POLLING_RECONCILE_INTERVAL_S", 10, 86_400),
)


@register("polling")
def check_knobs(**_kwargs: Any) -> list[CheckMessage]:
    """Report knobs out of range, and those that do not fit together."""
    errors: list[CheckMessage] = []
    for knob in RANGES:
        value = getattr(settings, knob.setting, None)
        if not isinstance(value, int) or not knob.least <= value <= knob.most:
            text = _("%(setting)s is %(value)r.") % {"setting": knob.setting, "value": value}
            hint = _(
                "Set the environment variable %(setting)s to a whole number from %(least)d to %(most)d."
            )
            errors.append(Error(text, hint=hint % knob._asdict(), id="cardpolling.E001"))
    return errors or _check_proportions()


def _check_proportions() -> list[CheckMessage]:
    found: list[CheckMessage] = []
    if settings.POLLING_LEASE_MS < TICKS_PER_LEASE * settings.POLLING_DISPATCH_INTERVAL_MS:
        found.append(
            checks.Warning(
                _(
                    "A lease of %(lease)d ms is short against a dispatch interval of %(interval)d ms."
                )
                % {
                    "lease": settings.POLLING_LEASE_MS,
                    "interval": settings.POLLING_DISPATCH_INTERVAL_MS,
                },
                hint=_(
                    "Cards would be claimed anew while they are being checked: raise POLLING_LEASE_MS."
                ),
                id="cardpolling.W001",
            )
        )
    if settings.POLLING_CARDS_PER_JOB > settings.POLLING_CONCURRENCY:
        found.append(
            checks.Warning(
                _("A job carries more cards than a process takes at a time."),
                hint=_("Lower POLLING_CARDS_PER_JOB or raise POLLING_CONCURRENCY."),
                id="cardpolling.W002",
            )
        )
    return found


@register(Tags.security)
def check_encryption_keys(**_kwargs: Any) -> list[CheckMessage]:
    """Report keys with which no gateway token can be stored or read."""
    try:
        fields.cipher()
    except ImproperlyConfigured as error:
        hint = _(
            "Make a key with: python -c 'from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())'"
        )
        return [Error(str(error), hint=hint, id="cardpolling.E002")]
    return []


@register("polling")
def check_pool(**_kwargs: Any) -> list[CheckMessage]:
    """Report a connection pool that forked workers would share."""
    has_pool = any(
        database.get("OPTIONS", {}).get("pool") for database in settings.DATABASES.values()
    )
    worker_class = getattr(settings, "RQ", {}).get("WORKER_CLASS", "")
    if not has_pool or worker_class not in FORKING_WORKERS:
        return []
    return [
        Error(
            _(
                "The database connections are pooled, and RQ's workers fork: the children would share connections."
            ),
            hint=_(
                "Set RQ['WORKER_CLASS'] to cardpolling.worker.PollingWorker, or remove 'pool' from the options."
            ),
            id="cardpolling.E003",
        )
    ]


@register("polling")
def check_redis(**_kwargs: Any) -> list[CheckMessage]:
    """Report a Redis that loses the polling state; one that is away is only a warning."""
    try:
        memory = _memory_of(settings.POLLING_REDIS_URL)
    except (redis.RedisError, ValueError) as error:
        # Only the kind: the message may quote the URL.
        text = _("The polling state does not answer (Redis): %s") % type(error).__name__
        hint = _("Start Redis, or correct POLLING_REDIS_URL.")
        return [checks.Warning(text, hint=hint, id="cardpolling.W003")]
    policy = memory.get("maxmemory_policy", KEEPING_POLICY)
    if policy == KEEPING_POLICY:
        return []
    hint = _(
        "Run: redis-cli CONFIG SET maxmemory-policy noeviction; and set the same in redis.conf."
    )
    if not memory.get("maxmemory"):
        text = _("Redis is set to evict keys (%s) once it is given a memory limit.") % policy
        return [checks.Warning(text, hint=hint, id="cardpolling.W004")]
    text = (
        _("Redis evicts keys when its memory is full (%s): cards would be lost from polling.")
        % policy
    )
    return [Error(text, hint=hint, id="cardpolling.E004")]


def _memory_of(url: str) -> dict[str, Any]:
    client = redis.Redis.from_url(
        url,
        socket_timeout=REDIS_TIMEOUT_S,
        socket_connect_timeout=REDIS_TIMEOUT_S,
        retry=Retry(NoBackoff(), 0),
    )
    with client:
        memory: dict[str, Any] = client.info("memory")
    return memory


@register(Tags.security, deploy=True)
def check_secrets(**_kwargs: Any) -> list[CheckMessage]:
    """Report secrets that nobody has chosen."""
    made_up: Sequence[str] = getattr(settings, "GENERATED_SECRETS", ())
    if settings.DEBUG:
        return []
    return [
        checks.Warning(
            _("%s is not set; one was made up for this folder.") % name,
            hint=_("Set the environment variable %s to the same secret on every host.") % name,
            id="cardpolling.W005",
        )
        for name in made_up
    ]


@register(Tags.database, deploy=True)
def check_database(**_kwargs: Any) -> list[CheckMessage]:
    """Report a database that one host alone can use."""
    if settings.DEBUG or "sqlite3" not in settings.DATABASES["default"]["ENGINE"]:
        return []
    return [
        checks.Warning(
            _("The database is SQLite: it serves one host, and one writer at a time."),
            hint=_("Set DATABASE_URL to a PostgreSQL database."),
            id="cardpolling.W006",
        )
    ]
