"""From the cells of a row to the numbers of a card."""

import pytest

from carriers.cardrows import CardRow, Reader, RowRefused, quoted
from carriers.csvrows import Row

ICCID = "8986001234567890123"


def read(**cells):
    return Reader({"small": 7}, 1).read(Row(2, {"iccid": ICCID} | cells))


def test_cells_are_brought_into_normal_form():
    row = read(msisdn="+86 (138) 0013-8000", imsi="'460001234567890", package=" small ")

    assert row == CardRow(2, ICCID, "8613800138000", "460001234567890", 7)


def test_a_row_that_names_no_package_gets_the_default():
    assert read().package_id == 1


def test_a_broken_row_is_refused_with_its_fault():
    with pytest.raises(RowRefused, match="torn"):
        Reader({}).read(Row(2, fault="torn"))


def test_what_a_file_said_is_quoted_short_and_printable():
    assert quoted("\x1b[1m" + "x" * 100) == "“�[1m" + "x" * 36 + "…”"
