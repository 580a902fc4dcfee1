"""Arguments that several commands take: cards, check types, delays."""

from argparse import ArgumentTypeError
from collections.abc import Sequence

from django.core.management.base import CommandError
from django.utils.translation import gettext as _

from cardpolling.checktypes import CheckType
from cardpolling.management.outages import UNUSABLE
from carriers import iccid as iccids
from carriers.models import Card

PAGE = 500
_NAMED_IN_ERRORS = 20


def cards_by_iccid(texts: Sequence[str]) -> list[Card]:
    """The cards that are named, each once, in order; a number is found with and without its check digit.

    Raises ``CommandError`` with a list of those that are unknown.
    """
    numbers = list(dict.fromkeys(iccids.normalised(text) for text in texts))
    known: dict[str, Card] = {}
    for start in range(0, len(numbers), PAGE):
        known |= _known(numbers[start : start + PAGE])
    unknown = [number for number in numbers if number not in known]
    if unknown:
        shown = ", ".join(unknown[:_NAMED_IN_ERRORS])
        rest = len(unknown) - _NAMED_IN_ERRORS
        if rest > 0:
            shown = _("%(shown)s and %(rest)d more") % {"shown": shown, "rest": rest}
        raise CommandError(_("Unknown ICCID: %s") % shown, returncode=UNUSABLE)
    return list({card.pk: card for card in known.values()}.values())


def _known(numbers: Sequence[str]) -> dict[str, Card]:
    spellings = {n: [n, *iccids.twins(n)] if iccids.is_valid(n) else [n] for n in numbers}
    wanted = [spelling for all_of_one in spellings.values() for spelling in all_of_one]
    found = {card.iccid: card for card in Card.objects.filter(iccid__in=wanted)}
    matches = {n: next((found[s] for s in spellings[n] if s in found), None) for n in numbers}
    return {number: card for number, card in matches.items() if card is not None}


def check_types(text: str) -> tuple[CheckType, ...]:
    """Read ``T,T``; for argparse."""
    names = [name.strip() for name in text.split(",") if name.strip()]
    known = [t.value for t in CheckType]
    wrong = [name for name in names if name not in known]
    if wrong or not names:
        message = _("unknown check type: %(names)s (there are: %(known)s)")
        raise ArgumentTypeError(
            message % {"names": ", ".join(wrong) or "''", "known": ", ".join(known)}
        )
    return tuple(CheckType(name) for name in dict.fromkeys(names))


def delays_s(text: str) -> tuple[int, ...]:
    """Read ``30,60,300``; for argparse."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() for part in parts):
        raise ArgumentTypeError(
            _("delays are whole numbers of seconds, for example 30,60,300, not %r") % text
        )
    return tuple(int(part) for part in parts)
