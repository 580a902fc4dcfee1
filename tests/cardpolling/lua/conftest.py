"""An account's polling state, put together and read key by key."""

from collections.abc import Iterable, Mapping

import pytest
from redis import Redis

from cardpolling import state
from cardpolling.checktypes import CheckType
from cardpolling.keys import AccountKeys
from cardpolling.state import Claim, ClaimBatch
from tests.cardpolling import keyspace
from tests.cardpolling.reference import Space

NOW_MS = 1_764_547_200_000
LEASE_MS = 60_000
TOKEN = "token"


class PollingState:
    """The state of account 7 at ``now_ms``."""

    now_ms = NOW_MS
    lease_ms = LEASE_MS
    keys = AccountKeys(7)

    def __init__(self, client: Redis) -> None:
        self.client = client

    def put(
        self,
        card_id: str = "1",
        *,
        score: float = NOW_MS,
        in_priority: bool = False,
        fields: Mapping[str, str | int] | None = None,
    ) -> None:
        """A card in a queue, with a due hash where fields are given."""
        queue = self.keys.priority if in_priority else self.keys.queue
        self.client.zadd(queue, {card_id: score})
        if fields:
            self.client.hset(self.keys.due(card_id), mapping=fields)

    def put_due(
        self, card_ids: Iterable[str], *types: CheckType, in_priority: bool = False
    ) -> None:
        """Cards for which the types are due, the first one for longest."""
        for position, card_id in enumerate(card_ids):
            fields = {f"due:{check_type}": NOW_MS for check_type in types}
            self.put(
                card_id, score=NOW_MS - 1000 + position, in_priority=in_priority, fields=fields
            )

    def hold(self, card_id: str = "1", *, token: str = TOKEN, executor: str | None = "me") -> Claim:
        """A claim, in flight, with the exec right of an executor."""
        self.client.set(self.keys.claim(card_id), token, px=LEASE_MS)
        self.client.zadd(self.keys.inflight, {token: NOW_MS + LEASE_MS})
        if executor:
            self.client.set(self.keys.exec_right(card_id), executor, px=LEASE_MS)
        return Claim(7, card_id, token)

    def claim(self, **arguments) -> ClaimBatch:
        """Claim, with room for all where nothing else is said."""
        usual = {
            "now_ms": NOW_MS,
            "lease_ms": LEASE_MS,
            "limit": 100,
            "priority_ratio": 0,
            "token_prefix": "call",
            "budgets": {},
            "groups": {},
        }
        return state.claim(self.client, self.keys, **{**usual, **arguments})

    def taken(self, **arguments) -> list[str]:
        """Ids of the cards that a claim takes, in its order."""
        return [claim.card_id for claim in self.claim(**arguments).claims]

    def fields(self, card_id: str = "1") -> dict[str, str]:
        """The due hash."""
        return self.client.hgetall(self.keys.due(card_id))

    def scores(self, card_id: str = "1") -> tuple[float | None, float | None]:
        """Where a card stands: in the priority queue, in the normal queue."""
        return state.queue_scores(self.client, 7, [card_id])[0]

    def in_flight(self) -> dict[str, float]:
        """Tokens and their expiries."""
        return dict(self.client.zrange(self.keys.inflight, 0, -1, withscores=True))

    def everything(self) -> Space:
        """All keys, without what is left of their expiries."""
        space = keyspace.dump(self.client)
        space.ttls_ms = dict.fromkeys(space.ttls_ms, 0)
        return space


@pytest.fixture
def account(client):
    """An account without cards."""
    return PollingState(client)
