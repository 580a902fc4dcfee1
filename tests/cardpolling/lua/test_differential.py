"""Each script against its reference: the same state, the same call, the same answer, the same state afterwards.

``CARDPOLLING_EXAMPLES`` sets how many random states each script meets.
"""

import os
import time
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cardpolling.luascript import LuaScript
from cardpolling.state import LUA
from tests.cardpolling import keyspace, randomstates, reference

EXAMPLES = int(os.environ.get("CARDPOLLING_EXAMPLES", "300"))

RANDOMS = st.randoms(use_true_random=False)


@pytest.mark.parametrize("name", sorted(randomstates.CALLS))
@settings(
    max_examples=EXAMPLES,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(random=RANDOMS)
def test_script_and_reference_agree(client, name, random):
    space, keys, arguments = _state_and_call(name, random)
    expected = space.copy()
    wanted = getattr(reference, name)(expected, keys, arguments)

    began_s = time.monotonic()
    keyspace.load(client, space)
    answer = LuaScript(LUA / f"{name}.lua").run(client, keys, arguments)
    real = keyspace.dump(client)

    took_ms = (time.monotonic() - began_s) * 1000
    found = keyspace.differences(real, expected, took_ms=took_ms)
    assert (answer, found) == (wanted, []), (space, keys, arguments)


def _state_and_call(name: str, random: Random) -> tuple[reference.Space, list[str], list[str]]:
    number = random.choice((1, 3, 5, 8)) if name == "claim" else 2
    card_ids = tuple(random.sample(randomstates.IDS, number))
    space = randomstates.account(random, card_ids)
    return space, *randomstates.CALLS[name](random, space, card_ids[0])
