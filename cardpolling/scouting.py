"""Looks behind the cards of an exhausted rate-limit group for cards that can be checked all the same.

``claim.lua`` looks at 2,000 queue members a call. When an account has one group ten times oversubscribed, tens of thousands of
its cards can stand ahead of a card that needs another group. Looking at all of them in one script would hold Redis for a tenth
of a second; a few short calls per tick, going on where the last tick stopped, find them just as well.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path

from redis import Redis

from cardpolling.checktypes import CheckType
from cardpolling.keys import AccountKeys
from cardpolling.luascript import LuaScript

_scout = LuaScript(Path(__file__).parent / "lua" / "scout.lua")

PAGE = 2_000
PAGES_PER_TICK = 10
CANDIDATES_KEPT_MS = 5_000


class Scout:
    """Pages through the normal queue of one account, from tick to tick; used by one thread."""

    def __init__(self, account: AccountKeys) -> None:
        self._account = account
        self._offset = PAGE

    def look(
        self, client: Redis, *, now_ms: int, exhausted: Sequence[CheckType], wanted: int
    ) -> str | None:
        """Look at up to ``PAGES_PER_TICK`` pages for cards for which none of the exhausted types is due.

        Gives the key of a ZSET with up to ``wanted`` or a page more of them, to be claimed from in place of the normal queue, or
        None where there are none. The candidates keep their places in the queue; the ZSET ends by itself.
        """
        found: dict[str, float] = {}
        for _ in range(PAGES_PER_TICK):
            page = self._page(client, now_ms, exhausted)
            found.update(page)
            if len(found) >= wanted or self._offset == PAGE:
                break
        if not found:
            return None
        pipe = client.pipeline(transaction=True)
        pipe.delete(self._account.candidates)
        pipe.zadd(self._account.candidates, found)
        pipe.pexpire(self._account.candidates, CANDIDATES_KEPT_MS)
        pipe.execute()
        return self._account.candidates

    def _page(
        self, client: Redis, now_ms: int, exhausted: Sequence[CheckType]
    ) -> Mapping[str, float]:
        answer = scout(
            client,
            self._account,
            now_ms=now_ms,
            offset=self._offset,
            count=PAGE,
            types=exhausted,
        )
        looked, found = answer
        # Claiming moves cards out of the due part, so the next page may pass over some: the round after this one meets them.
        self._offset = self._offset + PAGE if looked == PAGE else PAGE
        return found


def scout(
    client: Redis,
    account: AccountKeys,
    *,
    now_ms: int,
    offset: int,
    count: int,
    types: Sequence[CheckType],
) -> tuple[int, dict[str, float]]:
    """How many due members of the normal queue were looked at, and the fitting ones with their scores (``lua/scout.lua``)."""
    arguments: list[str | int] = [now_ms, offset, count, account.card_prefix, *types]
    looked, *found = _scout.run(client, [account.queue], arguments)
    return int(looked), {
        card_id: float(score) for card_id, score in zip(found[::2], found[1::2], strict=True)
    }
