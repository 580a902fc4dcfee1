"""Puts cards under polling: from rows in SQL to ``enroll.lua``, in batches of flat memory."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeVar

from redis import Redis

from cardpolling import clock, configuration, planning, state
from cardpolling.checktypes import CheckType
from cardpolling.keys import AccountKeys
from cardpolling.paging import pages
from cardpolling.rules import Rules
from carriers.models import Card

_T = TypeVar("_T")
_CARD_ID = re.compile(r"[0-9]{1,18}", re.ASCII)

PAGE = 1000
"""Cards per SQL query."""

PIPELINE = 500
"""Scripts per pipeline: some 10 ms of Redis time, between which others get their turn."""


class PolledCard(NamedTuple):
    """What of a card in SQL decides how it is polled."""

    card_id: int
    carrier_id: int
    status: str
    realname_verified: bool | None


class Scores(NamedTuple):
    """A card's scores in the two queues, None where it does not stand there."""

    priority: float | None
    normal: float | None


_COLUMNS = ("pk", "carrier_id", "status", "realname_verified")


def cards_to_poll(card_ids: Collection[int]) -> list[PolledCard]:
    """Those of the cards for which polling is switched on, as SQL has them now."""
    rows = Card.objects.filter(pk__in=card_ids, is_polled=True).order_by("pk")
    return [PolledCard(*row) for row in rows.values_list(*_COLUMNS)]


def pages_to_poll(carrier_id: int) -> Iterator[list[PolledCard]]:
    """All cards of an account for which polling is switched on, page by page."""
    last_id = 0
    rows = Card.objects.filter(carrier_id=carrier_id, is_polled=True).order_by("pk")
    while True:
        page = [PolledCard(*r) for r in rows.filter(pk__gt=last_id).values_list(*_COLUMNS)[:PAGE]]
        if page:
            yield page
        if len(page) < PAGE:
            return
        last_id = page[-1].card_id


def rules_of(card: PolledCard) -> Rules | None:
    """The rules that hold for a card, None where its configuration polls nothing."""
    return configuration.current().match(card.carrier_id, card.status, card.realname_verified)


def members_to_poll(carrier_id: int, card_ids: Iterable[str]) -> dict[str, PolledCard]:
    """Those of an account's queue members, or card ids of keys, that are to be polled there, by id."""
    numbers = [int(card_id) for card_id in card_ids if _CARD_ID.fullmatch(card_id)]
    polled = under_rules(cards_to_poll(numbers))
    return {str(card.card_id): card for card in polled if card.carrier_id == carrier_id}


def under_rules(cards: Iterable[PolledCard]) -> list[PolledCard]:
    """Those of the cards of which a configuration polls anything."""
    match = configuration.current().match
    return [c for c in cards if match(c.carrier_id, c.status, c.realname_verified)]


def enroll(client: Redis, cards: Iterable[PolledCard], *, is_due_now: bool = False) -> int:
    """Put cards under polling and give how many were not there before; a card that stands in a queue stays as it is.

    First checks are spread over the interval; those of cards that are due now are not.
    """
    now_ms = clock.now_ms()
    by_account: dict[int, list[tuple[str, Mapping[CheckType, int]]]] = defaultdict(list)
    for card in cards:
        if rules := rules_of(card):
            dues = planning.first_dues(rules, card.card_id, now_ms)
            if is_due_now:
                dues = dict.fromkeys(dues, now_ms)
            by_account[card.carrier_id].append((str(card.card_id), dues))
    enrolled = 0
    for carrier_id, items in by_account.items():
        for page in pages(items, PIPELINE):
            enrolled += sum(answered(state.enroll_many(client, carrier_id, page)))
    return enrolled


def answered(answers: Sequence[_T | Exception]) -> list[_T]:
    """Answers of a pipeline of scripts; the first one that failed is raised."""
    values = []
    for answer in answers:
        if isinstance(answer, Exception):
            raise answer
        values.append(answer)
    return values


def enroll_missing(client: Redis, carrier_id: int) -> int:
    """Enrol the cards of an account that stand in neither queue; give how many there were."""
    return sum(
        enroll(client, missing(client, carrier_id, page)) for page in pages_to_poll(carrier_id)
    )


def missing(client: Redis, carrier_id: int, cards: Sequence[PolledCard]) -> list[PolledCard]:
    """Those of an account's cards that stand in neither queue."""
    stand = standing(client, AccountKeys(carrier_id), [str(card.card_id) for card in cards])
    return [card for card in cards if str(card.card_id) not in stand]


def standing(client: Redis, keys: AccountKeys, card_ids: Sequence[str]) -> dict[str, Scores]:
    """Where cards of an account stand, of those that stand in a queue at all; two commands for any number."""
    if not card_ids:
        return {}
    priority = client.zmscore(keys.priority, list(card_ids))
    normal = client.zmscore(keys.queue, list(card_ids))
    scores = zip(card_ids, map(Scores, priority, normal), strict=True)
    return {card_id: s for card_id, s in scores if s != Scores(None, None)}
