"""What holds of every script: its header says what its body does, and other programs may call it by KEYS and ARGV.

The calls in this file name keys, arguments and answers as they are, without any of the product's own names for them: a change
that breaks one of them breaks programs that are not ours.
"""

import re
from contextlib import suppress

import pytest
from redis import ResponseError
from redis.exceptions import NoScriptError

from cardpolling import dispatchlock, scouting, state
from cardpolling.luascript import LuaScript
from cardpolling.state import LUA

SCRIPTS = sorted(path.stem for path in LUA.glob("*.lua"))
WRAPPERS = {"hold_dispatch": dispatchlock, "drop_dispatch": dispatchlock, "scout": scouting}

P, Q, F = "polling:{c7}:priority", "polling:{c7}:queue", "polling:{c7}:inflight"
DUE, CLAIM, EXEC = (f"polling:{{c7}}:card:1:{name}" for name in ("due", "claim", "exec"))
NOW = "1764547200000"
LATER = "1764547260000"


def text_of(name):
    return (LUA / f"{name}.lua").read_text()


def listed(name, heading):
    """Names of a header's numbered entries, without the open-ended last one."""
    _, _, rest = text_of(name).partition(f"-- {heading}\n")
    entries = re.match(r"(?:--   .*\n)+", rest)
    return re.findall(r"^--   \d+ (\w+)", entries[0], re.MULTILINE) if entries else []


# Headers


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_header_begins_with_the_name_and_lists_keys_arguments_and_answers(name):
    lines = text_of(name).splitlines()

    assert lines[0].startswith(f"-- {name}: ")
    headings = [line for line in lines if line in ("-- KEYS", "-- ARGV", "-- RETURNS")]
    assert headings == ["-- KEYS", "-- ARGV", "-- RETURNS"]


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize("heading", ["KEYS", "ARGV"])
def test_the_words_of_the_header_are_the_locals_of_the_body(name, heading):
    body = "\n".join(line for line in text_of(name).splitlines() if not line.startswith("--"))
    unpacked = {}
    for names, values in re.findall(r"^local ([\w, ]+) = (.*[KA][ER][YG][SV]\[.*)$", body, re.M):
        expressions = re.split(r",\s*(?![^()]*\))", values)
        for local, value in zip(names.split(", "), expressions, strict=True):
            if position := re.search(rf"{heading}\[(\d+)\]", value):
                unpacked[int(position[1])] = local

    assert [unpacked[n] for n in sorted(unpacked)] == listed(name, heading)
    assert sorted(unpacked) == list(range(1, len(unpacked) + 1))


@pytest.mark.parametrize("name", SCRIPTS)
def test_keys_and_arguments_are_unpacked_once_at_the_top(name):
    indexed = re.findall(r"(?:KEYS|ARGV)\[\d+\]", text_of(name))

    assert len(indexed) == len(set(indexed)) == len(listed(name, "KEYS") + listed(name, "ARGV"))


@pytest.mark.parametrize("name", SCRIPTS)
def test_every_script_has_a_wrapper_and_a_test_file(name, request):
    wrapper = getattr(WRAPPERS.get(name, state), f"_{name.removesuffix('_dispatch')}")

    assert isinstance(wrapper, LuaScript)
    assert (request.path.parent / f"test_{name}.py").exists()


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_asks_for_the_time_chance_or_all_keys(name):
    assert not re.search(r"'(TIME|KEYS|SCAN|RANDOMKEY)'|math\.random|os\.", text_of(name))


@pytest.mark.parametrize("name", SCRIPTS)
def test_numbers_that_are_computed_are_written_by_format(name):
    assert "tostring(" not in text_of(name)


# Calls by other programs


@pytest.fixture(params=["EVAL", "EVALSHA"])
def call(request, client):
    """Run a script by name, KEYS and ARGV."""

    def by_text(name, keys, *arguments):
        return client.eval(text_of(name), len(keys), *keys, *arguments)

    def by_digest(name, keys, *arguments):
        return client.evalsha(client.script_load(text_of(name)), len(keys), *keys, *arguments)

    return by_text if request.param == "EVAL" else by_digest


def test_claim_by_keys_and_arguments(client, call):
    client.zadd(P, {"1": 5})
    client.zadd(Q, {"2": 6, "3": 7})
    client.zadd(F, {"old": 5})
    client.hset(DUE, mapping={"due:carddata": "5", "prio": "1"})

    budgets, groups = "query=1;usage=1", "card_status=query;carddata=usage;realname=query"
    answer = call(
        "claim", [P, Q, F], NOW, "60000", "2", "0.5", "uuid", budgets, groups, "1",
        "polling:{c7}:card:", "2000",
    )  # fmt: skip

    assert answer == [1, "1", "uuid:1", 1, "2", "uuid:2", 0]
    assert client.get(CLAIM) == "uuid:1"
    assert client.zrange(F, 0, -1, withscores=True) == [
        ("uuid:1", float(LATER)),
        ("uuid:2", float(LATER)),
    ]
    assert client.hgetall(DUE) == {"due:carddata": "5"}


def test_claim_without_a_scan_limit_and_without_budgets(client, call):
    client.zadd(Q, {"1": 5})

    arguments = [NOW, "60000", "9", "0", "uuid", "", "", "0", "polling:{c7}:card:"]
    assert call("claim", [P, Q, F], *arguments) == [0, "1", "uuid:1", 0]


def test_claim_with_an_empty_key_for_the_priority_queue(client, call):
    client.zadd(P, {"1": 5})
    client.zadd(Q, {"2": 6})

    arguments = [NOW, "60000", "1", "0.5", "uuid", "", "", "0", "polling:{c7}:card:"]
    assert call("claim", ["polling:{c7}:none", Q, F], *arguments) == [0, "2", "uuid:2", 0]


def test_claim_without_room(client, call):
    client.zadd(Q, {"1": 5})

    arguments = [NOW, "60000", "0", "0", "uuid", "", "", "1", "polling:{c7}:card:"]
    assert call("claim", [P, Q, F], *arguments) == [0]


def test_acquire_exec_by_keys_and_arguments(client, call):
    client.set(CLAIM, "t")

    assert call("acquire_exec", [CLAIM, EXEC], "other", "me", "60000") == 0
    assert call("acquire_exec", [CLAIM, EXEC], "t", "me", "60000") == 1
    assert call("acquire_exec", [CLAIM, EXEC], "t", "me", "60000") == 1
    assert call("acquire_exec", [CLAIM, EXEC], "t", "you", "60000") == -1


def test_renew_by_keys_and_arguments(client, call):
    client.set(CLAIM, "t")
    client.set(EXEC, "me")
    client.zadd(Q, {"1": 5})

    keys = [CLAIM, EXEC, F, P, Q]
    assert call("renew", keys, "t", "me", "60000", "90000", NOW, "1") == 1
    assert call("renew", keys, "t", "you", "60000", "90000", NOW, "1") == 0
    assert client.zscore(Q, "1") == client.zscore(F, "t") == float(LATER)
    assert 55_000 < client.pttl(CLAIM) <= 60_000 < 85_000 < client.pttl(EXEC)


def test_finish_by_keys_and_arguments(client, call):
    client.set(CLAIM, "t")
    client.set(EXEC, "me")
    client.zadd(F, {"t": 5})
    client.zadd(P, {"1": 5})
    client.hset(DUE, mapping={"fail:carddata": "3", "due:carddata": "7"})

    keys, changes = (
        [DUE, CLAIM, EXEC, F, P, Q],
        ["due:carddata", f"{LATER}|0|7", "ok:carddata", NOW],
    )
    answer = call(
        "finish", keys, "t", "me", "1", NOW, "2", *changes, "fail:carddata", "err:carddata"
    )

    assert answer == 1
    assert client.hgetall(DUE) == {"due:carddata": LATER, "ok:carddata": NOW}
    assert client.zscore(Q, "1") == float(LATER)
    assert not client.exists(P, F, CLAIM, EXEC)


def test_finish_without_changes(client, call):
    client.set(CLAIM, "t")
    client.zadd(Q, {"1": 5})

    assert call("finish", [DUE, CLAIM, EXEC, F, P, Q], "t", "me", "1", NOW, "0") == 1
    assert client.zscore(Q, "1") == float(NOW) + 3_600_000


def test_finish_late(client, call):
    client.set(CLAIM, "other")
    client.zadd(Q, {"1": 5})

    arguments = ["t", "me", "1", NOW, "1", "ok:carddata", NOW]
    assert call("finish", [DUE, CLAIM, EXEC, F, P, Q], *arguments) == 0
    assert client.hgetall(DUE) == {"ok:carddata": NOW}


def test_request_check_by_keys_and_arguments(client, call):
    client.zadd(Q, {"1": LATER})

    keys, types = [DUE, P, Q, CLAIM], ["card_status", "realname"]
    arguments = [NOW, "1", "0", "30,60,300", "suspended", "1", *types]
    assert call("request_check", keys, *arguments) == 2
    assert client.hgetall(DUE) == {
        **{f"{name}:{t}": v for t in types for name, v in (("due", NOW), ("req", "1"))},
        **{
            f"{name}:{t}": v
            for t in types
            for name, v in (("cfm", "30,60,300"), ("exp", "suspended"))
        },
        "prio": "1",
    }
    assert client.zscore(P, "1") == float(NOW)


def test_request_check_refused(client, call):
    keys = [DUE, P, Q, CLAIM]
    assert call("request_check", keys, NOW, "1", "0", "", "", "1", "carddata") == -1

    client.zadd(Q, {"1": 5})
    client.hset(DUE, "ok:carddata", NOW)
    assert call("request_check", keys, NOW, "1", "1000", "", "", "0", "carddata") == 0


def test_remove_by_keys_and_arguments(client, call):
    client.zadd(P, {"1": 5})
    client.hset(DUE, "prio", "1")

    assert call("remove", [P, Q, DUE], "1") == 1
    assert call("remove", [P, Q, DUE], "1") == 0
    assert not client.keys()


def test_release_by_keys_and_arguments(client, call):
    client.set(CLAIM, "t")
    client.zadd(F, {"t": 5})
    client.zadd(P, {"1": LATER})

    assert call("release", [CLAIM, F, P, Q], "other", "1", NOW) == 0
    assert call("release", [CLAIM, F, P, Q], "t", "1", NOW) == 1
    assert client.keys() == [P]
    assert client.zscore(P, "1") == float(NOW)


def test_enroll_by_keys_and_arguments(client, call):
    arguments = ["1", "7", "card_status", LATER, "carddata", NOW]

    assert call("enroll", [DUE, P, Q], *arguments) == 1
    assert call("enroll", [DUE, P, Q], *arguments) == 0
    assert client.zrange(Q, 0, -1, withscores=True) == [("1", float(NOW))]
    assert client.hgetall(DUE) == {"due:card_status": LATER, "due:carddata": NOW, "carrier": "7"}


def test_dispatch_lock_by_keys_and_arguments(client, call):
    lock = ["polling:{c7}:dispatch"]

    assert call("hold_dispatch", lock, "me", "60000") == 1
    assert call("hold_dispatch", lock, "you", "60000") == 0
    assert call("drop_dispatch", lock, "you") == 0
    assert call("drop_dispatch", lock, "me") == 1


def test_scout_by_keys_and_arguments(client, call):
    client.zadd(Q, {"1": 5, "2": 6})
    client.hset(DUE, "due:carddata", "5")

    assert call("scout", [Q], NOW, "0", "10", "polling:{c7}:card:", "carddata") == [2, "2", "6"]


# For all of them


CALLS = {
    "claim": ([P, Q, F], [NOW, "60000", "9", "0", "uuid", "", "", "1", "polling:{c7}:card:"]),
    "acquire_exec": ([CLAIM, EXEC], ["t", "me", "60000"]),
    "renew": ([CLAIM, EXEC, F, P, Q], ["t", "me", "60000", "60000", NOW, "1"]),
    "finish": ([DUE, CLAIM, EXEC, F, P, Q], ["t", "me", "1", NOW, "0"]),
    "request_check": ([DUE, P, Q, CLAIM], [NOW, "1", "0", "", "", "1", "carddata"]),
    "remove": ([P, Q, DUE], ["1"]),
    "release": ([CLAIM, F, P, Q], ["t", "1", NOW]),
    "enroll": ([DUE, P, Q], ["1", "7", "carddata", NOW]),
    "hold_dispatch": (["polling:{c7}:dispatch"], ["me", "60000"]),
    "drop_dispatch": (["polling:{c7}:dispatch"], ["me"]),
    "scout": ([Q], [NOW, "0", "10", "polling:{c7}:card:", "carddata"]),
}


def test_every_script_is_called_here():
    assert sorted(CALLS) == SCRIPTS


@pytest.mark.parametrize("name", SCRIPTS)
def test_all_keys_of_a_script_share_the_accounts_hash_tag(client, name):
    client.set(CLAIM, "t")
    client.set(EXEC, "me")
    client.zadd(Q, {"1": 5})
    keys, arguments = CALLS[name]

    client.eval(text_of(name), len(keys), *keys, *arguments)

    assert all("{c7}" in key for key in [*keys, *client.keys()])


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_the_server_does_not_know_is_sent_along(client, name):
    keys, arguments = CALLS[name]
    with pytest.raises(NoScriptError):
        client.evalsha(LuaScript(LUA / f"{name}.lua")._digest, len(keys), *keys, *arguments)

    LuaScript(LUA / f"{name}.lua").run(client, keys, arguments)


@pytest.mark.parametrize("name", SCRIPTS)
def test_a_script_called_without_arguments_writes_nothing(client, name):
    client.zadd(Q, {"1": 5})
    client.zadd(F, {"old": 5})
    client.hset(DUE, "due:carddata", "5")
    keys, _ = CALLS[name]
    before = [client.dump(key) for key in sorted(client.keys())]

    with suppress(ResponseError):
        client.eval(text_of(name), len(keys), *keys)

    assert [client.dump(key) for key in sorted(client.keys())] == before
