"""Forms of accounts, packages and cards: what people write is brought into the form that is stored, or refused with a reason."""

from typing import Any

from django import forms
from django.core.exceptions import ImproperlyConfigured
from django.forms.models import BaseInlineFormSet
from django.utils.translation import gettext_lazy as _

from carriers import bytesizes
from carriers import iccid as iccids
from carriers.choices import Operation
from carriers.models import Card, Carrier, Package, RateLimitGroup

_AS_WRITTEN = 64


class SizeField(forms.CharField):
    """An amount of data with its unit, such as ``1.5 GB``; gives bytes."""

    def prepare_value(self, value: Any) -> Any:
        """Show stored bytes with the largest unit that is exact."""
        return bytesizes.exact(value) if isinstance(value, int) else value

    def to_python(self, value: Any) -> Any:
        """Read an amount; a number without a unit is bytes."""
        text = super().to_python(value)
        if not text:
            return None
        try:
            return bytesizes.parse(text[:_AS_WRITTEN])
        except ValueError:
            message = _("Enter an amount such as 500 MB or 1.5 GB.")
            raise forms.ValidationError(message, code="invalid") from None

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Compare amounts, not spellings."""
        try:
            return bool(initial != self.to_python(data))
        except forms.ValidationError:
            return True


class NumberField(forms.CharField):
    """A card number, MSISDN or IMSI, with whatever separators people write."""

    def __init__(self, *, longest: int, **kwargs: Any) -> None:
        super().__init__(max_length=_AS_WRITTEN, **kwargs)
        self.longest = longest

    def to_python(self, value: Any) -> Any:
        """Give the number without separators."""
        return iccids.normalised(super().to_python(value) or "").removeprefix("+")

    def validate(self, value: Any) -> None:
        """Refuse a number that is too long for its column."""
        super().validate(value)
        if len(value) > self.longest:
            message = _("At most %(longest)d digits.")
            raise forms.ValidationError(
                message, code="max_length", params={"longest": self.longest}
            )


class CarrierForm(forms.ModelForm[Carrier]):
    """An account; the token is never shown, and stays where the box is left empty."""

    class Meta:
        model = Carrier
        fields = (
            "name",
            "code",
            "provider",
            "gateway_url",
            "gateway_token",
            "is_enabled",
            "max_in_flight",
            "priority_ratio",
        )

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if "gateway_token" in self.fields:
            self._word_token(is_new=self.instance._state.adding)

    def _word_token(self, *, is_new: bool) -> None:
        token = self.fields["gateway_token"]
        token.required = is_new
        if is_new:
            token.help_text = _("Stored encrypted and never shown.")

    def clean(self) -> dict[str, Any] | None:
        """Ask for the token anew where the stored one cannot be read."""
        cleaned = super().clean()
        if not self.instance._state.adding and not self.cleaned_data.get("gateway_token"):
            try:
                _ = self.instance.gateway_token
            except ImproperlyConfigured as error:
                self.add_error("gateway_token", str(error))
        return cleaned


class RateLimitGroupForm(forms.ModelForm[RateLimitGroup]):
    """A limit and the operations that share it."""

    operations = forms.MultipleChoiceField(
        label=_("Operations"),
        choices=Operation.choices,
        widget=forms.CheckboxSelectMultiple,
        required=False,
        help_text=_("An operation in no group is not limited."),
    )

    class Meta:
        model = RateLimitGroup
        fields = ("carrier", "name", "max_per_second", "operations")


class SingleRateLimitGroupForm(RateLimitGroupForm):
    """The same on a page of its own, where the account's other groups are those stored."""

    def clean(self) -> dict[str, Any] | None:
        """Refuse an operation that another group of the account limits already."""
        cleaned = super().clean()
        others = RateLimitGroup.objects.filter(carrier=self.cleaned_data.get("carrier"))
        taken = {name for group in others.exclude(pk=self.instance.pk) for name in group.operations}
        _refuse_twice(self, taken & set(self.cleaned_data.get("operations", ())))
        return cleaned


class RateLimitGroupFormSet(
    BaseInlineFormSet[RateLimitGroup, Carrier, forms.ModelForm[RateLimitGroup]]
):
    """All groups of one account."""

    def clean(self) -> None:
        """Refuse an operation in two groups."""
        super().clean()
        taken: set[str] = set()
        for form in self.forms:
            cleaned = getattr(form, "cleaned_data", {})
            if not cleaned.get("DELETE"):
                operations = set(cleaned.get("operations", ()))
                _refuse_twice(form, taken & operations)
                taken |= operations


def _refuse_twice(form: forms.ModelForm[RateLimitGroup], operations: set[str]) -> None:
    if operations:
        names = ", ".join(str(Operation(name).label) for name in sorted(operations))
        message = _("Already limited by another group of this account: %(names)s")
        form.add_error("operations", forms.ValidationError(message, params={"names": names}))


class PackageForm(forms.ModelForm[Package]):
    """A package; its allowance is written with a unit."""

    allowance_bytes = SizeField(
        label=_("Allowance"),
        help_text=_("Per billing cycle, for example 500 MB or 1.5 GB; 1 GB = 1,024 MB."),
    )

    class Meta:
        model = Package
        fields = ("name", "allowance_bytes", "action")


class CardForm(forms.ModelForm[Card]):
    """A card; numbers may be written with separators."""

    iccid = NumberField(label=_("ICCID"), longest=iccids.LONGEST)
    msisdn = NumberField(label=_("MSISDN"), longest=20, required=False)
    imsi = NumberField(label=_("IMSI"), longest=15, required=False)

    class Meta:
        model = Card
        fields = ("carrier", "iccid", "msisdn", "imsi", "package", "is_polled")

    def clean_iccid(self) -> str:
        """Refuse a card that stands there already, written with or without its check digit."""
        iccid: str = self.cleaned_data["iccid"]
        if "iccid" in self.changed_data:
            twin = Card.objects.filter(iccid__in=iccids.twins(iccid)).first()
            if twin is not None:
                message = _("The same card as %(iccid)s, written with and without its check digit.")
                raise forms.ValidationError(message, params={"iccid": twin.iccid})
        return iccid
