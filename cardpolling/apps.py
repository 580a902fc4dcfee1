"""The polling engine as a Django application."""

from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class CardpollingConfig(AppConfig):
    """Polling configuration, engine and commands."""

    name = "cardpolling"
    verbose_name = _("Polling")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        """Register the system checks, and listen to what becomes of cards and accounts."""
        from cardpolling import checks, lifecycle  # noqa: F401, PLC0415  (models exist only now)

        lifecycle.connect()
