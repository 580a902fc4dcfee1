"""Pages of lists that may be of any length."""

from functools import cached_property
from typing import Any

from django.core.paginator import Paginator
from django.db.models import QuerySet

MOST_COUNTED = 10_000


class CappedPaginator(Paginator[Any]):
    """Counts no further than ``MOST_COUNTED``: a million rows are searched and filtered, not leafed through."""

    @cached_property
    def count(self) -> int:
        """The number of rows, at most ``MOST_COUNTED``."""
        rows = self.object_list
        if isinstance(rows, QuerySet):
            return rows.order_by()[:MOST_COUNTED].count()
        return min(len(rows), MOST_COUNTED)
