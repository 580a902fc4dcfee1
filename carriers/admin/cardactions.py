"""What operators do with many cards at once: request checks, take out of polling, delete.

"All that match" may be a million cards: each action goes through them page by page, keeps numbers and forgets the cards.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from django.contrib import admin, messages
from django.contrib.admin import helpers
from django.contrib.admin.models import CHANGE, DELETION, LogEntry
from django.db import transaction
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from redis import RedisError

from cardpolling import triggers
from cardpolling.errors import PollingError
from carriers.admin import deletion
from carriers.models import Card, Carrier

PAGE = 500
MOST_NAMED = 10
BACK_TO_CARD = "back_to_card"
CONFIRMED = "confirmed"


def pages_by_id(cards: QuerySet[Card, Card]) -> Iterator[list[Card]]:
    """All of the cards, page by page in the order of their ids, also while what is done with a page changes what matches."""
    rows = cards.select_related(None).order_by("pk")
    last_id = 0
    while page := list(rows.filter(pk__gt=last_id)[:PAGE]):
        last_id = page[-1].pk
        yield page


@dataclass(slots=True)
class Requested:
    """What became of a request for checks, in cards."""

    requested: int = 0
    in_cooldown: int = 0
    not_polled: int = 0
    of_disabled_accounts: int = 0


@dataclass(frozen=True, slots=True)
class Question:
    """What is asked before an action is carried out."""

    action: str
    title: str
    consequences: str
    button: str


class CardActions(admin.ModelAdmin[Card]):
    """The actions on cards."""

    actions = ("request_check", "remove_from_polling", "delete_selected")

    def has_request_check_permission(self, request: HttpRequest) -> bool:
        """Whether the user may have cards checked."""
        return bool(request.user.has_perm("carriers.request_check_card"))

    def has_remove_from_polling_permission(self, request: HttpRequest) -> bool:
        """Whether the user may take cards out of polling."""
        return bool(request.user.has_perm("carriers.remove_card_from_polling"))

    @admin.action(
        description=gettext_lazy("Request a check of the selected cards"),
        permissions=["request_check"],
    )
    def request_check(
        self, request: HttpRequest, queryset: QuerySet[Card, Card]
    ) -> HttpResponse | None:
        """Have the cards checked with priority, and tell what became of it."""
        done = Requested()
        disabled = set(Carrier.objects.filter(is_enabled=False).values_list("pk", flat=True))
        try:
            for page in pages_by_id(queryset):
                summary = triggers.request_check_cards(page)
                done.requested += summary.requested
                done.in_cooldown += summary.in_cooldown
                done.not_polled += len(summary.not_polled)
                done.of_disabled_accounts += sum(card.carrier_id in disabled for card in page)
        except (RedisError, PollingError) as error:
            text = _("Checks requested before that: %(requested)d. Request the others again.")
            self._tell_outage(request, error, text % {"requested": done.requested})
        else:
            self._tell_requested(request, done)
        return _back(request)

    def _tell_requested(self, request: HttpRequest, done: Requested) -> None:
        text = _(
            "Checks requested: %(requested)d. Checked just now and left alone: %(cooldown)d. Not under polling: %(not_polled)d."
        )
        counts = {
            "requested": done.requested,
            "cooldown": done.in_cooldown,
            "not_polled": done.not_polled,
        }
        level = messages.SUCCESS if done.requested else messages.WARNING
        self.message_user(request, text % counts, level)
        if done.of_disabled_accounts:
            text = _(
                "%(number)d of these cards belong to disabled accounts: they are not checked until the account is enabled."
            )
            told = text % {"number": done.of_disabled_accounts}
            self.message_user(request, told, messages.WARNING)

    @admin.action(
        description=gettext_lazy("Remove the selected cards from polling"),
        permissions=["remove_from_polling"],
    )
    def remove_from_polling(
        self, request: HttpRequest, queryset: QuerySet[Card, Card]
    ) -> HttpResponse | None:
        """Ask, then take the cards out of polling, and tell what became of it."""
        if CONFIRMED not in request.POST:
            question = Question(
                action="remove_from_polling",
                title=_("Remove cards from polling?"),
                consequences=_(
                    "Polling is switched off for these cards, and they leave the queues. A check that is under way ends, but the "
                    "card is not put back. Cards, facts and history stay; polling can be switched on again on the page of a card."
                ),
                button=_("Remove from polling"),
            )
            return self._ask(request, queryset, question)
        removed = others = 0
        try:
            for page in pages_by_id(queryset):
                polled = [card for card in page if card.is_polled]
                removed, others = removed + len(polled), others + len(page) - len(polled)
                self._remove(request, polled)
        except (RedisError, PollingError) as error:
            text = _(
                "Polling is switched off for %(removed)d cards, which leave the queues when Redis is back. Remove the others again."
            )
            self._tell_outage(request, error, text % {"removed": removed})
        else:
            text = _("Removed from polling: %(removed)d. Not under polling before: %(others)d.")
            level = messages.SUCCESS if removed else messages.WARNING
            self.message_user(request, text % {"removed": removed, "others": others}, level)
        return _back(request)

    def _remove(self, request: HttpRequest, cards: list[Card]) -> None:
        """Switch polling off and write down who did it, both or neither; Redis is told after that."""
        said = [{"changed": {"fields": [_("under polling")]}}]
        with transaction.atomic():
            LogEntry.objects.log_actions(_user_id(request), cards, CHANGE, said)
            triggers.remove_cards(cards)

    @admin.action(description=gettext_lazy("Delete the selected cards"), permissions=["delete"])
    def delete_selected(
        self, request: HttpRequest, queryset: QuerySet[Card, Card]
    ) -> HttpResponse | None:
        """Ask, then delete the cards with their history."""
        if CONFIRMED not in request.POST:
            question = Question(
                action="delete_selected",
                title=_("Delete cards?"),
                consequences=_(
                    "These cards are deleted with their events and daily usage, and leave polling. This cannot be undone."
                ),
                button=_("Delete"),
            )
            return self._ask(request, queryset, question)
        deleted = 0
        for page in pages_by_id(queryset):
            LogEntry.objects.log_actions(_user_id(request), page, DELETION)
            Card.objects.filter(pk__in=[card.pk for card in page]).delete()
            deleted += len(page)
        self.message_user(
            request, _("Cards deleted: %(number)d.") % {"number": deleted}, messages.SUCCESS
        )
        return None

    def _ask(
        self, request: HttpRequest, cards: QuerySet[Card, Card], question: Question
    ) -> HttpResponse:
        named = list(cards[: MOST_NAMED + 1])
        context = {
            **self.admin_site.each_context(request),
            "opts": self.opts,
            "title": question.title,
            "question": question,
            "number": deletion.capped_count(cards),
            "named": named[:MOST_NAMED],
            "more": len(named) > MOST_NAMED,
            "selected": request.POST.getlist(helpers.ACTION_CHECKBOX_NAME),
            "selected_name": helpers.ACTION_CHECKBOX_NAME,
            "across": request.POST.get("select_across", "0"),
            "back_to_card": request.POST.get(BACK_TO_CARD, ""),
            "cancel_url": _url_of_card(request) or request.get_full_path(),
            "media": self.media,
        }
        request.current_app = self.admin_site.name
        return TemplateResponse(request, "admin/carriers/card/confirmation.html", context)

    def _tell_outage(self, request: HttpRequest, error: Exception, consequence: str) -> None:
        """Say in one message what is away and what that means; what the server said may name secrets."""
        if isinstance(error, PollingError):
            what = str(error)
        else:
            what = _("Redis does not answer (%(kind)s).") % {"kind": type(error).__name__}
        self.message_user(request, f"{what} {consequence}", messages.ERROR)


def _user_id(request: HttpRequest) -> int:
    """Who acts; the admin lets in nobody who is not signed in."""
    return int(request.user.pk or 0)


def _back(request: HttpRequest) -> HttpResponse | None:
    """Go back to the page of the card from where the action was chosen, or to the list."""
    url = _url_of_card(request)
    return HttpResponseRedirect(url) if url else None


def _url_of_card(request: HttpRequest) -> str:
    card_id = request.POST.get(BACK_TO_CARD, "")
    is_id = card_id.isascii() and card_id.isdecimal()
    return reverse("admin:carriers_card_change", args=(card_id,)) if is_id else ""
