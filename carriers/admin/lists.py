"""The admin's lists: called by what they show; those of a million rows are counted up to a cap, never as a whole."""

from typing import Any, TypeVar

from django.contrib import admin
from django.contrib.admin import ShowFacets
from django.db.models import Model
from django.http import HttpRequest, HttpResponse
from django.utils.text import capfirst

from carriers.pagination import CappedPaginator

M = TypeVar("M", bound=Model)


class NamedListAdmin(admin.ModelAdmin[M]):
    """A model whose list is called by what it shows."""

    def changelist_view(
        self, request: HttpRequest, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Set the title."""
        title = capfirst(str(self.opts.verbose_name_plural))
        return super().changelist_view(request, {"title": title, **(extra_context or {})})


class LongListAdmin(NamedListAdmin[M]):
    """A model with many rows. Ordering is left to what an index gives."""

    paginator = CappedPaginator
    show_full_result_count = False
    show_facets = ShowFacets.NEVER
    list_per_page = 50
    ordering = ("-pk",)


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
