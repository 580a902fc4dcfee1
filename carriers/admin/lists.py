"""Lists that may hold a million rows: counted up to a cap, never as a whole."""

from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.admin import ShowFacets
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst

from carriers.pagination import CappedPaginator

M = TypeVar("M", bound=Model)


class LongListAdmin(admin.ModelAdmin[M]):
    """A model with many rows. Ordering is left to what an index gives."""

    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_per_page = 50
    ordering = ("-pk",)

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Call the page what it shows."""
        title = capfirst(str(self.opts.verbose_name_plural))
        return super().changelist_view(request, {"title": title, **(extra_context or {})})


class ReadOnlyAdmin(LongListAdmin[M]):
    """Rows that the product writes and nobody edits."""

    list_display_links = None

    def has_add_permission(self, *_args: Any) -> bool:
        """Nobody adds."""
        return False

    def has_change_permission(self, *_args: Any) -> bool:
        """Nobody changes."""
        return False

    def has_delete_permission(self, *_args: Any) -> bool:
        """Nobody deletes; rows go with their card."""
        return False
