"""The client of the polling state; RQ has a client of its own (``publishing``)."""

import os
import threading

import redis
from django.conf import settings
from redis.backoff import NoBackoff
from redis.retry import Retry

CONNECT_TIMEOUT_S = 3
ANSWER_TIMEOUT_S = 5
"""A Redis that hangs is noticed well within a lease."""

_lock = threading.Lock()
_client: redis.Redis | None = None
_owner_pid = 0


def polling_redis() -> redis.Redis:
    """The client that all threads of this process share; a forked child gets one of its own.

    Replies are text. Nothing is ever sent twice by the client library: a lost reply must not run a script again.
    """
    global _client, _owner_pid
    with _lock:
        if _client is None or _owner_pid != os.getpid():
            _client, _owner_pid = _connect(settings.POLLING_REDIS_URL), os.getpid()
        return _client


def reset() -> None:
    """Forget the client, so that the next call connects anew, for example to another server."""
    global _client  # noqa: PLW0603  one client per process
    with _lock:
        if _client is not None and _owner_pid == os.getpid():
            _client.close()
        _client = None


def _connect(url: str) -> redis.Redis:
    over_tcp = {} if url.startswith("unix:") else {"socket_keepalive": True}
    return redis.Redis.from_url(
        url,
        decode_responses=True,
        retry=Retry(NoBackoff(), 0),
        socket_connect_timeout=CONNECT_TIMEOUT_S,
        socket_timeout=ANSWER_TIMEOUT_S,
        health_check_interval=0,
        **over_tcp,
    )
