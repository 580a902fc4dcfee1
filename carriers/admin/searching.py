"""Search by card numbers: through the index of each column, never by a pattern over all rows."""

import re

from django.contrib import messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _

from carriers import iccid as iccids
from carriers.models import Card
from carriers.querysets import CardQuerySet

MOST_NUMBERS = 100
MOST_CARDS = 1000
_BETWEEN_NUMBERS = re.compile(r"[,;，；、\n]")


def numbers_in(text: str) -> list[str]:
    """The numbers that are searched for, normalised, each once; commas and semicolons separate, spaces and dashes do not."""
    numbers = (iccids.normalised(part).lstrip("+") for part in _BETWEEN_NUMBERS.split(text))
    return list(dict.fromkeys(number for number in numbers if number))


def cards_with_numbers(
    request: HttpRequest, cards: CardQuerySet, text: str
) -> QuerySet[Card, Card]:
    """Those of the cards whose ICCID, MSISDN or IMSI begins with one of the numbers in a text."""
    numbers = numbers_in(text)
    if len(numbers) > MOST_NUMBERS:
        told = _("Only the first %(most)d of %(given)d numbers were searched for.")
        messages.warning(request, told % {"most": MOST_NUMBERS, "given": len(numbers)})
    found: QuerySet[Card, Card] = cards.none()
    for number in numbers[:MOST_NUMBERS]:
        found |= cards.with_number_prefix(number)
    return found


def ids_with_numbers(request: HttpRequest, text: str) -> list[int]:
    """Ids of the cards that a text means; none, with a word to the operator, where there are too many to look up their rows."""
    found = cards_with_numbers(request, Card.objects.all(), text).order_by()
    ids = list(found.values_list("pk", flat=True)[: MOST_CARDS + 1])
    if len(ids) <= MOST_CARDS:
        return ids
    told = _("More than %(most)d cards have numbers that begin so: type more digits.")
    messages.warning(request, told % {"most": MOST_CARDS})
    return []
