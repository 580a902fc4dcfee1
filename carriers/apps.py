"""Carrier accounts and cards as a Django application."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class CarriersConfig(AppConfig):
    """Accounts, rate-limit groups, packages and cards."""

    name = "carriers"
    verbose_name = _("Carriers")
    default_auto_field = "django.db.models.BigAutoField"
