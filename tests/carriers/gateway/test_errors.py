"""What a failed call is told by."""

import pytest

from carriers.gateway.errors import ApplicationError, Category, GatewayError, clean_text


def test_error_that_wraps_an_application_error_speaks_as_that():
    error = GatewayError("provider", application_error=ApplicationError("1002", "card is locked"))

    assert (str(error), error.code) == ("card is locked", "1002")
    assert (error.provider_code, error.provider_message) == ("1002", "card is locked")
    assert error.__cause__ is error.application_error


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({}, "timeout", "timeout"),
        ({"text": "too late"}, "timeout", "too late"),
        ({"provider_code": "77"}, "77", "timeout"),
        ({"provider_message": "no"}, "timeout", "no"),
    ],
)
def test_error_of_our_own_is_told_by_code_and_text(fields, code, text):
    error = GatewayError(Category.TIMEOUT, **fields)

    assert (error.code, str(error)) == (code, text)


def test_unknown_category_is_refused():
    with pytest.raises(ValueError, match="sunspots"):
        GatewayError("sunspots")


def test_message_is_cut_by_characters_and_not_by_bytes():
    error = GatewayError("provider", provider_message="卡" * 600)

    assert error.provider_message == "卡" * 500


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("  a\x00b\x1b[31mc\r\n ", "ab[31mc"),
        ("\u202eevil\u2066", "evil"),
        ("zero\u200bwidth\ufeff", "zerowidth"),
        ("half \ud800 pair", "half  pair"),
        ("停机 é 😀", "停机 é 😀"),
        ("\U000e0041tag", "tag"),
    ],
)
def test_unprintable_characters_are_removed(text, clean):
    assert clean_text(text) == clean


@pytest.mark.parametrize(
    "text",
    ["Bearer sesame-open refused", "ses\x00ame-open", "x" * 495 + "sesame-open", "sesame-open" * 9],
)
def test_secret_is_removed_before_cutting(text):
    clean = clean_text(text, 500, secret="sesame-open")

    assert "sesame-open" not in clean
    assert "sesam" not in clean


def test_cleaned_text_can_be_stored_as_utf8():
    assert clean_text("".join(map(chr, range(0x110000))), 2_000_000).encode().isascii() is False


@pytest.mark.parametrize("category", list(Category))
def test_only_a_network_failure_may_be_tried_again(category):
    assert category.may_retry is (category is Category.NETWORK)


def test_what_a_card_did_not_meet_does_not_count_against_it():
    spared = {category for category in Category if not category.counts_against_card}

    assert spared == {"rate_limited", "provider_rate_limited", "config"}
