"""How cards are polled: rules that operators edit."""

from typing import Any

from django.core.exceptions import ValidationError
from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models
from django.db.models import Q
from django.utils.translation import gettext_lazy as _

from cardpolling.checktypes import DEFAULT_STEP_ORDER, CheckType
from carriers.choices import CardStatus
from carriers.models import Carrier

SHORTEST_INTERVAL_S = 10
LONGEST_INTERVAL_S = 366 * 86_400
LONGEST_TIMEOUT_S = 300
LONGEST_BACKOFF_S = 7 * 86_400


def default_step_order() -> list[str]:
    """Names of the check types in the order in which a card's steps run."""
    return [str(check_type) for check_type in DEFAULT_STEP_ORDER]


def validate_step_order(value: Any) -> None:
    """Refuse what is no list of distinct check types."""
    known = {str(check_type) for check_type in CheckType}
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ValidationError(_("Enter a list of check types."))
    unknown = sorted(set(value) - known)
    if unknown:
        raise ValidationError(
            _("Unknown check types: %(names)s"), params={"names": ", ".join(unknown)}
        )
    if len(set(value)) != len(value):
        raise ValidationError(_("A check type is named twice."))


def _between(low: float, high: float) -> list[Any]:
    return [MinValueValidator(low), MaxValueValidator(high)]


def _interval(label: Any) -> "models.PositiveIntegerField[int | None, int | None]":
    return models.PositiveIntegerField(
        label,
        null=True,
        blank=True,
        validators=_between(SHORTEST_INTERVAL_S, LONGEST_INTERVAL_S),
        help_text=_("Seconds; empty = not polled."),
    )


def _range(field: str, low: float, high: float) -> models.CheckConstraint:
    return models.CheckConstraint(
        condition=Q(**{f"{field}__gte": low, f"{field}__lte": high}), name=f"polling_config_{field}"
    )


class PollingConfig(models.Model):
    """A rule: which cards it matches, and how those are polled. The first match by rank wins."""

    name = models.CharField(_("name"), max_length=100)
    is_active = models.BooleanField(_("active"), default=True)
    rank = models.PositiveIntegerField(
        _("rank"), default=100, help_text=_("The matching rule with the lowest rank wins.")
    )
    carrier = models.ForeignKey(
        Carrier,
        on_delete=models.CASCADE,
        null=True,
        blank=True,
        related_name="polling_configs",
        verbose_name=_("carrier account"),
        help_text=_("Empty = any."),
    )
    status = models.CharField(
        _("status"),
        max_length=16,
        choices=CardStatus,
        blank=True,
        default="",
        help_text=_("Empty = any."),
    )
    realname_verified = models.BooleanField(
        _("real-name verified"), null=True, blank=True, help_text=_("Empty = any.")
    )

    card_status_interval_s = _interval(_("card status every"))
    carddata_interval_s = _interval(_("data usage every"))
    realname_interval_s = _interval(_("real-name verification every"))
    package_interval_s = _interval(_("package every"))
    step_order = models.JSONField(
        _("order of the steps"), default=default_step_order, validators=[validate_step_order]
    )
    step_timeout_s = models.FloatField(
        _("step timeout"),
        default=10,
        validators=_between(0.1, LONGEST_TIMEOUT_S),
        help_text=_("Seconds for one check of one card, waiting for its turn included."),
    )
    total_timeout_s = models.FloatField(
        _("total timeout"),
        default=30,
        validators=_between(0.1, LONGEST_TIMEOUT_S),
        help_text=_("Seconds for all checks of one card together."),
    )
    backoff_base_s = models.PositiveIntegerField(
        _("back-off base"),
        default=60,
        validators=_between(1, LONGEST_BACKOFF_S),
        help_text=_(
            "Seconds until a failed check is tried again; doubles with every further failure."
        ),
    )
    backoff_cap_s = models.PositiveIntegerField(
        _("back-off cap"),
        default=3600,
        validators=_between(1, LONGEST_BACKOFF_S),
        help_text=_("Seconds a failing check waits at most."),
    )
    alert_after_failures = models.PositiveIntegerField(
        _("alert after failures"), default=3, validators=_between(1, 1000)
    )
    cooldown_s = models.PositiveIntegerField(
        _("cooldown"),
        default=60,
        validators=[MaxValueValidator(86_400)],
        help_text=_(
            "Seconds after a success within which a requested check is not repeated; 0 = none."
        ),
    )

    class Meta:
        verbose_name = _("polling configuration")
        verbose_name_plural = _("polling configurations")
        ordering = ("rank", "id")
        constraints = (
            *(
                models.CheckConstraint(
                    condition=Q(**{f"{name}__isnull": True})
                    | Q(**{f"{name}__gte": 1, f"{name}__lte": LONGEST_INTERVAL_S}),
                    name=f"polling_config_{name}",
                )
                for name in (
                    "card_status_interval_s",
                    "carddata_interval_s",
                    "realname_interval_s",
                    "package_interval_s",
                )
            ),
            _range("step_timeout_s", 0.1, LONGEST_TIMEOUT_S),
            _range("total_timeout_s", 0.1, LONGEST_TIMEOUT_S),
            _range("backoff_base_s", 1, LONGEST_BACKOFF_S),
            _range("backoff_cap_s", 1, LONGEST_BACKOFF_S),
            _range("alert_after_failures", 1, 1000),
            _range("cooldown_s", 0, 86_400),
        )

    def __str__(self) -> str:
        return self.name

    def clean(self) -> None:
        """Refuse limits that contradict each other."""
        errors = {}
        if _is_below(self.total_timeout_s, self.step_timeout_s):
            errors["total_timeout_s"] = _(
                "The total timeout must not be shorter than the step timeout."
            )
        if _is_below(self.backoff_cap_s, self.backoff_base_s):
            errors["backoff_cap_s"] = _("The back-off cap must not be below its base.")
        if errors:
            raise ValidationError(errors)


def _is_below(value: float | None, bound: float | None) -> bool:
    # A value that its own field refused is None here.
    return value is not None and bound is not None and value < bound
