"""What operators type, refused with a reason."""

import pytest
from django.core.exceptions import ValidationError
from hypothesis import given
from hypothesis import strategies as st

from carriers import validators

SECRET = "hunter2"


@given(st.text().filter(lambda text: not text.lower().startswith("http")))
def test_what_is_no_url_is_refused(text):
    with pytest.raises(ValidationError):
        validators.validate_gateway_url(text)


@pytest.mark.parametrize("tail", ["\n", "\0", " ", "\r\nHost: other", "\u2028"])
def test_a_url_with_control_characters_is_refused(tail):
    with pytest.raises(ValidationError):
        validators.validate_gateway_url(f"http://gateway/{tail}")


def test_a_url_with_a_password_is_refused_without_repeating_it():
    with pytest.raises(ValidationError) as raised:
        validators.validate_gateway_url(f"https://user:{SECRET}@gateway.example.com")

    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("value", [None, "card_status", {"card_status": 1}, [None]])
def test_operations_that_are_no_list_of_names_are_refused(value):
    with pytest.raises(ValidationError, match="list"):
        validators.validate_operations(value)
