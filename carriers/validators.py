"""Validators of what operators type; each says why it refuses."""

from typing import Any
from urllib.parse import urlsplit

from django.core.exceptions import ValidationError
from django.core.validators import RegexValidator
from django.utils.translation import gettext_lazy as _

from carriers import iccid as iccids
from carriers.choices import Operation

# The code is sent as an HTTP header, the group's name stands in "group=calls;group=calls" lists.
validate_code = RegexValidator(
    r"\A[A-Za-z0-9][A-Za-z0-9._-]*\Z", _("Use letters, digits, '.', '_' and '-' only.")
)
validate_digits = RegexValidator(r"\A\d*\Z", _("Use digits only."))


def validate_iccid(value: str) -> None:
    """Refuse what is no card number."""
    if not iccids.is_valid(value):
        raise ValidationError(
            _(
                "An ICCID has 18 to 20 digits, the last of which may be F: this one has %(count)d characters."
            ),
            params={"count": len(value)},
        )


def validate_gateway_url(value: str) -> None:
    """Refuse what is no absolute http(s) URL, and URLs that carry a password or a query."""
    try:
        url = urlsplit(value)
        has_host = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        raise ValidationError(_("This is not a valid URL.")) from None
    if url.scheme not in ("http", "https") or not has_host or not _is_plain(value):
        raise ValidationError(_("Enter a URL such as https://gateway.example.com."))
    if "@" in url.netloc:
        raise ValidationError(_("A URL must not contain a password: use the token."))
    if url.query or url.fragment:
        raise ValidationError(_("A URL must not contain a query or a fragment."))


def _is_plain(text: str) -> bool:
    return text.isprintable() and not any(c.isspace() for c in text)


def validate_operations(value: Any) -> None:
    """Refuse what is no list of distinct, known operations."""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        raise ValidationError(_("Enter a list of operation names."))
    unknown = sorted(set(value) - set(Operation.values))
    if unknown:
        raise ValidationError(
            _("Unknown operations: %(names)s"), params={"names": ", ".join(unknown)}
        )
    if len(set(value)) != len(value):
        raise ValidationError(_("An operation is named twice."))
