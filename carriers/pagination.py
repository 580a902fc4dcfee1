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
        return min(self._counted, MOST_COUNTED)

    @property
    def is_capped(self) -> bool:
        """Whether there are more rows than were counted."""
        return self._counted > MOST_COUNTED

    @cached_property
    def _counted(self) -> int:
        """Count to one more than the cap, to know whether there is more."""
        rows = self.object_list
        if isinstance(rows, QuerySet):
            return rows.order_by()[: MOST_COUNTED + 1].count()
        return len(rows)
