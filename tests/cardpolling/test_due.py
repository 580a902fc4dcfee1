"""The due hash: whatever stands in Redis is read, and what cannot be read is harmless."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cardpolling import due
from cardpolling.checktypes import CheckType
from cardpolling.due import DueEntry, FieldChanges, Guarded, TypeState

STATUS, USAGE, REALNAME, PACKAGE = CheckType
NAMES = ("due", "ok", "fail", "ffail", "err", "cfm", "exp", "req")


def test_the_names_of_the_fields():
    functions = [getattr(due, f"{name}_field") for name in NAMES]

    assert [name_of(USAGE) for name_of in functions] == [f"{name}:carddata" for name in NAMES]


def test_all_fields_of_a_type_are_read():
    fields = dict.fromkeys(("due", "ok", "fail", "ffail", "req"))
    fields = {f"{name}:carddata": str(n) for n, name in enumerate(fields)}
    fields |= {"err:carddata": "timeout||late", "cfm:carddata": "30,60", "exp:carddata": "active"}

    assert DueEntry.decode(fields).types[USAGE] == TypeState(
        due="0",
        due_ms=0,
        ok_ms=1,
        failures=2,
        first_failure_ms=3,
        error="timeout||late",
        confirmations=(30, 60),
        expected="active",
        requests=4,
    )


def test_an_empty_hash_says_nothing():
    entry = DueEntry.decode({})

    assert (entry.types, entry.is_priority, entry.carrier) == ({}, False, "")
    assert not entry.has_any_due
    assert entry.due_types(2**53) == []


@pytest.mark.parametrize(("mark", "is_priority"), [("1", True), ("0", False), ("yes", False)])
def test_the_mark_and_the_account_are_read(mark, is_priority):
    entry = DueEntry.decode({"prio": mark, "carrier": "7"})

    assert (entry.is_priority, entry.carrier) == (is_priority, "7")


def test_only_types_of_which_a_field_stands_are_listed():
    entry = DueEntry.decode({"ok:carddata": "5", "due:unknown": "5", "due:": "5"})

    assert list(entry.types) == [USAGE]
    assert not entry.has_any_due


def test_types_come_in_the_order_of_check_types_whatever_the_hash_says():
    fields = {f"due:{check_type}": "1" for check_type in reversed(CheckType)}

    assert DueEntry.decode(fields).due_types(1) == list(CheckType)


@pytest.mark.parametrize(
    ("text", "is_due"),
    [("99", True), ("100", True), ("101", False), (str(2**53 - 1), False)]
    + [(garbage, True) for garbage in ("", "abc", "-5", "1e9", "1.5", " 7", "nan", "１２")]
    + [(str(2**53), True), ("9" * 400, True)],
)
def test_a_due_time_that_is_no_number_is_due_now(text, is_due):
    entry = DueEntry.decode({"due:carddata": text})

    assert entry.has_any_due
    assert entry.due_types(100) == [USAGE] * is_due
    assert entry.types[USAGE].due == text


def test_a_type_without_a_due_field_is_not_due():
    assert DueEntry.decode({"ok:carddata": "5"}).due_types(100) == []


@pytest.mark.parametrize("text", ["", "abc", "-1", "1e3", "1.0", str(2**53), "９"])
def test_counts_and_times_that_are_none_are_harmless(text):
    fields = {f"{name}:carddata": text for name in ("ok", "fail", "ffail", "req")}

    state = DueEntry.decode(fields).types[USAGE]

    assert (state.ok_ms, state.failures, state.first_failure_ms, state.requests) == (
        None,
        0,
        None,
        0,
    )


@pytest.mark.parametrize(
    ("text", "delays"),
    [
        ("", ()),
        ("30", (30,)),
        ("30,60,300", (30, 60, 300)),
        ("30,,x,-5,60", (30, 60)),
        (",", ()),
        ("1e3", ()),
    ],
)
def test_delays_that_are_none_are_left_out(text, delays):
    assert DueEntry.decode({"cfm:carddata": text}).types[USAGE].confirmations == delays


@given(st.dictionaries(st.text() | st.sampled_from([f"{n}:carddata" for n in NAMES]), st.text()))
def test_any_hash_can_be_read(fields):
    entry = DueEntry.decode(fields)

    assert all(check_type in CheckType for check_type in entry.due_types(5))


@pytest.mark.parametrize(
    ("guarded", "text"),
    [
        (Guarded(9000, 3, "100"), "9000|3|100"),
        (Guarded(0, 0, ""), "0|0|"),
        (Guarded(2**53 - 1, 1, "a|b"), f"{2**53 - 1}|1|a|b"),
    ],
)
def test_a_guarded_value_is_written_as_new_seen_requests_and_seen_due(guarded, text):
    assert str(guarded) == text


def test_no_changes_are_none():
    assert FieldChanges() == FieldChanges({}, ())


# Errors


def test_an_error_is_category_code_and_message():
    assert due.error_value("provider", "4012", "card not found") == "provider|4012|card not found"


def test_a_bar_in_the_code_does_not_shift_the_message():
    assert due.error_value("provider", "a|b", "c|d") == "provider|a/b|c|d"


def test_what_cannot_be_printed_becomes_a_space():
    assert due.error_value("http", "500", "a\nb\x00c\u2028d") == "http|500|a b c d"


@pytest.mark.parametrize("character", ["x", "é", "卡", "😀"])
def test_a_long_error_is_cut_between_characters_below_64_bytes(character):
    value = due.error_value("provider", "1", character * 100)

    assert 60 <= len(value.encode()) <= 63
    assert set(value.removeprefix("provider|1|")) == {character}


@given(st.text(), st.text(), st.text())
def test_no_error_is_too_long_or_more_than_one_line(category, code, message):
    value = due.error_value(category, code, message)

    assert len(value.encode()) < 64
    assert len(value.splitlines()) <= 1
