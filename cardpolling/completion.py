"""Ends executions: the business results of a whole batch to Redis in one pipeline, each with its ``finish.lua``."""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from redis import Redis

from cardpolling import clock, crashes, state
from cardpolling.state import Claim, FieldChanges


@dataclass(frozen=True, slots=True)
class Completion:
    """One execution that has ended.

    ``is_removed`` says that the card is no longer polled at this account: it leaves the queues with this finish.
    ``is_forgiven`` says that earlier crashes of the card are forgotten, because it ended well.
    """

    claim: Claim
    executor_id: str
    changes: FieldChanges
    is_removed: bool = False
    is_forgiven: bool = False


def complete(client: Redis, completions: Sequence[Completion]) -> list[bool | Exception]:
    """Write each result and end its claim; False means the result came late. Raises ``RedisError`` when Redis is away."""
    removed: dict[int, list[str]] = defaultdict(list)
    finished: dict[int, list[str]] = defaultdict(list)
    forgiven: dict[int, list[str]] = defaultdict(list)
    for done in completions:
        finished[done.claim.carrier_id].append(done.claim.card_id)
        if done.is_removed:
            removed[done.claim.carrier_id].append(done.claim.card_id)
        if done.is_forgiven:
            forgiven[done.claim.carrier_id].append(done.claim.card_id)
    for carrier_id, card_ids in removed.items():
        state.remove_many(client, carrier_id, card_ids)
    answers = state.finish_many(
        client,
        [(done.claim, done.executor_id, done.changes) for done in completions],
        now_ms=clock.now_ms(),
    )
    crashes.clear(client, finished, forgiven)
    return answers
