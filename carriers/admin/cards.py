"""The admin of cards."""

from collections.abc import Iterable, Mapping
from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext
from django.utils.translation import gettext_lazy as _

from cardpolling.checktypes import CheckType
from carriers import bytesizes
from carriers.admin import deletion, facts, history
from carriers.admin.cardactions import CardActions
from carriers.admin.cardfilters import UsageFilter
from carriers.admin.lists import LongListAdmin
from carriers.admin.searching import cards_with_numbers
from carriers.choices import CardStatus
from carriers.forms import CardForm
from carriers.models import Card, CardEvent, DailyUsage

RECENT_EVENTS = 10
RECENT_DAYS = 14


@admin.register(Card)
class CardAdmin(CardActions, LongListAdmin[Card]):
    """Cards, with what was last seen of them and how long ago."""

    form = CardForm
    list_display = (
        "numbers",
        "account",
        "polling",
        "status_seen",
        "realname_seen",
        "usage_seen",
        "package_seen",
    )
    list_filter = (
        "carrier",
        "is_polled",
        "status",
        "realname_verified",
        "package_state",
        UsageFilter,
        "package",
    )
    list_select_related = ("carrier", "package")
    sortable_by = ("numbers",)
    search_fields = ("iccid", "msisdn", "imsi")
    search_help_text = _("ICCID, MSISDN or IMSI, whole or first digits; commas separate several")
    readonly_fields = (
        "polled_by",
        "status_fact",
        "realname_fact",
        "usage_fact",
        "package_fact",
        "added_at",
    )

    def get_fieldsets(self, _request: HttpRequest, obj: Card | None = None) -> Any:
        """Show facts of cards that exist."""
        numbers = (None, {"fields": ("iccid", "msisdn", "imsi")})
        if obj is None:
            return (numbers, (_("Polling"), {"fields": ("carrier", "package", "is_polled")}))
        return (
            numbers,
            (_("Polling"), {"fields": ("carrier", "package", "is_polled", "polled_by")}),
            (
                _("Last seen"),
                {
                    "fields": (
                        "status_fact",
                        "realname_fact",
                        "usage_fact",
                        "package_fact",
                        "added_at",
                    )
                },
            ),
        )

    def get_search_results(
        self, request: HttpRequest, queryset: Any, search_term: str
    ) -> tuple[QuerySet[Card, Card], bool]:
        """Find cards by the index of each number."""
        if not search_term.strip():
            return queryset, False
        return cards_with_numbers(request, queryset, search_term), False

    @admin.display(description=_("ICCID, MSISDN"), ordering="iccid")
    def numbers(self, card: Card) -> SafeString:
        """Show both numbers, one under the other."""
        return format_html('{}<br><span class="second">{}</span>', card.iccid, card.msisdn)

    @admin.display(description=_("polling"), boolean=True)
    def polling(self, card: Card) -> bool:
        """Show whether the card is polled, its account being enabled."""
        return card.is_polled and card.carrier.is_enabled

    @admin.display(description=_("account"))
    def account(self, card: Card) -> str:
        """Show the name alone: the code would take the width of two facts."""
        return card.carrier.name

    @admin.display(description=_("status"))
    def status_seen(self, card: Card) -> SafeString:
        """Show status, connection and age."""
        return _cell(facts.status(card), card, CheckType.CARD_STATUS)

    @admin.display(description=_("real name"))
    def realname_seen(self, card: Card) -> SafeString:
        """Show verification and age."""
        return _cell(facts.realname(card), card, CheckType.REALNAME)

    @admin.display(description=_("used in the cycle"))
    def usage_seen(self, card: Card) -> SafeString:
        """Show usage and age."""
        return _cell(facts.usage(card), card, CheckType.CARDDATA)

    @admin.display(description=_("package"))
    def package_seen(self, card: Card) -> SafeString:
        """Show the package's state and age."""
        return _cell(facts.package_state(card), card, CheckType.PACKAGE)

    @admin.display(description=_("polled by"))
    def polled_by(self, card: Card) -> SafeString | str:
        """Lead to the configuration in force, or say why there is none."""
        if not card.is_polled:
            return gettext("Not under polling.")
        if not card.carrier.is_enabled:
            return gettext("Not polled: the account is disabled.")
        rules = facts.rules_of(card)
        if rules is None:
            return gettext("Not polled: no configuration matches this card.")
        url = reverse("admin:cardpolling_pollingconfig_change", args=(rules.config_id,))
        return format_html('<a href="{}">{}</a>', url, rules.name)

    @admin.display(description=_("status"))
    def status_fact(self, card: Card) -> SafeString:
        """Show the status, and the word for it that the gateway uses."""
        text = facts.status(card)
        if card.status != CardStatus.UNKNOWN and card.raw_status.lower() not in ("", card.status):
            text = format_html("{} “{}”", text, card.raw_status)
        return _line(text, card, CheckType.CARD_STATUS)

    @admin.display(description=_("real-name verification"))
    def realname_fact(self, card: Card) -> SafeString:
        """Show verification and age."""
        return _line(facts.realname(card), card, CheckType.REALNAME)

    @admin.display(description=_("used in the cycle"))
    def usage_fact(self, card: Card) -> SafeString:
        """Show usage, cycle and age."""
        text = facts.usage(card)
        if card.cycle_start is not None:
            since = gettext("since %(day)s") % {"day": card.cycle_start}
            text = format_html("{} ({})", text, since)
        return _line(text, card, CheckType.CARDDATA)

    @admin.display(description=_("package state"))
    def package_fact(self, card: Card) -> SafeString:
        """Show the package's state and age."""
        return _line(facts.package_state(card), card, CheckType.PACKAGE)

    @admin.display(description=_("added at"))
    def added_at(self, card: Card) -> str:
        """Show when the card was added."""
        return facts.moment(card.created_at)

    def render_change_form(
        self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any
    ) -> HttpResponse:
        """Add what happened to the card lately, and the actions that the user may take."""
        card = kwargs.get("obj")
        if card is not None:
            context |= _recent(card)
            context["may_request_check"] = self.has_request_check_permission(request)
            context["may_remove"] = self.has_remove_from_polling_permission(request)
        return super().render_change_form(request, context, *args, **kwargs)

    def get_deleted_objects(
        self, objs: QuerySet[Card, Card] | Iterable[Card], request: HttpRequest
    ) -> Any:
        """Count the history that goes along, instead of listing it."""
        ids = [card.pk for card in objs]
        related = (CardEvent.objects.filter(card__in=ids), DailyUsage.objects.filter(card__in=ids))
        return deletion.summary(request, objs, related, asked=(Card,))


_CHECKED_AT: Mapping[CheckType, str] = {
    CheckType.CARD_STATUS: "status_checked_at",
    CheckType.REALNAME: "realname_checked_at",
    CheckType.CARDDATA: "usage_checked_at",
    CheckType.PACKAGE: "package_checked_at",
}


def _cell(value: SafeString, card: Card, check_type: CheckType) -> SafeString:
    """A fact above its age; of a fact that was never seen, that alone."""
    checked_at = getattr(card, _CHECKED_AT[check_type])
    when = facts.seen(checked_at, facts.intervals_of(card).get(check_type))
    return when if checked_at is None else format_html("{}<br>{}", value, when)


def _line(value: SafeString, card: Card, check_type: CheckType) -> SafeString:
    """A fact beside its age, and how often it is looked at."""
    checked_at = getattr(card, _CHECKED_AT[check_type])
    interval_s = facts.intervals_of(card).get(check_type)
    when = facts.seen(checked_at, interval_s)
    return when if checked_at is None else format_html("{} {}", value, when)


def _recent(card: Card) -> dict[str, Any]:
    events = CardEvent.objects.filter(card=card).order_by("-at", "-pk")[:RECENT_EVENTS]
    days = DailyUsage.objects.filter(card=card).order_by("-day")[:RECENT_DAYS]
    return {
        "recent_events": [
            {
                "at": facts.moment(event.at),
                "kind": event.get_kind_display(),
                "old": history.word(event.kind, event.old),
                "new": history.word(event.kind, event.new),
                "source": history.source(event.source),
            }
            for event in events
        ],
        "recent_days": [(day.day, bytesizes.display(day.used_bytes)) for day in days],
    }
