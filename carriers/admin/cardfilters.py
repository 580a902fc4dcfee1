"""Filters of the list of cards; each is served by an index."""

from typing import Any

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from carriers.models import Card


class UsageFilter(admin.SimpleListFilter):
    """Cards whose gateway reports less usage than before within one billing cycle."""

    title = _("usage")
    parameter_name = "usage"

    def lookups(self, _request: HttpRequest, _model_admin: Any) -> list[tuple[str, Any]]:
        """Offer the one case that is worth a look."""
        return [("decreased", _("Went down within a cycle"))]

    def queryset(
        self, _request: HttpRequest, queryset: QuerySet[Card, Card]
    ) -> QuerySet[Card, Card] | None:
        """Keep the cards that are flagged."""
        if self.value() == "decreased":
            return queryset.filter(usage_decreased_at__isnull=False)
        return None
