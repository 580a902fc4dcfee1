"""Which process dispatches which accounts.

Each account has one holder, which keeps its lock from tick to tick: the lock may outlive a tick without a tick being lost.
Live processes share the accounts evenly by rendezvous hashing: only an account's preferred process asks for its lock, and one
that is preferred no more gives it up. The hashing only spreads the work; the lock alone decides.
"""

import hashlib
from collections.abc import Collection, Sequence
from pathlib import Path

from redis import Redis

from cardpolling import clock
from cardpolling.keys import AccountKeys
from cardpolling.luascript import LuaScript

LUA = Path(__file__).parent / "lua"
_hold = LuaScript(LUA / "hold_dispatch.lua")
_drop = LuaScript(LUA / "drop_dispatch.lua")

SAFETY_S = 0.05


def preferred(carrier_id: int, process_ids: Collection[str]) -> str | None:
    """The process that should dispatch an account, the same for whoever asks."""
    return max(process_ids, key=lambda process_id: _weight(carrier_id, process_id), default=None)


def _weight(carrier_id: int, process_id: str) -> bytes:
    return hashlib.blake2b(f"{carrier_id}/{process_id}".encode(), digest_size=8).digest()


class DispatchLocks:
    """The dispatch locks that this process holds; used by one thread."""

    def __init__(self, client: Redis, holder: str, ttl_ms: int) -> None:
        self._client = client
        self._holder = holder
        self._ttl_ms = ttl_ms
        self._valid_until_s: dict[int, float] = {}

    def hold(self, carrier_ids: Sequence[int], process_ids: Collection[str]) -> list[int]:
        """Take or keep the locks that are this process's to have; give the accounts it now dispatches."""
        mine: list[int] = []
        foreign: list[int] = []
        for carrier_id in carrier_ids:
            owner = preferred(carrier_id, process_ids)
            (mine if owner in (None, self._holder) else foreign).append(carrier_id)
        self._give_up([c for c in foreign if c in self._valid_until_s])
        asked_at_s = clock.monotonic()
        answers = _hold.run_many(
            self._client,
            [([AccountKeys(c).dispatch], [self._holder, self._ttl_ms]) for c in mine],
        )
        self._valid_until_s = {
            carrier_id: asked_at_s + self._ttl_ms / 1000 - SAFETY_S
            for carrier_id, answer in zip(mine, answers, strict=True)
            if answer == 1
        }
        return list(self._valid_until_s)

    def is_held(self, carrier_id: int) -> bool:
        """Whether the lock is still this process's, by its own clock: asked right before each claim.

        A process that was stopped in between finds its lock outlived and claims nothing.
        """
        return clock.monotonic() < self._valid_until_s.get(carrier_id, 0.0)

    def give_up_all(self) -> None:
        """Release every lock, so that another process goes on at once."""
        self._give_up(list(self._valid_until_s))

    def _give_up(self, carrier_ids: Sequence[int]) -> None:
        if carrier_ids:
            _drop.run_many(
                self._client, [([AccountKeys(c).dispatch], [self._holder]) for c in carrier_ids]
            )
        for carrier_id in carrier_ids:
            self._valid_until_s.pop(carrier_id, None)
