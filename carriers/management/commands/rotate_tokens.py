"""Encrypt all gateway tokens anew with the first key of FIELD_ENCRYPTION_KEYS."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError
from django.db import transaction
from django.utils.translation import gettext as _

from carriers.fields import Sealed
from carriers.models import Carrier


class Command(BaseCommand):
    """Rotate the encryption key of the gateway tokens: put the new key first in the setting, then run this."""

    help = (
        "Encrypts all gateway tokens anew with the first key of FIELD_ENCRYPTION_KEYS. "
        "Afterwards the old keys can be removed from the setting."
    )

    def handle(self, *_args: Any, **_options: Any) -> None:
        """Rewrite every token that can be read, and fail when one cannot."""
        rotated, unreadable = 0, []
        for carrier_id, code in Carrier.objects.values_list("pk", "code"):
            try:
                rotated += rotate(carrier_id)
            except ImproperlyConfigured as error:
                unreadable.append(f"{code}: {error}")
        self.stdout.write(_("%(count)d tokens encrypted with the first key.") % {"count": rotated})
        if unreadable:
            raise CommandError("\n".join(unreadable))


def rotate(carrier_id: int) -> bool:
    """Encrypt one token anew; False where there is none."""
    carrier = Carrier.objects.filter(pk=carrier_id)
    with transaction.atomic():
        # Locked, so that a token which an operator changes right now is not put back.
        locked = carrier.select_for_update().values_list("gateway_token", flat=True)
        token: Any = locked.first()
        if not isinstance(token, Sealed):
            return False
        carrier.update(gateway_token=token.rotated())
    return True
