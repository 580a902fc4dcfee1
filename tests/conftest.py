"""Ground of the tests: the private Redis server of ``tests.settings``, empty for each test that asks for it."""

import time

import pytest
from hypothesis import HealthCheck, settings
from redis import RedisError

from cardpolling import clock, configuration, connection
from carriers.gateway import directory

# The first example of a new checkout builds Hypothesis's tables: slow on a busy machine, and no fault.
settings.register_profile("cardpolling", suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("cardpolling")


@pytest.fixture
def client():
    """The polling state, empty, script cache included; what the process remembers of another test is forgotten."""
    connection.reset()
    redis = connection.polling_redis()
    for _ in range(200):
        try:
            redis.ping()
            break
        except RedisError:
            time.sleep(0.05)
    redis.flushall()
    redis.script_flush()
    for remembered in (clock, configuration, directory):
        remembered.forget()
    yield redis
    clock.unfreeze()
    connection.reset()
