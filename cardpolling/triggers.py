"""Checks on request: "check this card now", from the admin, from commands and from the rest of the platform; and its opposite.

A request from an operator's hand comes in two kinds. With priority (the default) the card goes to the priority queue. A *manual*
request makes it due now in the queue where it stands, whatever the cooldown.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from django.db import transaction
from django.utils.translation import gettext as _
from redis import Redis

from cardpolling import clock, connection, enrolment, state
from cardpolling.checktypes import CheckType
from cardpolling.enrolment import PolledCard
from cardpolling.errors import InvalidRequest
from cardpolling.paging import pages
from carriers.choices import CardStatus, PackageState
from carriers.models import Card

BATCH = 500
LONGEST_DELAY_S = 86_400
MOST_DELAYS = 20

EXPECTABLE: Mapping[CheckType, frozenset[str]] = {
    CheckType.CARD_STATUS: frozenset(CardStatus.values),
    CheckType.REALNAME: frozenset({"verified", "unverified"}),
    CheckType.PACKAGE: frozenset(PackageState.values),
}
"""The results that a check can show, and a confirmation can therefore wait for."""


@dataclass(frozen=True, slots=True)
class RequestSummary:
    """What became of a request, in cards.

    ``requested``: at least one check was requested. ``in_cooldown``: all its checks succeeded just now. ``not_polled``: polling is
    switched off for the card, or its configuration polls none of the types; these are named by ICCID.
    """

    requested: int = 0
    in_cooldown: int = 0
    not_polled: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Request:
    """What is asked for, the same for all cards."""

    types: frozenset[CheckType] | None
    is_manual: bool
    confirmations_s: tuple[int, ...]
    expected: str

    def cooldown_ms(self, cooldown_s: int) -> int:
        """The cooldown spares the gateway a thoughtless click; who asks for confirmations, or asks manually, means it."""
        return 0 if self.is_manual or self.confirmations_s else cooldown_s * 1000


def request_check_cards(
    cards: Iterable[Card],
    types: Collection[CheckType] | None = None,
    *,
    manual: bool = False,
    confirmations_s: Sequence[int] = (),
    expected: str = "",
) -> RequestSummary:
    """Request checks of cards, by default of all types that are polled.

    A card that should be under polling and is not is enrolled first. Raises ``InvalidRequest`` before anything is requested, and
    ``RedisError`` where Redis does not answer.
    """
    chosen = _chosen_types(types, expected)
    check_confirmations(confirmations_s, expected, chosen)
    request = _Request(chosen, manual, tuple(confirmations_s), expected)
    client = connection.polling_redis()
    requested = in_cooldown = 0
    not_polled: list[str] = []
    for batch in pages(cards, BATCH):
        answers = _request_batch(client, request, batch, not_polled)
        requested += sum(answer > 0 for answer in answers)
        in_cooldown += sum(answer == 0 for answer in answers)
    return RequestSummary(requested, in_cooldown, tuple(not_polled))


def request_check(
    card: Card,
    types: Collection[CheckType] | None = None,
    *,
    manual: bool = False,
    confirmations_s: Sequence[int] = (),
    expected: str = "",
) -> RequestSummary:
    """Request checks of one card; see :func:`request_check_cards`."""
    return request_check_cards(
        [card], types, manual=manual, confirmations_s=confirmations_s, expected=expected
    )


def remove_cards(cards: Iterable[Card]) -> int:
    """Take cards out of polling and give how many were under polling.

    Polling is switched off for them in SQL, so that neither the reconciler nor an edit of the card brings them back; switched on
    again, they are enrolled anew. Raises ``RedisError`` where Redis does not answer; SQL holds then, and the reconciler follows.
    """
    removed = 0
    for batch in pages(cards, BATCH):
        rows = Card.objects.filter(pk__in=[card.pk for card in batch], is_polled=True)
        removed += rows.update(is_polled=False)
        transaction.on_commit(partial(_remove_batch, batch))
    return removed


def remove(card: Card) -> bool:
    """Take one card out of polling; see :func:`remove_cards`."""
    return remove_cards([card]) == 1


def check_confirmations(
    confirmations_s: Sequence[int], expected: str, types: Collection[CheckType] | None
) -> None:
    """Refuse delays that are none and an expected result that no requested check can show."""
    if len(confirmations_s) > MOST_DELAYS or any(
        not 1 <= delay_s <= LONGEST_DELAY_S for delay_s in confirmations_s
    ):
        raise InvalidRequest(
            _("Confirmation delays are at most %(most)d numbers of seconds from 1 to %(longest)d.")
            % {"most": MOST_DELAYS, "longest": LONGEST_DELAY_S}
        )
    if not expected:
        return
    if not confirmations_s:
        raise InvalidRequest(_("An expected result needs confirmation delays."))
    if any(expected not in EXPECTABLE.get(t, ()) for t in types or ()):
        raise InvalidRequest(
            _("“%(expected)s” is not a result of the checks: %(types)s.")
            % {"expected": expected, "types": ", ".join(sorted(types or ()))}
        )


def _chosen_types(
    types: Collection[CheckType] | None, expected: str
) -> frozenset[CheckType] | None:
    """The types asked for; where none are named, those that can show the expected result, None for all."""
    if types is not None:
        return frozenset(types)
    if not expected:
        return None
    able = frozenset(t for t, results in EXPECTABLE.items() if expected in results)
    if not able:
        raise InvalidRequest(
            _("No check can show the result “%(expected)s”.") % {"expected": expected}
        )
    return able


def _remove_batch(cards: Sequence[Card]) -> None:
    client = connection.polling_redis()
    by_account: dict[int, list[int]] = defaultdict(list)
    for card in cards:
        by_account[card.carrier_id].append(card.pk)
    for carrier_id, card_ids in by_account.items():
        enrolment.answered(state.remove_many(client, carrier_id, card_ids))


@dataclass(frozen=True, slots=True)
class _Wanted:
    """The checks of one card that are asked for and polled."""

    card: PolledCard
    types: Sequence[CheckType]
    cooldown_ms: int


def _request_batch(
    client: Redis, request: _Request, cards: Sequence[Card], not_polled: list[str]
) -> list[int]:
    """Request the checks of some cards and give the answers of the scripts, for those that are polled."""
    wanted = []
    for card in cards:
        if one := _wanted(card, request):
            wanted.append(one)
        else:
            not_polled.append(card.iccid)
    answers = _send(client, request, wanted)
    absent = [w.card for w, answer in answers if answer == state.NOT_POLLED]
    if absent:
        enrolment.enroll(client, absent)
        again = _send(client, request, [w for w, answer in answers if answer == state.NOT_POLLED])
        answers = [(w, a) for w, a in answers if a != state.NOT_POLLED] + again
    return [answer for _wanted_one, answer in answers]


def _wanted(card: Card, request: _Request) -> _Wanted | None:
    """What of the request concerns a card, None where none of it is polled."""
    polled = PolledCard(card.pk, card.carrier_id, card.status, card.realname_verified)
    rules = enrolment.rules_of(polled) if card.is_polled else None
    if rules is None:
        return None
    types = [t for t in rules.polled_types if request.types is None or t in request.types]
    return _Wanted(polled, types, request.cooldown_ms(rules.cooldown_s)) if types else None


def _send(client: Redis, request: _Request, wanted: Sequence[_Wanted]) -> list[tuple[_Wanted, int]]:
    """Send the requests, in one pipeline per cooldown."""
    by_cooldown: dict[int, list[_Wanted]] = defaultdict(list)
    for one in wanted:
        by_cooldown[one.cooldown_ms].append(one)
    answers: list[tuple[_Wanted, int]] = []
    for cooldown_ms, group in by_cooldown.items():
        replies = state.request_check_many(
            client,
            [(one.card.carrier_id, one.card.card_id, one.types) for one in group],
            now_ms=clock.now_ms(),
            cooldown_ms=cooldown_ms,
            confirmations=request.confirmations_s,
            expected=request.expected,
            to_priority=not request.is_manual,
        )
        answers += zip(group, enrolment.answered(replies), strict=True)
    return answers
