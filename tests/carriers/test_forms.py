"""Forms of accounts, packages and cards."""

import pytest
from django.core.exceptions import ValidationError

from carriers.forms import CardForm, NumberField, PackageForm, SizeField

ICCID = "8986001234567890123"


def test_an_amount_is_read_and_shown_with_its_unit():
    field = SizeField()

    assert field.clean("1.5 GB") == 1_610_612_736
    assert field.prepare_value(1_610_612_736) == "1536 MB"
    assert not field.has_changed(1024, "1 KB")


@pytest.mark.parametrize("text", ["", "much", "-1", "9" * 10_000])
def test_an_amount_that_is_none_is_refused(db, text):
    form = PackageForm({"name": "p", "allowance_bytes": text, "action": "none"})

    assert list(form.errors) == ["allowance_bytes"]


def test_a_number_loses_its_separators():
    assert NumberField(longest=20).clean(" +86 138-0013　8000 ") == "8613800138000"


def test_a_number_too_long_for_its_column_is_refused():
    with pytest.raises(ValidationError, match="At most 15 digits"):
        NumberField(longest=15).clean("1" * 16)


def test_an_edit_of_something_else_does_not_ask_for_twins(carrier, make_card):
    card = make_card(carrier, iccid=ICCID)
    make_card(carrier, iccid=ICCID + "F")
    fields = {"carrier": carrier.pk, "iccid": ICCID, "msisdn": "138"}

    assert CardForm(fields, instance=card).is_valid()
