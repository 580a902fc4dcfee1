"""Accounts, packages, cards with the facts last seen, and the cards' history."""

from typing import Any, Self

from django.core.validators import MaxValueValidator, MinValueValidator
from django.db import models, transaction
from django.db.models import F, Q
from django.db.models.functions import Now
from django.utils.translation import gettext_lazy as _

from carriers import choices, signals, validators
from carriers.fields import EncryptedTextField
from carriers.querysets import (
    CardQuerySet,
    CarrierQuerySet,
    DailyUsageQuerySet,
    account_change,
    polled_under,
)
from carriers.signals import AccountChange, CardChange

MOST_IN_FLIGHT = 100_000
MOST_CALLS_PER_SECOND = 100_000
LONGEST_WORD = 100
_EXABYTE = 10**18


def between(low: float, high: float) -> list[Any]:
    """Validators of a closed range."""
    return [MinValueValidator(low), MaxValueValidator(high)]


class Carrier(models.Model):
    """A carrier account: one contract with one carrier, its gateway, credentials and limits."""

    name = models.CharField(_("name"), max_length=100)
    code = models.CharField(
        _("code"),
        max_length=64,
        unique=True,
        validators=[validators.validate_code],
        help_text=_("Sent to the gateway with every request; names the account in commands."),
    )
    provider = models.CharField(
        _("provider"),
        max_length=32,
        choices=choices.Provider,
        default=choices.Provider.STANDARD,
    )
    gateway_url = models.CharField(
        _("gateway URL"),
        max_length=500,
        validators=[validators.validate_gateway_url],
        help_text=_("Base URL without a trailing slash, for example https://gateway.example.com"),
    )
    gateway_token = EncryptedTextField(_("gateway token"), blank=True, default="")
    is_enabled = models.BooleanField(
        _("enabled"), default=True, help_text=_("Off: no card of this account is polled.")
    )
    max_in_flight = models.PositiveIntegerField(
        _("max in flight"),
        default=500,
        validators=between(1, MOST_IN_FLIGHT),
        help_text=_("How many cards of this account may be checked at the same time."),
    )
    priority_ratio = models.FloatField(
        _("priority ratio"),
        default=0.5,
        validators=between(0, 1),
        help_text=_(
            "Share of the capacity kept for cards checked first; 0 = no quota, they may take all of it."
        ),
    )

    objects = CarrierQuerySet.as_manager()

    class Meta:
        db_table = "tb_carrier"
        verbose_name = _("carrier account")
        verbose_name_plural = _("carrier accounts")
        ordering = ("name", "id")
        constraints = (
            models.CheckConstraint(
                condition=Q(max_in_flight__gte=1, max_in_flight__lte=MOST_IN_FLIGHT),
                name="carrier_max_in_flight_range",
            ),
            models.CheckConstraint(
                condition=Q(priority_ratio__gte=0, priority_ratio__lte=1),
                name="carrier_priority_ratio_range",
            ),
        )

    _was_enabled: bool | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.code})"

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, and tell what became of the account."""
        with transaction.atomic(using=kwargs.get("using")):
            was_new, was_enabled = self._state.adding, self._was_enabled
            super().save(*args, **kwargs)
            kind = AccountChange.CREATED
            if not was_new:
                before = self.is_enabled if was_enabled is None else was_enabled
                kind = account_change(was_enabled=before, is_enabled=self.is_enabled)
            signals.tell_account(type(self), carrier_id=self.pk, kind=kind)
        self._was_enabled = self.is_enabled

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember whether the account was enabled, to tell what a save changes."""
        carrier = super().from_db(*args, **kwargs)
        carrier._was_enabled = carrier.__dict__.get("is_enabled")
        return carrier

    def clean(self) -> None:
        """Bring the URL into the form that requests are built from."""
        self.gateway_url = self.gateway_url.strip().rstrip("/")

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete with all cards, batch by batch, and tell."""
        with transaction.atomic(using=kwargs.get("using")):
            carrier_id = self.pk
            _cards, with_cards = self.cards.all().delete()
            _total, deleted = super().delete(*args, **kwargs)
            signals.tell_account(type(self), carrier_id=carrier_id, kind=AccountChange.DELETED)
        deleted = deleted | with_cards
        return sum(deleted.values()), deleted


class RateLimitGroup(models.Model):
    """Operations of an account that share one limit of calls per second."""

    carrier = models.ForeignKey(
        Carrier,
        on_delete=models.CASCADE,
        related_name="rate_limit_groups",
        verbose_name=_("carrier account"),
    )
    name = models.CharField(_("name"), max_length=32, validators=[validators.validate_code])
    max_per_second = models.FloatField(
        _("calls per second"),
        validators=[MaxValueValidator(MOST_CALLS_PER_SECOND)],
        help_text=_("May be a fraction: 0.5 = one call every two seconds."),
    )
    operations = models.JSONField(
        _("operations"),
        default=list,
        validators=[validators.validate_operations],
        help_text=_("An operation in no group is not limited."),
    )

    class Meta:
        verbose_name = _("rate-limit group")
        verbose_name_plural = _("rate-limit groups")
        ordering = ("carrier", "name")
        constraints = (
            models.UniqueConstraint(
                fields=("carrier", "name"), name="rate_limit_group_name_unique"
            ),
            models.CheckConstraint(
                condition=Q(max_per_second__gt=0, max_per_second__lte=MOST_CALLS_PER_SECOND),
                name="rate_limit_group_max_per_second_range",
                violation_error_message=_("Calls per second must be more than 0."),
            ),
        )

    def __str__(self) -> str:
        return f"{self.name}: {self.max_per_second:g}/s"


class Package(models.Model):
    """A data package: how much a card may use in a billing cycle, and what happens after that."""

    name = models.CharField(_("name"), max_length=100, unique=True)
    allowance_bytes = models.BigIntegerField(
        _("allowance"), validators=between(1, _EXABYTE), help_text=_("Bytes per billing cycle.")
    )
    action = models.CharField(
        _("action when exhausted"),
        max_length=16,
        choices=choices.PackageAction,
        default=choices.PackageAction.NONE,
    )

    class Meta:
        verbose_name = _("package")
        verbose_name_plural = _("packages")
        ordering = ("name",)
        constraints = (
            models.CheckConstraint(
                condition=Q(allowance_bytes__gte=1), name="package_allowance_bytes_positive"
            ),
        )

    def __str__(self) -> str:
        return self.name


class Card(models.Model):
    """A SIM card, and what was last seen of it."""

    carrier = models.ForeignKey(
        Carrier,
        on_delete=models.CASCADE,
        related_name="cards",
        db_index=False,
        verbose_name=_("carrier account"),
    )
    iccid = models.CharField(
        _("ICCID"), max_length=20, unique=True, validators=[validators.validate_iccid]
    )
    msisdn = models.CharField(
        _("MSISDN"), max_length=20, blank=True, default="", validators=[validators.validate_digits]
    )
    imsi = models.CharField(
        _("IMSI"), max_length=15, blank=True, default="", validators=[validators.validate_digits]
    )
    package = models.ForeignKey(
        Package,
        on_delete=models.SET_NULL,
        null=True,
        blank=True,
        related_name="cards",
        verbose_name=_("package"),
    )
    is_polled = models.BooleanField(_("under polling"), default=True)
    created_at = models.DateTimeField(_("added at"), db_default=Now(), editable=False)

    status = models.CharField(
        _("status"),
        max_length=16,
        choices=choices.CardStatus,
        default=choices.CardStatus.UNKNOWN,
    )
    raw_status = models.CharField(
        _("status as reported"), max_length=LONGEST_WORD, blank=True, default=""
    )
    is_online = models.BooleanField(_("online"), null=True, blank=True)
    status_checked_at = models.DateTimeField(_("status checked at"), null=True, blank=True)
    realname_verified = models.BooleanField(_("real-name verified"), null=True, blank=True)
    realname_checked_at = models.DateTimeField(_("verification checked at"), null=True, blank=True)
    used_bytes = models.BigIntegerField(_("used in the cycle"), null=True, blank=True)
    cycle_start = models.DateField(_("billing cycle since"), null=True, blank=True)
    usage_checked_at = models.DateTimeField(_("usage checked at"), null=True, blank=True)
    usage_decreased_at = models.DateTimeField(
        _("usage went down at"),
        null=True,
        blank=True,
        help_text=_(
            "Since when the gateway reports less than before within one cycle; not booked."
        ),
    )
    package_state = models.CharField(
        _("package state"),
        max_length=16,
        choices=choices.PackageState,
        default=choices.PackageState.UNKNOWN,
    )
    package_checked_at = models.DateTimeField(_("package checked at"), null=True, blank=True)

    objects = CardQuerySet.as_manager()

    class Meta:
        verbose_name = _("card")
        verbose_name_plural = _("cards")
        permissions = (
            ("request_check_card", _("Can request checks of cards")),
            ("remove_card_from_polling", _("Can remove cards from polling")),
        )
        indexes = (
            models.Index(fields=("carrier", "id"), name="card_by_carrier"),
            models.Index(fields=("carrier", "status", "id"), name="card_by_carrier_status"),
            models.Index(fields=("status", "id"), name="card_by_status"),
            models.Index(fields=("realname_verified", "id"), name="card_by_realname"),
            models.Index(fields=("package_state", "id"), name="card_by_package_state"),
            models.Index(fields=("msisdn",), name="card_by_msisdn"),
            models.Index(fields=("imsi",), name="card_by_imsi"),
            models.Index(fields=("id",), condition=Q(is_polled=False), name="card_not_polled"),
            models.Index(
                fields=("id",),
                condition=Q(usage_decreased_at__isnull=False),
                name="card_with_usage_decrease",
            ),
        )
        constraints = (
            models.CheckConstraint(
                condition=Q(used_bytes__isnull=True) | Q(used_bytes__gte=0),
                name="card_used_bytes_not_negative",
            ),
        )

    _told: tuple[int | None, bool | None] | None = None

    def __str__(self) -> str:
        return self.iccid

    def save(self, *args: Any, **kwargs: Any) -> None:
        """Save, and tell where that changes what is polled."""
        with transaction.atomic(using=kwargs.get("using")):
            old = self._polled_before()
            super().save(*args, **kwargs)
            new = polled_under(self.carrier_id, is_polled=self.is_polled)
            signals.tell_cards(type(self), [CardChange(self.pk, old, new)])
        self._told = (self.carrier_id, self.is_polled)

    @classmethod
    def from_db(cls, *args: Any, **kwargs: Any) -> Self:
        """Remember account and switch, to tell what a save changes."""
        card = super().from_db(*args, **kwargs)
        held = card.__dict__
        card._told = (held.get("carrier_id"), held.get("is_polled"))
        return card

    def _polled_before(self) -> int | None:
        """Give the account that polled this card up to now, from memory where it was read with the card."""
        if self._state.adding:
            return None
        told = self._told
        if told is None or None in told:
            rows = type(self).objects.filter(pk=self.pk)
            told = rows.values_list("carrier_id", "is_polled").first() or (None, None)
        return polled_under(told[0], is_polled=told[1])

    def delete(self, *args: Any, **kwargs: Any) -> tuple[int, dict[str, int]]:
        """Delete, and tell that the card left polling."""
        with transaction.atomic(using=kwargs.get("using")):
            card_id, old = self.pk, self._polled_before()
            deleted = super().delete(*args, **kwargs)
            signals.tell_cards(type(self), [CardChange(card_id, old, None)])
        return deleted


class CardEvent(models.Model):
    """A change of a fact of a card: what it was, what it became, when, and by what it was found."""

    card = models.ForeignKey(
        Card,
        on_delete=models.CASCADE,
        related_name="events",
        db_index=False,
        verbose_name=_("card"),
    )
    kind = models.CharField(_("kind"), max_length=16, choices=choices.EventKind)
    old = models.CharField(_("old"), max_length=LONGEST_WORD, blank=True, default="")
    new = models.CharField(_("new"), max_length=LONGEST_WORD, blank=True, default="")
    at = models.DateTimeField(_("when"))
    source = models.CharField(_("by what"), max_length=64, blank=True, default="")

    class Meta:
        verbose_name = _("card event")
        verbose_name_plural = _("card events")
        indexes = (
            models.Index(F("card"), F("at").desc(), name="card_event_by_card"),
            models.Index(fields=("kind", "id"), name="card_event_by_kind"),
        )

    def __str__(self) -> str:
        return f"{self.get_kind_display()}: {self.old} → {self.new}"


class DailyUsage(models.Model):
    """What a card used on one day; the days of a billing cycle add up to the cycle's counter."""

    card = models.ForeignKey(
        Card,
        on_delete=models.CASCADE,
        related_name="daily_usage",
        db_index=False,
        verbose_name=_("card"),
    )
    day = models.DateField(_("day"))
    used_bytes = models.BigIntegerField(_("used"), default=0)

    objects = DailyUsageQuerySet.as_manager()

    class Meta:
        verbose_name = _("daily usage")
        verbose_name_plural = _("daily usage")
        constraints = (
            models.UniqueConstraint(fields=("card", "day"), name="daily_usage_card_day_unique"),
            models.CheckConstraint(condition=Q(used_bytes__gte=0), name="daily_usage_not_negative"),
        )

    def __str__(self) -> str:
        return f"{self.day:%Y-%m-%d}: {self.used_bytes}"
