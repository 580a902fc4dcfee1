"""The client of the polling state: one per process, text replies, nothing sent twice."""

import multiprocessing
import socket
import threading

import pytest
from redis import RedisError
from redis.exceptions import ConnectionError as RedisConnectionError

from cardpolling import connection
from cardpolling.luascript import LuaScript
from cardpolling.state import LUA


def test_all_of_a_process_share_one_client(client):
    assert connection.polling_redis() is client


def test_threads_that_come_at_once_are_given_one_client(client):
    connection.reset()
    given = []
    barrier = threading.Barrier(20)

    def ask():
        barrier.wait()
        given.append(connection.polling_redis())

    threads = [threading.Thread(target=ask) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len({id(one) for one in given}) == 1


def test_replies_are_text(client):
    client.set("x", "卡")

    assert client.get("x") == "卡"


def test_after_a_reset_the_next_call_connects_anew(client, settings):
    connection.reset()

    assert connection.polling_redis() is not client
    assert connection.polling_redis().ping()


def test_a_reset_follows_the_settings_to_another_server(client, settings):
    settings.POLLING_REDIS_URL = settings.POLLING_REDIS_URL.removesuffix("/0") + "/3"
    client.set("x", "here")

    connection.reset()

    assert connection.polling_redis().get("x") is None


def test_a_reset_before_any_use_is_harmless(client):
    connection.reset()
    connection.reset()

    assert connection.polling_redis().ping()


def _tell(results, parents_id):
    own = connection.polling_redis()
    results.put((id(own) != parents_id, own.client_id()))


def test_a_forked_child_has_a_client_and_a_connection_of_its_own(client):
    parents = client.client_id()
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_tell, args=(results, id(client)))
    child.start()
    is_another, childs = results.get(timeout=10)
    child.join(10)

    assert is_another
    assert childs != parents
    assert client.client_id() == parents


def test_an_absent_server_is_told_at_once(settings):
    settings.POLLING_REDIS_URL = "redis://127.0.0.1:1/0"
    connection.reset()

    with pytest.raises(RedisConnectionError):
        connection.polling_redis().ping()


# Nothing is sent twice


class Swallower:
    """Stands before the server and, once told to, passes commands on and closes instead of passing the reply back."""

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.swallows = threading.Event()
        self._closing = []
        self._begin(self._accept)

    def _begin(self, target, *arguments):
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        thread.start()

    def _accept(self):
        while True:
            try:
                downstream, _ = self._listener.accept()
            except OSError:
                return
            upstream = socket.create_connection(("127.0.0.1", self._port))
            self._closing += [downstream, upstream]
            self._begin(self._pass_on, downstream, upstream)
            self._begin(self._pass_back, upstream, downstream)

    def _pass_on(self, downstream, upstream):
        try:
            while data := downstream.recv(65536):
                upstream.sendall(data)
        except OSError:
            return

    def _pass_back(self, upstream, downstream):
        try:
            while data := upstream.recv(65536):
                if self.swallows.is_set():
                    break
                downstream.sendall(data)
            downstream.shutdown(socket.SHUT_RDWR)
        except OSError:
            return

    def close(self):
        for one in (self._listener, *self._closing):
            one.close()


@pytest.fixture
def swallower(client, settings):
    """The polling state behind a connection that loses replies."""
    port = client.connection_pool.connection_kwargs["port"]
    between = Swallower(port)
    settings.POLLING_REDIS_URL = f"redis://127.0.0.1:{between.port}/0"
    connection.reset()
    connection.polling_redis().ping()
    yield between
    between.close()
    connection.reset()


@pytest.fixture
def direct(client, settings):
    """A second client, past whatever stands between."""
    other = connection._connect(settings.POLLING_REDIS_URL)
    yield other
    other.close()


def test_a_command_whose_reply_is_lost_is_not_sent_again(direct, swallower):
    swallower.swallows.set()

    with pytest.raises(RedisError):
        connection.polling_redis().incr("count")

    assert direct.get("count") == "1"


def test_a_pipeline_whose_reply_is_lost_is_not_sent_again(direct, swallower):
    pipe = connection.polling_redis().pipeline(transaction=False)
    pipe.incr("count").incr("count")
    swallower.swallows.set()

    with pytest.raises(RedisError):
        pipe.execute()

    assert direct.get("count") == "2"


def test_a_script_whose_reply_is_lost_has_run_once(direct, swallower):
    direct.zadd("polling:{c7}:queue", {"1": 1, "2": 1})
    script = LuaScript(LUA / "claim.lua")
    direct.script_load((LUA / "claim.lua").read_text())
    swallower.swallows.set()

    keys = [f"polling:{{c7}}:{name}" for name in ("priority", "queue", "inflight")]
    arguments = [5, 60_000, 1, 0, "call", "", "", 1, "polling:{c7}:card:"]
    with pytest.raises(RedisError):
        script.run(connection.polling_redis(), keys, arguments)

    assert direct.zcard("polling:{c7}:inflight") == 1


def test_after_a_lost_reply_the_next_command_is_served(direct, swallower):
    swallower.swallows.set()
    with pytest.raises(RedisError):
        connection.polling_redis().incr("count")
    swallower.swallows.clear()

    assert connection.polling_redis().incr("count") == 2
