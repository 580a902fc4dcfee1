"""Pages of lists that may be of any length."""

import pytest

from carriers import pagination
from carriers.models import Card
from carriers.pagination import CappedPaginator


@pytest.mark.parametrize(("cards", "count"), [(0, 0), (2, 2), (5, 3)])
def test_rows_are_counted_up_to_the_cap(carrier, make_card, monkeypatch, cards, count):
    monkeypatch.setattr(pagination, "MOST_COUNTED", 3)
    for _ in range(cards):
        make_card(carrier)

    assert CappedPaginator(Card.objects.order_by("pk"), 2).count == count


def test_a_plain_list_has_pages_too():
    assert CappedPaginator([1, 2, 3], 2).num_pages == 2
