"""The card number."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from stdnum import luhn

from carriers import iccid

DIGITS = st.text("0123456789", min_size=18, max_size=19)


@given(DIGITS)
def test_the_check_digit_is_that_of_luhn(digits):
    assert iccid.check_digit(digits) == luhn.calc_check_digit(digits)
    assert iccid.luhn_holds(digits) == luhn.is_valid(digits)


@given(DIGITS)
def test_a_twin_has_its_number_as_twin(digits):
    assert all(digits in iccid.twins(twin) for twin in iccid.twins(digits))


@given(st.text("0123456789０１９Ff -—\u3000\u200b", max_size=30))
def test_a_normal_form_stays(text):
    assert iccid.normalised(iccid.normalised(text)) == iccid.normalised(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (" 8986 0012-3456\t7890 123f ", "8986001234567890123F"),
        ("８９８６", "8986"),
        ("\ufeff89\u200b86", "8986"),
    ],
)
def test_separators_and_full_width_characters_are_mapped(text, expected):
    assert iccid.normalised(text) == expected


def test_twins_of_a_number_with_a_filler_are_those_without_and_with_the_check_digit():
    assert iccid.twins("8986001234567890123F") == ["8986001234567890123", "89860012345678901238"]


def test_each_spelling_is_a_twin_of_each_other():
    spellings = {"8986001234567890123F", "8986001234567890123", "89860012345678901238"}

    assert all(spellings - {one} <= set(iccid.twins(one)) for one in spellings)
