"""Puts right what the reconciler found, without getting in the way of a running execution.

Each function looks again before it acts, leaves every card with a live claim alone, and gives how many cards it changed.
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass

from redis import Redis, WatchError
from redis.client import Pipeline

from cardpolling import clock, enrolment, planning, state
from cardpolling.due import DueEntry, due_field
from cardpolling.enrolment import PolledCard
from cardpolling.keys import AccountKeys
from cardpolling.paging import pages


@dataclass(slots=True)
class Summary:
    """How many things of each kind were mended; on a dry run, would be."""

    enrolled: int = 0
    ghosts: int = 0
    in_both_queues: int = 0
    without_due: int = 0
    far_ahead: int = 0
    inflight: int = 0
    marks: int = 0
    without_expiry: int = 0
    orphans: int = 0
    dead_keys: int = 0

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.as_dict().values())

    def as_dict(self) -> dict[str, int]:
        """Kind -> number."""
        return asdict(self)

    def add(self, other: "Summary") -> None:
        """Add the numbers of another summary."""
        for kind, number in other.as_dict().items():
            setattr(self, kind, getattr(self, kind) + number)


def unclaimed(client: Redis, keys: AccountKeys, card_ids: Sequence[str]) -> list[str]:
    """Those of the cards that nobody is executing or about to execute."""
    if not card_ids:
        return []
    pipe = client.pipeline(transaction=False)
    for card_id in card_ids:
        pipe.exists(keys.claim(card_id))
    return [c for c, is_claimed in zip(card_ids, pipe.execute(), strict=True) if not is_claimed]


def remove_ghosts(client: Redis, keys: AccountKeys, card_ids: Sequence[str]) -> int:
    """Take cards that SQL does not want polled at this account out of its queues."""
    free = unclaimed(client, keys, card_ids)
    for part in pages(free, enrolment.PIPELINE):
        enrolment.answered(state.remove_many(client, keys.carrier_id, part))
    return len(free)


def enroll_anew(client: Redis, keys: AccountKeys, cards: Sequence[PolledCard]) -> int:
    """Enrol cards that stand in a queue without a due hash, as if they were new."""
    free = set(unclaimed(client, keys, [str(card.card_id) for card in cards]))
    again = [card for card in cards if str(card.card_id) in free]
    remove_ghosts(client, keys, [str(card.card_id) for card in again])
    return enrolment.enroll(client, again)


def leave_one_queue(client: Redis, keys: AccountKeys, cards: Sequence[PolledCard]) -> int:
    """Leave cards that stand in both queues in the priority queue alone, at the earlier of their two scores."""

    def mend(pipe: Pipeline, card_id: str) -> bool:
        priority, normal = pipe.zscore(keys.priority, card_id), pipe.zscore(keys.queue, card_id)
        if priority is None or normal is None:
            return False
        pipe.multi()
        pipe.zadd(keys.priority, {card_id: min(priority, normal)}, xx=True)
        pipe.zrem(keys.queue, card_id)
        return True

    return sum(_change_unclaimed(client, keys, str(card.card_id), mend) for card in cards)


def pull_back(
    client: Redis, keys: AccountKeys, cards: Sequence[PolledCard], *, horizon_ms: int
) -> int:
    """Give cards whose score lies beyond the horizon due times within their intervals."""
    by_id = {str(card.card_id): card for card in cards}

    def mend(pipe: Pipeline, card_id: str) -> bool:
        rules = enrolment.rules_of(by_id[card_id])
        if rules is None:
            return False
        fields = {str(name): str(text) for name, text in pipe.hgetall(keys.due(card_id)).items()}
        entry = DueEntry.decode(fields)
        dues = planning.first_dues(rules, card_id, clock.now_ms())
        for check_type, kept in entry.types.items():
            if check_type in dues and kept.due_ms is not None and kept.due_ms <= horizon_ms:
                dues[check_type] = kept.due_ms
        pipe.multi()
        pipe.hset(keys.due(card_id), mapping={due_field(t): due_ms for t, due_ms in dues.items()})
        for queue in (keys.priority, keys.queue):
            pipe.zadd(queue, {card_id: min(dues.values())}, xx=True)
        return True

    return sum(_change_unclaimed(client, keys, card_id, mend) for card_id in by_id)


def _change_unclaimed(
    client: Redis, keys: AccountKeys, card_id: str, mend: Callable[[Pipeline, str], bool]
) -> bool:
    """Change a card in a transaction that comes to nothing where the card is claimed or requested meanwhile."""
    with client.pipeline() as pipe:
        pipe.watch(keys.claim(card_id), keys.due(card_id))  # type: ignore[no-untyped-call]  # redis-py
        if pipe.exists(keys.claim(card_id)) or not mend(pipe, card_id):
            return False
        try:
            pipe.execute()
        except WatchError:
            return False
    return True


def drop_tokens(client: Redis, keys: AccountKeys, tokens: Sequence[str]) -> int:
    """Take tokens out of the in-flight set unless they are the present claim of their card."""
    pipe = client.pipeline(transaction=False)
    for token in tokens:
        pipe.get(keys.claim(card_of(token)))
    dead = [t for t, claim in zip(tokens, pipe.execute(), strict=True) if claim != t]
    return client.zrem(keys.inflight, *dead) if dead else 0


def card_of(token: str) -> str:
    """The card that a claim token is for: what follows its prefix."""
    return token.partition(":")[2]
