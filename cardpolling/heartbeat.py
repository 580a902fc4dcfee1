"""Signs of life of the worker processes, and what each carries.

One HASH holds them all, so that a dispatcher learns with one round trip who is alive, how many cards can be taken and how many
calls are already owed. A process is known by a UUID, never by host and name: a restarted container has both again.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import cast

from redis import Redis

from cardpolling import keys
from cardpolling.ledger import AccountLoad

BEAT_INTERVAL_MS = 250
ALIVE_FOR_MS = 2_000
FORGOTTEN_AFTER_MS = 60_000


@dataclass(frozen=True, slots=True)
class WorkerBeat:
    """One heartbeat: who, where, how busy; times in epoch ms of Redis's clock. ``refusal`` says why nothing is claimed."""

    process_id: str
    host: str
    pid: int
    version: str
    started_ms: int
    beat_ms: int
    places: int
    busy: int
    loads: Mapping[int, AccountLoad] = field(default_factory=dict)
    refusal: str = ""

    @property
    def held(self) -> dict[int, int]:
        """Places held per account."""
        return {carrier_id: load.held for carrier_id, load in self.loads.items()}


def publish(client: Redis, beat: WorkerBeat) -> None:
    """Write the heartbeat of this process."""
    loads = {str(c): [load.held, dict(load.owed)] for c, load in beat.loads.items()}
    fields = {
        "host": beat.host,
        "pid": beat.pid,
        "version": beat.version,
        "started_ms": beat.started_ms,
        "beat_ms": beat.beat_ms,
        "places": beat.places,
        "busy": beat.busy,
        "loads": loads,
        "refusal": beat.refusal,
    }
    client.hset(keys.WORKERS, beat.process_id, json.dumps(fields, separators=(",", ":")))


def withdraw(client: Redis, process_id: str) -> None:
    """Take this process off the list; it stops."""
    client.hdel(keys.WORKERS, process_id)


def workers(client: Redis, now_ms: int) -> list[WorkerBeat]:
    """The processes whose heartbeat is at most ``ALIVE_FOR_MS`` old; those long dead are struck off the list."""
    alive, forgotten = [], []
    beats = cast("dict[str, str]", client.hgetall(keys.WORKERS))
    for process_id, text in beats.items():
        beat = _read(process_id, text)
        if beat is None or now_ms - beat.beat_ms > FORGOTTEN_AFTER_MS:
            forgotten.append(process_id)
        elif now_ms - beat.beat_ms <= ALIVE_FOR_MS:
            alive.append(beat)
    if forgotten:
        client.hdel(keys.WORKERS, *forgotten)
    return sorted(alive, key=lambda beat: (beat.host, beat.pid, beat.process_id))


def _read(process_id: str, text: str) -> WorkerBeat | None:
    try:
        fields = json.loads(text)
        loads = {int(c): AccountLoad(held, owed) for c, (held, owed) in fields.pop("loads").items()}
        return WorkerBeat(process_id=process_id, loads=loads, **fields)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None
