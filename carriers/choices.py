"""Closed sets of values that stand in SQL; the values never change."""

from django.db import models
from django.utils.translation import gettext_lazy as _


class Provider(models.TextChoices):
    """Which adapter speaks to an account's gateway."""

    STANDARD = "standard", _("Standard gateway")


class Operation(models.TextChoices):
    """What a gateway can be asked; a rate-limit group is a list of these."""

    CARD_STATUS = "card_status", _("Card status")
    CARDDATA = "carddata", _("Data usage")
    REALNAME = "realname", _("Real-name verification")
    SUSPEND = "suspend", _("Suspend")
    RESUME = "resume", _("Resume")


class CardStatus(models.TextChoices):
    """Status words of the standard protocol, and ``unknown`` for every other word."""

    INVENTORY = "inventory", _("Inventory")
    TESTING = "testing", _("Testing")
    ACTIVE = "active", _("Active")
    SUSPENDED = "suspended", _("Suspended")
    DEACTIVATED = "deactivated", _("Deactivated")
    UNKNOWN = "unknown", _("Unknown")


class PackageState(models.TextChoices):
    """Whether the data package still covers the card."""

    NONE = "none", _("No package")
    COVERED = "covered", _("Covered")
    EXHAUSTED = "exhausted", _("Exhausted")
    UNKNOWN = "unknown", _("Unknown")


class PackageAction(models.TextChoices):
    """What is done with a card whose package is exhausted."""

    NONE = "none", _("Nothing")
    SUSPEND = "suspend", _("Suspend the card")


class EventKind(models.TextChoices):
    """What a history entry of a card is about."""

    STATUS = "status", _("Status")
    REALNAME = "realname", _("Real-name verification")
    PACKAGE_STATE = "package_state", _("Package state")
    CYCLE = "cycle", _("Billing cycle")
    USAGE_DECREASE = "usage_decrease", _("Usage went down within a cycle")
