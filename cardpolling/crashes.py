"""Cards whose executor died while their steps ran: the poison answer that kills a process must not come back for ever.

A claim that expires in a queue is nobody's fault; one that expires while its steps run is a *crash*. Which is which is told by
the ``running`` hash, written when the steps of a card begin and cleared at its finish. A card with a crash behind it is a
*suspect*: a process runs its suspects one at a time, so that the innocent ones, which merely stood beside the poison, clear
themselves with their next good finish. After ``CRASHES_TO_BACK_OFF`` within ``CRASH_WINDOW_MS`` a card is backed off.
"""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from redis import Redis

from cardpolling.keys import AccountKeys

CRASHES_TO_BACK_OFF = 3
CRASH_WINDOW_MS = 3_600_000


def count(text: str | None, now_ms: int) -> int:
    """Crashes of a card within the window, from its field in the ``crashes`` hash (``<count>|<first ms>``)."""
    number, _, first_ms = (text or "").partition("|")
    if not (number.isdigit() and first_ms.isdigit()) or now_ms - int(first_ms) > CRASH_WINDOW_MS:
        return 0
    return int(number)


def mark_running(client: Redis, tokens: Mapping[int, Mapping[str, str]]) -> None:
    """Note, per carrier id and card id, the token of the claim whose steps begin now."""
    if not tokens:
        return
    pipe = client.pipeline(transaction=False)
    for carrier_id, by_card in tokens.items():
        mapping: dict[Any, Any] = dict(by_card)
        pipe.hset(AccountKeys(carrier_id).running, mapping=mapping)
    pipe.execute()


def clear(
    client: Redis, finished: Mapping[int, Sequence[str]], forgiven: Mapping[int, Sequence[str]]
) -> None:
    """Take finished cards, per carrier id, out of ``running``, and forget the crashes of those that ended well."""
    pipe = client.pipeline(transaction=False)
    for carrier_id, card_ids in finished.items():
        pipe.hdel(AccountKeys(carrier_id).running, *card_ids)
    for carrier_id, card_ids in forgiven.items():
        pipe.hdel(AccountKeys(carrier_id).crashes, *card_ids)
    if len(pipe):
        pipe.execute()


def note_expired(client: Redis, carrier_id: int, tokens: Sequence[str], now_ms: int) -> int:
    """Of claims that expired, count those that were running as crashes of their cards; returns how many.

    The card id is what follows the last colon of a token's prefix (claim.lua).
    """
    if not tokens:
        return 0
    keys = AccountKeys(carrier_id)
    card_ids = [token.partition(":")[2] for token in tokens]
    running = cast("list[str | None]", client.hmget(keys.running, card_ids))
    crashed = [i for i, token, mark in zip(card_ids, tokens, running, strict=True) if mark == token]
    if not crashed:
        return 0
    known = cast("list[str | None]", client.hmget(keys.crashes, crashed))
    fields: dict[Any, Any] = {}
    for card_id, text in zip(crashed, known, strict=True):
        number = count(text, now_ms)
        first_ms = text.partition("|")[2] if number and text else str(now_ms)
        fields[card_id] = f"{number + 1}|{first_ms}"
    pipe = client.pipeline(transaction=True)
    pipe.hset(keys.crashes, mapping=fields)
    pipe.hdel(keys.running, *crashed)
    pipe.pexpire(keys.crashes, 2 * CRASH_WINDOW_MS)
    pipe.execute()
    return len(crashed)
