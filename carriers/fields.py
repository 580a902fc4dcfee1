"""A text column that is encrypted at rest and never shown.

Keys come from the setting ``FIELD_ENCRYPTION_KEYS``: the first encrypts, all of them decrypt, so a key is rotated by putting
the new one first, running ``manage.py rotate_tokens`` and removing the old one. What was read stays sealed until somebody asks
for the attribute: lists, saves and pages work with a wrong key, and only the use of the secret reports it.
"""

from functools import lru_cache
from typing import Any

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django import forms
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import models
from django.db.models.query_utils import DeferredAttribute
from django.utils.translation import gettext_lazy as _

DUMP_PREFIX = "fernet:"


class SecretUnreadable(ImproperlyConfigured):
    """A stored secret cannot be decrypted with any key of FIELD_ENCRYPTION_KEYS."""

    def __init__(self) -> None:
        super().__init__(
            "A stored secret cannot be decrypted with any key of FIELD_ENCRYPTION_KEYS: "
            "add the key it was encrypted with to that setting, or enter the secret anew."
        )


@lru_cache(maxsize=8)
def _cipher_of(keys: tuple[str, ...]) -> MultiFernet:
    try:
        return MultiFernet([Fernet(key) for key in keys])
    except (ValueError, TypeError):
        # Without the cause: its message may quote the key.
        raise ImproperlyConfigured(
            "FIELD_ENCRYPTION_KEYS must be a list of at least one Fernet key: 32 bytes, url-safe base64."
        ) from None


def cipher() -> MultiFernet:
    """Give the cipher of the present setting; it keeps no state, so threads may share it."""
    keys = getattr(settings, "FIELD_ENCRYPTION_KEYS", ())
    return _cipher_of(tuple(keys))


class Sealed:
    """A secret as it stands in the database; its text appears only when opened."""

    __slots__ = ("ciphertext",)

    def __init__(self, ciphertext: str) -> None:
        self.ciphertext = ciphertext

    def __repr__(self) -> str:
        return "<sealed>"

    def open(self) -> str:
        """Decrypt; raise ``SecretUnreadable`` where no key fits."""
        try:
            return cipher().decrypt(self.ciphertext.encode()).decode()
        except InvalidToken:
            raise SecretUnreadable from None

    def rotated(self) -> "Sealed":
        """Encrypt anew with the first key; raise ``SecretUnreadable`` where no key fits."""
        try:
            return Sealed(cipher().rotate(self.ciphertext.encode()).decode())
        except InvalidToken:
            raise SecretUnreadable from None


class _SealedAttribute(DeferredAttribute):
    """Opens the secret when the attribute is read, so that a secret nobody uses is never decrypted."""

    def __get__(self, instance: models.Model | None, cls: Any = None) -> Any:
        value = super().__get__(instance, cls)
        return value.open() if isinstance(value, Sealed) else value

    def __set__(self, instance: models.Model, value: Any) -> None:
        instance.__dict__[self.field.attname] = value


class SecretInput(forms.PasswordInput):
    """A password box that never carries the stored value."""

    def __init__(self, attrs: dict[str, Any] | None = None) -> None:
        defaults = {"autocomplete": "new-password", "spellcheck": "false", "class": "vTextField"}
        super().__init__(attrs=defaults | (attrs or {}), render_value=False)


class EncryptedTextField(models.TextField):  # type: ignore[type-arg]
    """Text that is encrypted in SQL and in dumps, write-only in forms (empty = keep), and cannot be searched."""

    descriptor_class = _SealedAttribute

    def from_db_value(self, value: str | None, *_args: object) -> Sealed | str | None:
        """Keep what was read sealed."""
        return Sealed(value) if value else value

    def to_python(self, value: Any) -> Any:
        """Accept clear text, and what ``value_to_string`` wrote into a dump."""
        if isinstance(value, str) and value.startswith(DUMP_PREFIX + "gAAAA"):
            return Sealed(value.removeprefix(DUMP_PREFIX))
        return value if isinstance(value, Sealed) else super().to_python(value)

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """Hand on the secret as it is held, so that saving an account needs no key."""
        del add
        return model_instance.__dict__[self.attname]

    def get_prep_value(self, value: Any) -> Any:
        """Encrypt what is new, leave what is sealed."""
        if isinstance(value, Sealed):
            return value.ciphertext
        text = super().get_prep_value(value)
        return cipher().encrypt(text.encode()).decode() if text else text

    def get_lookup(self, lookup_name: str) -> Any:
        """Refuse searches: equal secrets have different ciphertexts, so every comparison would be wrong."""
        return super().get_lookup(lookup_name) if lookup_name == "isnull" else None

    def value_from_object(self, obj: models.Model) -> str:
        """Give forms nothing to show."""
        del obj
        return ""

    def value_to_string(self, obj: models.Model) -> str:
        """Give dumps the ciphertext."""
        value = self.get_prep_value(obj.__dict__[self.attname])
        return DUMP_PREFIX + value if value else ""

    def save_form_data(self, instance: models.Model, data: Any) -> None:
        """Keep the stored secret where the form was left empty."""
        if data:
            setattr(instance, self.name, data)

    def formfield(self, **kwargs: Any) -> Any:
        """Give a password box that is empty and may stay empty."""
        defaults: dict[str, Any] = {
            "widget": SecretInput,
            "required": False,
            "help_text": self.help_text or _("Stored encrypted and never shown. Empty: keep."),
        }
        kwargs.pop("widget", None)
        return super().formfield(**(defaults | kwargs))
