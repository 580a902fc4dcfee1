"""The admin of packages."""

from typing import Any

from django.contrib import admin
from django.http import HttpRequest
from django.utils.translation import gettext_lazy as _

from carriers import bytesizes
from carriers.admin.lists import NamedListAdmin
from carriers.forms import PackageForm
from carriers.models import Package


@admin.register(Package)
class PackageAdmin(NamedListAdmin[Package]):
    """Packages; their allowance is written and shown with a unit."""

    form = PackageForm
    list_display = ("name", "allowance", "action")
    list_filter = ("action",)
    search_fields = ("name",)

    @admin.display(description=_("allowance"), ordering="allowance_bytes")
    def allowance(self, package: Package) -> str:
        """Show bytes with a unit."""
        return bytesizes.display(package.allowance_bytes)

    def get_fields(self, request: HttpRequest, obj: Package | None = None) -> Any:
        """Who may only look sees the allowance as text."""
        may_write = self._may_write(request, obj)
        return ("name", "allowance_bytes" if may_write else "allowance", "action")

    def get_readonly_fields(self, request: HttpRequest, obj: Package | None = None) -> Any:
        """Say that the text is no field."""
        return () if self._may_write(request, obj) else ("name", "allowance", "action")

    def _may_write(self, request: HttpRequest, obj: Package | None) -> bool:
        if obj is None:
            return self.has_add_permission(request)
        return self.has_change_permission(request, obj)
