"""The admin of polling rules."""

from typing import Any, ClassVar

from django import forms
from django.contrib import admin
from django.utils.translation import gettext, ngettext
from django.utils.translation import gettext_lazy as _

from cardpolling.models import PollingConfig
from carriers.admin.lists import NamedListAdmin
from carriers.choices import CardStatus

_MINUTE_S, _HOUR_S, _DAY_S = 60, 3600, 86_400

admin.site.site_header = admin.site.site_title = "cardpolling"
admin.site.index_title = _("Overview")
# The admin is the site: a link to it would lead back to where one is.
admin.site.site_url = None
# Its links stand above the page, so that lists have its width.
admin.site.enable_nav_sidebar = False


class StepOrderField(forms.CharField):
    """Check types in order, written with commas; gives a list."""

    def prepare_value(self, value: Any) -> Any:
        """Show the stored list as people write it."""
        return ", ".join(map(str, value)) if isinstance(value, list) else value

    def to_python(self, value: Any) -> Any:
        """Read the list; commas of either width, or none, separate."""
        text = super().to_python(value) or ""
        return text.replace(",", " ").replace("，", " ").replace("、", " ").split()

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare the lists."""
        return bool(initial != self.to_python(data))


class AnyYesNoSelect(forms.NullBooleanSelect):
    """Yes, no, or any of the two."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        super().__init__(attrs)
        self.choices = [("unknown", _("any")), ("true", _("Yes")), ("false", _("No"))]


class PollingConfigForm(forms.ModelForm[PollingConfig]):
    """A polling rule."""

    step_order = StepOrderField(
        label=_("Order of the steps"),
        help_text=_("card_status, carddata, realname, package in the order in which they run."),
        widget=forms.TextInput(attrs={"class": "vLargeTextField", "size": 60}),
    )

    class Meta:
        model = PollingConfig
        fields = "__all__"
        widgets: ClassVar = {"realname_verified": AnyYesNoSelect}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("carrier", "status"):
            field = self.fields.get(name)
            if isinstance(field, forms.ModelChoiceField):
                field.empty_label = gettext("any")
                field.widget.choices = field.choices
            elif isinstance(field, forms.TypedChoiceField):
                field.choices = [("", _("any")), *CardStatus.choices]


@admin.register(PollingConfig)
class PollingConfigAdmin(NamedListAdmin[PollingConfig]):
    """Polling rules in the order in which they are tried."""

    form = PollingConfigForm
    list_display = (
        "rank",
        "name",
        "is_active",
        "for_carrier",
        "for_status",
        "for_realname",
        "card_status_every",
        "carddata_every",
        "realname_every",
        "package_every",
    )
    list_display_links = ("name",)
    list_filter = ("is_active", "carrier")
    list_select_related = ("carrier",)
    search_fields = ("name",)
    save_as = True
    fieldsets = (
        (None, {"fields": ("name", "is_active", "rank")}),
        (
            _("Matches"),
            {
                "fields": ("carrier", "status", "realname_verified"),
                "description": _(
                    "The first active rule by rank that matches a card is in force for it."
                ),
            },
        ),
        (
            _("Intervals"),
            {
                "fields": (
                    "card_status_interval_s",
                    "carddata_interval_s",
                    "realname_interval_s",
                    "package_interval_s",
                    "cooldown_s",
                )
            },
        ),
        (_("Steps"), {"fields": ("step_order", "step_timeout_s", "total_timeout_s")}),
        (_("Failures"), {"fields": ("backoff_base_s", "backoff_cap_s", "alert_after_failures")}),
    )

    @admin.display(description=_("account"))
    def for_carrier(self, config: PollingConfig) -> str:
        """Name the account whose cards match."""
        return gettext("any") if config.carrier is None else config.carrier.name

    @admin.display(description=_("status"))
    def for_status(self, config: PollingConfig) -> str:
        """Name the status that matches."""
        return config.get_status_display() or gettext("any")

    @admin.display(description=_("real name"))
    def for_realname(self, config: PollingConfig) -> str:
        """Say which verification matches."""
        if config.realname_verified is None:
            return gettext("any")
        return gettext("Verified") if config.realname_verified else gettext("Not verified")

    @admin.display(description=_("status every"), ordering="card_status_interval_s")
    def card_status_every(self, config: PollingConfig) -> str:
        """Show the interval in human units."""
        return duration(config.card_status_interval_s)

    @admin.display(description=_("usage every"), ordering="carddata_interval_s")
    def carddata_every(self, config: PollingConfig) -> str:
        """Show the interval in human units."""
        return duration(config.carddata_interval_s)

    @admin.display(description=_("real name every"), ordering="realname_interval_s")
    def realname_every(self, config: PollingConfig) -> str:
        """Show the interval in human units."""
        return duration(config.realname_interval_s)

    @admin.display(description=_("package every"), ordering="package_interval_s")
    def package_every(self, config: PollingConfig) -> str:
        """Show the interval in human units."""
        return duration(config.package_interval_s)


def duration(interval_s: int | None) -> str:
    """Give an interval in the largest unit that is exact."""
    if interval_s is None:
        return gettext("not polled")
    if interval_s % _DAY_S == 0:
        return ngettext("%d day", "%d days", interval_s // _DAY_S) % (interval_s // _DAY_S)
    if interval_s % _HOUR_S == 0:
        return gettext("%d h") % (interval_s // _HOUR_S)
    if interval_s % _MINUTE_S == 0:
        return gettext("%d min") % (interval_s // _MINUTE_S)
    return gettext("%d s") % interval_s
