"""The admin of what happened to cards: rows that the product writes and nobody edits."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from cardpolling.checktypes import CheckType
from carriers import bytesizes
from carriers.admin import facts
from carriers.admin.lists import M, ReadOnlyAdmin
from carriers.admin.searching import ids_with_numbers
from carriers.choices import CardStatus, EventKind, Operation, PackageState
from carriers.models import Card, CardEvent, DailyUsage


class CardFilter(admin.SimpleListFilter):
    """Rows of one card; shown where the list was opened from a card."""

    title = _("card")
    parameter_name = "card"

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> list[tuple[str, str]]:
        """Name the card that is chosen; there is no list of a million cards to choose from."""
        chosen = self.used_parameters.get(self.parameter_name, "")
        if not chosen:
            return []
        card = Card.objects.filter(pk=chosen).first() if _is_id(chosen) else None
        return [(chosen, str(card) if card else gettext("no such card"))]

    def queryset(
        self, _request: HttpRequest, queryset: QuerySet[Any, Any]
    ) -> QuerySet[Any, Any] | None:
        """Keep the card's rows."""
        chosen = self.value()
        if not chosen:
            return None
        return queryset.filter(card_id=chosen) if _is_id(chosen) else queryset.none()


def _is_id(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < len(str(2**63))


def link_to_card(card: Card) -> SafeString:
    """Lead to a card's page."""
    url = reverse("admin:carriers_card_change", args=(card.pk,))
    return format_html('<a href="{}">{}</a>', url, card.iccid)


class OfCardsAdmin(ReadOnlyAdmin[M]):
    """Rows that belong to cards, searched by the numbers of the card."""

    search_fields = ("card__iccid",)
    search_help_text = _(
        "ICCID, MSISDN or IMSI of a card, whole or first digits; commas separate several"
    )
    list_select_related = ("card",)
    sortable_by = ()

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[M, M], search_term: str
    ) -> tuple[QuerySet[M, M], bool]:
        """Find rows by the numbers of their card."""
        if not search_term.strip():
            return queryset, False
        return queryset.filter(card__in=ids_with_numbers(request, search_term)), False

    @admin.display(description=_("card"))
    def card_link(self, row: Any) -> SafeString:
        """Lead to the card."""
        return link_to_card(row.card)


@admin.register(CardEvent)
class CardEventAdmin(OfCardsAdmin[CardEvent]):
    """Changes of facts, the newest first."""

    list_display = ("seen_at", "card_link", "kind", "old_word", "new_word", "found_by")
    list_filter = ("kind", CardFilter)

    @admin.display(description=_("when"))
    def seen_at(self, event: CardEvent) -> str:
        """Show when the change was seen."""
        return facts.moment(event.at)

    @admin.display(description=_("old"))
    def old_word(self, event: CardEvent) -> str:
        """Show what it was."""
        return word(event.kind, event.old)

    @admin.display(description=_("new"))
    def new_word(self, event: CardEvent) -> str:
        """Show what it became."""
        return word(event.kind, event.new)

    @admin.display(description=_("by what"))
    def found_by(self, event: CardEvent) -> str:
        """Show which check found it."""
        return source(event.source)


@admin.register(DailyUsage)
class DailyUsageAdmin(OfCardsAdmin[DailyUsage]):
    """Usage per card and day, the newest first."""

    list_display = ("on_day", "card_link", "used")
    list_filter = (CardFilter,)

    @admin.display(description=_("day"))
    def on_day(self, usage: DailyUsage) -> str:
        """Show the day."""
        return str(usage.day)

    @admin.display(description=_("used"))
    def used(self, usage: DailyUsage) -> str:
        """Show bytes with a unit."""
        return bytesizes.display(usage.used_bytes)


def word(kind: str, stored: str) -> str:
    """A value of a history entry as people read it; a word that is none of ours stays as the gateway sent it."""
    if not stored:
        return facts.NOTHING
    if kind == EventKind.STATUS:
        return str(dict(CardStatus.choices).get(stored, stored))
    if kind == EventKind.PACKAGE_STATE:
        return str(dict(PackageState.choices).get(stored, stored))
    if kind == EventKind.REALNAME:
        return str(_VERIFICATION.get(stored, stored))
    if kind == EventKind.USAGE_DECREASE and _is_id(stored):
        return bytesizes.display(int(stored))
    return stored


_VERIFICATION = {"verified": _("Verified"), "unverified": _("Not verified")}
_SOURCES = {**dict(Operation.choices), str(CheckType.PACKAGE): _("Package")}


def source(stored: str) -> str:
    """Who found a change, as people read it: as a rule a check."""
    return str(_SOURCES.get(stored, stored)) or facts.NOTHING
