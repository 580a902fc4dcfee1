"""A Lua file run by EVALSHA: only what has certainly not run is sent again."""

import threading
import time
from contextlib import suppress

import pytest
from redis.exceptions import NoScriptError, RedisError, ResponseError

from cardpolling import connection, luascript
from cardpolling.luascript import LuaScript


@pytest.fixture
def script(tmp_path):
    """Adds to a counter and gives it."""
    path = tmp_path / "count.lua"
    path.write_text("return redis.call('INCRBY', KEYS[1], ARGV[1])")
    return LuaScript(path)


@pytest.fixture
def failing(tmp_path):
    """Counts, then fails."""
    path = tmp_path / "failing.lua"
    path.write_text("redis.call('INCR', KEYS[1]) return redis.error_reply(ARGV[1])")
    return LuaScript(path)


def calls_of(client, command):
    return client.info("commandstats").get(f"cmdstat_{command}", {}).get("calls", 0)


def test_a_script_is_run_and_answers(client, script):
    assert script.run(client, ["n"], [5]) == 5


def test_a_script_is_sent_once_and_called_by_digest_from_then_on(client, script):
    client.config_resetstat()

    for _ in range(5):
        script.run(client, ["n"], [1])

    assert (calls_of(client, "eval"), calls_of(client, "evalsha")) == (1, 5)


def test_a_server_that_forgot_the_script_is_sent_it_again(client, script):
    script.run(client, ["n"], [1])
    client.script_flush()

    assert script.run(client, ["n"], [1]) == 2


def test_an_error_of_the_script_is_raised_and_the_script_not_run_again(client, failing):
    with pytest.raises(ResponseError, match="no such thing"):
        failing.run(client, ["n"], ["no such thing"])

    assert client.get("n") == "1"


@pytest.mark.parametrize("is_known", [True, False])
def test_many_calls_are_each_run_once_in_order(client, script, is_known):
    if is_known:
        script.run(client, ["other"], [1])

    assert script.run_many(client, [(["n"], [k]) for k in (1, 10, 100)]) == [1, 11, 111]


def test_no_calls_ask_nothing_of_the_server(script):
    assert script.run_many(None, []) == []


def test_many_known_calls_are_one_round_trip(client, script):
    script.run(client, ["n"], [0])
    client.config_resetstat()

    script.run_many(client, [(["n"], [1])] * 50)

    assert (calls_of(client, "evalsha"), calls_of(client, "eval")) == (50, 0)


def test_a_call_that_fails_stands_in_its_place(client, script):
    client.set("text", "x")

    answers = script.run_many(client, [(["n"], [1]), (["text"], [1]), (["n"], [1])])

    assert answers[0::2] == [1, 2]
    assert isinstance(answers[1], ResponseError)


def test_a_failing_call_is_not_run_again_in_a_pipeline(client, failing):
    answers = failing.run_many(client, [(["n"], ["no"])])

    assert str(answers[0]) == "no"
    assert client.get("n") == "1"


def test_scripts_flushed_under_load_double_nothing(client, script):
    for _ in range(20):
        client.script_flush()
        script.run_many(client, [(["n"], [1])] * 10)

    assert client.get("n") == "200"


def test_an_absent_server_is_told(script):
    nobody = connection._connect("redis://127.0.0.1:1/0")

    with pytest.raises(RedisError):
        script.run(nobody, ["n"], [1])
    with pytest.raises(RedisError):
        script.run_many(nobody, [(["n"], [1])])


# A server that is busy with somebody's script


class Busy:
    """A server that refuses the first calls, as it does while another script lasts too long."""

    def __init__(self, client, times):
        self._client = client
        self._left = times
        self.refusals = 0

    def evalsha(self, *arguments):
        if self._left:
            self._left -= 1
            self.refusals += 1
            raise ResponseError("BUSY Redis is busy running a script.")
        return self._client.evalsha(*arguments)

    def eval(self, *arguments):
        return self._client.eval(*arguments)


def test_a_script_that_could_not_begin_is_sent_again(client, script):
    busy = Busy(client, 3)

    assert script.run(busy, ["n"], [1]) == 1
    assert busy.refusals == 3


def test_a_server_that_stays_busy_is_told_in_the_end(client, script):
    busy = Busy(client, 1000)

    with pytest.raises(ResponseError, match="BUSY"):
        script.run(busy, ["n"], [1])
    assert busy.refusals == luascript.BUSY_TRIES + 1


@pytest.fixture
def occupied(client, script, monkeypatch):
    """A server that is busy with an endless script, which is ended a moment after the test began."""
    monkeypatch.setattr(luascript, "BUSY_TRIES", 500)
    script.run(client, ["n"], [0])
    client.config_set("busy-reply-threshold", 1)
    blocker = threading.Thread(target=_occupy, args=(client,))
    blocker.start()
    _wait_until_busy(client)
    ending = threading.Timer(0.05, client.script_kill)
    ending.start()
    yield client
    ending.join()
    blocker.join()
    client.config_set("busy-reply-threshold", 5000)


def test_a_call_really_refused_by_a_busy_server_is_made_once_when_it_is_free(occupied, script):
    assert script.run(occupied, ["n"], [1]) == 1


def test_calls_really_refused_in_a_pipeline_are_each_made_once_when_it_is_free(occupied, script):
    assert script.run_many(occupied, [(["n"], [1])] * 2) == [1, 2]


def _occupy(client):
    with suppress(ResponseError):
        client.eval("while true do end", 0)


def _wait_until_busy(client):
    deadline_s = time.monotonic() + 5
    while time.monotonic() < deadline_s:
        try:
            client.ping()
        except ResponseError:
            return
    raise AssertionError("the server was never busy")


def test_a_server_that_does_not_know_the_script_says_so(client, script):
    with pytest.raises(NoScriptError):
        client.evalsha(script._digest, 1, "n", 1)
