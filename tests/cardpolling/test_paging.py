"""Long sequences in pages."""

import pytest

from cardpolling.paging import pages


@pytest.mark.parametrize(
    ("number", "sizes"), [(0, []), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3])]
)
def test_pages_hold_everything_once_and_in_order(number, sizes):
    cut = list(pages(range(number), 3))

    assert [len(page) for page in cut] == sizes
    assert [item for page in cut for item in page] == list(range(number))
