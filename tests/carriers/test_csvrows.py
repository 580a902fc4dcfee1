"""Rows of a CSV file that people made."""

import io

from hypothesis import given
from hypothesis import strategies as st

from carriers import csvrows


def rows(data, columns=("iccid", "package")):
    return list(csvrows.read(io.BytesIO(data), columns, required="iccid"))


def test_rows_have_the_number_that_a_spreadsheet_shows():
    found = rows(b"iccid\r\n1\r\n\r\n2\r\n")

    assert [(row.number, row.cells["iccid"]) for row in found] == [(2, "1"), (4, "2")]


def test_columns_that_nobody_asked_for_are_left_out():
    assert rows(b"note,iccid\nx,1\n")[0].cells == {"iccid": "1"}


def test_quoted_cells_may_hold_the_delimiter():
    assert rows(b'iccid,package\n1,"a, b"\n')[0].cells["package"] == "a, b"


def test_a_damaged_line_does_not_change_the_encoding_of_the_others():
    good = "1,套餐\n".encode()

    found = rows(b"iccid,package\n" + good * 3 + b"1,\xff\xfe\n" + good)

    assert [bool(row.fault) for row in found] == [False, False, False, True, False]
    assert found[-1].cells["package"] == "套餐"


def test_a_long_line_is_one_broken_row():
    found = rows(b"iccid\n" + b"1" * (3 * csvrows.LONGEST_LINE) + b"\n2\n")

    assert [(row.number, bool(row.fault)) for row in found] == [(2, True), (3, False)]


@given(st.binary(max_size=300))
def test_any_bytes_end_in_rows_or_in_a_refusal(data):
    found = rows(b"iccid,package\n" + data)

    assert all(row.fault or row.cells.keys() == {"iccid", "package"} for row in found)
