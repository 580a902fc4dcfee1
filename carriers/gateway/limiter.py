"""Who limits calls per second: slots of an account's rate-limit groups, shared by all processes and hosts through Redis.

A caller asks once and is told when its turn comes. No second, sliding, holds more than N starts: the scripts grant 99 % of N
and leave the rest to the unpunctuality of whoever starts (``LATE_TOLERANCE_MS``). The scripts lie in ``lua/``.
"""

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from redis import Redis

from cardpolling import clock
from cardpolling.keys import AccountKeys
from cardpolling.luascript import LuaScript
from carriers.gateway.accounts import Account, Group

logger = logging.getLogger(__name__)

_LUA = Path(__file__).parent / "lua"
_reserve = LuaScript(_LUA / "reserve.lua")
_give_back = LuaScript(_LUA / "give_back.lua")
_calls_left = LuaScript(_LUA / "calls_left.lua")
_throttle = LuaScript(_LUA / "throttle.lua")

RATE_SHARE = 0.99
"""What is granted of N."""

LATE_TOLERANCE_MS = 10
"""How late a slot may be used: what the share leaves free of one second."""

LONGEST_RETRY_AFTER_MS = 300_000


class Want(StrEnum):
    """How a caller asks that does not wait; one that waits asks with the latest time (us) it can use."""

    NOW = "now"
    EXEMPT = "exempt"


Limit = tuple[int, Group]
"""Carrier id and one of its groups: what a limit is known by."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Several callers of one limit, in their order."""

    limit: Limit
    wants: Sequence[Want | int]


def reserve(client: Redis, limit: Limit, want: Want | int) -> int | None:
    """When (us) this caller may start; None where it is refused. Raises ``RedisError``."""
    answer = _reserve.run(client, _keys(limit), [clock.now_us(), *_terms(limit), want])
    return _time(answer[0])


def reserve_many(
    client: Redis, reservations: Sequence[Reservation]
) -> list[list[int | None] | Exception]:
    """The same for many callers in one round trip; a limit whose script failed has its exception in place of times."""
    now_us = clock.now_us()
    calls = [(_keys(r.limit), [now_us, *_terms(r.limit), *r.wants]) for r in reservations]
    answers = _reserve.run_many(client, calls)
    return [
        answer if isinstance(answer, Exception) else [_time(text) for text in answer]
        for answer in answers
    ]


def give_back(client: Redis, slots_us: Mapping[Limit, Sequence[int]]) -> int:
    """Return slots that were not used, to come or just past; gives how many others can make use of."""
    calls = [(_keys(limit)[:2], list(slots)) for limit, slots in slots_us.items()]
    return sum(n for n in _give_back.run_many(client, calls) if isinstance(n, int))


def throttle(client: Redis, carrier_id: int, retry_after_ms: int | None) -> float:
    """Lower an account's rate because its provider refused a call; gives the factor now in force."""
    wait_us = min(retry_after_ms or 0, LONGEST_RETRY_AFTER_MS) * 1000
    arguments = [clock.now_us(), wait_us]
    return float(_throttle.run(client, [AccountKeys(carrier_id).throttle], arguments))


def calls_left(client: Redis, account: Account, horizon_ms: int) -> dict[str, int]:
    """Slots per group between now and ``horizon_ms`` from now."""
    return calls_left_many(client, [account], horizon_ms)[account.carrier_id]


def calls_left_many(
    client: Redis, accounts: Sequence[Account], horizon_ms: int
) -> dict[int, dict[str, int]]:
    """The same for many accounts in one round trip, by carrier id; 0 for a group whose record cannot be read."""
    limits = [(account.carrier_id, group) for account in accounts for group in account.groups]
    now_us = clock.now_us()
    calls = [(_keys(limit), [now_us, *_terms(limit), horizon_ms * 1000]) for limit in limits]
    left: dict[int, dict[str, int]] = {account.carrier_id: {} for account in accounts}
    for (carrier_id, group), slots in zip(limits, _calls_left.run_many(client, calls), strict=True):
        if isinstance(slots, Exception):
            logger.error("slots not counted: %s", slots, extra={"carrier_id": carrier_id})
        left[carrier_id][group.name] = 0 if isinstance(slots, Exception) else slots
    return left


def _keys(limit: Limit) -> list[str]:
    carrier_id, group = limit
    keys = AccountKeys(carrier_id)
    return [keys.limit(group.name), keys.free_slots(group.name), keys.throttle]


def _terms(limit: Limit) -> list[str | int]:
    """Rate and burst: no window of burst / rate seconds, a little over one second, holds more than burst grants."""
    most = limit[1].max_per_second
    return [f"{RATE_SHARE * most:.9f}", math.ceil(most)]


def _time(text: Any) -> int | None:
    return int(text) if text else None
