"""The admin of accounts and their limits. The gateway token can be written and never read."""

from collections.abc import Iterable
from typing import Any

from django.contrib import admin, messages
from django.db.models import QuerySet
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from carriers.admin import deletion, facts
from carriers.admin.lists import NamedListAdmin
from carriers.choices import Operation
from carriers.forms import (
    CarrierForm,
    RateLimitGroupForm,
    RateLimitGroupFormSet,
    SingleRateLimitGroupForm,
)
from carriers.models import Card, Carrier, RateLimitGroup


def operation_names(group: RateLimitGroup) -> str:
    """The operations of a group, as people call them."""
    labels = dict(Operation.choices)
    return ", ".join(str(labels.get(name, name)) for name in group.operations) or facts.NOTHING


class RateLimitGroupInline(admin.TabularInline[RateLimitGroup, Carrier]):
    """The limits of an account."""

    model = RateLimitGroup
    form = RateLimitGroupForm
    formset = RateLimitGroupFormSet
    fields = ("name", "max_per_second", "operations")

    def get_extra(self, request: HttpRequest, obj: Carrier | None = None, **kwargs: Any) -> int:
        """Offer the first limit of a new account."""
        del request, kwargs
        return 0 if obj else 1

    def get_fields(self, request: HttpRequest, obj: Carrier | None = None) -> Any:
        """Who may only look sees the names of the operations."""
        if self.has_change_permission(request, obj) or self.has_add_permission(request, obj):
            return self.fields
        return ("name", "max_per_second", "limited_operations")

    readonly_fields = ("limited_operations",)

    @admin.display(description=_("operations"))
    def limited_operations(self, group: RateLimitGroup) -> str:
        """Name the operations."""
        return operation_names(group)


@admin.register(Carrier)
class CarrierAdmin(NamedListAdmin[Carrier]):
    """Accounts."""

    form = CarrierForm
    inlines = (RateLimitGroupInline,)
    list_display = (
        "name",
        "code",
        "is_enabled",
        "limits",
        "max_in_flight",
        "gateway_url",
        "has_token",
        "cards_link",
    )
    list_display_links = ("name", "code")
    list_filter = ("is_enabled", "provider")
    search_fields = ("name", "code")
    actions = ("enable", "disable")
    readonly_fields = ("has_token", "cards_link")

    def get_queryset(self, request: HttpRequest) -> QuerySet[Carrier, Carrier]:
        """Read the limits of all listed accounts at once."""
        return super().get_queryset(request).prefetch_related("rate_limit_groups")

    def get_fieldsets(self, request: HttpRequest, obj: Carrier | None = None) -> Any:
        """Leave the token out of pages that cannot write it: what is not a form would show the stored value."""
        may_write = self.has_change_permission(request, obj) if obj else True
        token = ("gateway_token",) if may_write else ()
        stored = ("has_token",) if obj else ()
        about = ("name", "code", "is_enabled", *(("cards_link",) if obj else ()))
        return (
            (None, {"fields": about}),
            (_("Gateway"), {"fields": ("provider", "gateway_url", *token, *stored)}),
            (_("Capacity"), {"fields": ("max_in_flight", "priority_ratio")}),
        )

    @admin.display(description=_("limits"))
    def limits(self, carrier: Carrier) -> str:
        """Show the limits, as a rule one or two."""
        groups = carrier.rate_limit_groups.all()
        return ", ".join(str(group) for group in groups) or gettext("not limited")

    @admin.display(description=_("token stored"), boolean=True)
    def has_token(self, carrier: Carrier) -> bool:
        """Tell whether there is a token, without opening it."""
        return bool(carrier.__dict__["gateway_token"])

    @admin.display(description=_("cards"))
    def cards_link(self, carrier: Carrier) -> SafeString:
        """Lead to the account's cards."""
        url = reverse("admin:carriers_card_changelist")
        text = gettext("Show cards")
        return format_html('<a href="{}?carrier__id__exact={}">{}</a>', url, carrier.pk, text)

    @admin.action(description=_("Enable selected accounts"), permissions=["change"])
    def enable(self, request: HttpRequest, queryset: QuerySet[Carrier, Carrier]) -> None:
        """Poll the accounts' cards again."""
        number = self._switch(request, queryset.filter(is_enabled=False), is_enabled=True)
        text = ngettext("%d account was enabled.", "%d accounts were enabled.", number)
        self.message_user(request, text % number, messages.SUCCESS)

    @admin.action(description=_("Disable selected accounts"), permissions=["change"])
    def disable(self, request: HttpRequest, queryset: QuerySet[Carrier, Carrier]) -> None:
        """Poll no card of the accounts."""
        number = self._switch(request, queryset.filter(is_enabled=True), is_enabled=False)
        text = ngettext("%d account was disabled.", "%d accounts were disabled.", number)
        self.message_user(request, text % number, messages.SUCCESS)

    def _switch(
        self, request: HttpRequest, carriers: QuerySet[Carrier, Carrier], *, is_enabled: bool
    ) -> int:
        switched = list(carriers)
        for carrier in switched:
            carrier.is_enabled = is_enabled
            carrier.save(update_fields=["is_enabled"])
            self.log_change(request, carrier, [{"changed": {"fields": [gettext("enabled")]}}])
        return len(switched)

    def get_deleted_objects(
        self, objs: QuerySet[Carrier, Carrier] | Iterable[Carrier], request: HttpRequest
    ) -> Any:
        """Count what goes along, instead of listing it."""
        ids = [carrier.pk for carrier in objs]
        related = [
            relation.related_model._base_manager.filter(**{f"{relation.field.name}__in": ids})
            for relation in Carrier._meta.related_objects
        ]
        return deletion.summary(request, objs, related, asked=(Carrier, Card))


@admin.register(RateLimitGroup)
class RateLimitGroupAdmin(NamedListAdmin[RateLimitGroup]):
    """The limits of all accounts."""

    form = SingleRateLimitGroupForm
    list_display = ("carrier", "name", "max_per_second", "limited_operations")
    list_display_links = ("name",)
    list_filter = ("carrier",)
    list_select_related = ("carrier",)
    search_fields = ("name", "carrier__name", "carrier__code")
    readonly_fields = ("limited_operations",)

    def get_fields(self, request: HttpRequest, obj: RateLimitGroup | None = None) -> Any:
        """Who may only look sees the names of the operations."""
        may_write = obj is None or self.has_change_permission(request, obj)
        operations = "operations" if may_write else "limited_operations"
        return ("carrier", "name", "max_per_second", operations)

    @admin.display(description=_("operations"))
    def limited_operations(self, group: RateLimitGroup) -> str:
        """Name the operations."""
        return operation_names(group)
