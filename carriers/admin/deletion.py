"""What a deletion takes along, in numbers: the admin's own summary would load and list every row."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from django.contrib.auth import get_permission_codename
from django.db.models import Model, QuerySet
from django.http import HttpRequest
from django.utils.translation import gettext as _

from carriers.pagination import MOST_COUNTED

MOST_NAMED = 20


class Deletion(NamedTuple):
    """What the admin's deletion pages want to know; the names are those of ``ModelAdmin.get_deleted_objects``."""

    to_delete: list[str]
    model_count: dict[str, int | str]
    perms_needed: set[str]
    protected: list[str]


def summary(
    request: HttpRequest,
    objs: QuerySet[Any, Any] | Iterable[Model],
    taken_along: Iterable[QuerySet[Any, Any]],
    *,
    asked: Iterable[type[Model]],
) -> Deletion:
    """Sum up a deletion: the first names, numbers up to a cap, and what of the ``asked`` models the user may not delete."""
    shown = list(objs[: MOST_NAMED + 1] if isinstance(objs, QuerySet) else objs)
    named = [str(obj) for obj in shown[:MOST_NAMED]]
    if len(shown) > MOST_NAMED:
        named.append(_("and more"))
    counts: dict[str, int | str] = {}
    for rows in (objs, *taken_along):
        model = rows.model if isinstance(rows, QuerySet) else type(shown[0])
        number = capped_count(rows) if isinstance(rows, QuerySet) else str(len(shown))
        if number != "0":
            counts[str(model._meta.verbose_name_plural)] = number
    lacking = {model for model in asked if not _may_delete(request, model)}
    return Deletion(named, counts, {str(m._meta.verbose_name) for m in lacking}, [])


def capped_count(rows: QuerySet[Any, Any]) -> str:
    """The number of rows, for people; counted no further than a cap."""
    number = rows.order_by()[: MOST_COUNTED + 1].count()
    if number > MOST_COUNTED:
        return _("more than %(number)d") % {"number": MOST_COUNTED}
    return str(number)


def _may_delete(request: HttpRequest, model: type[Model]) -> bool:
    options = model._meta
    codename = get_permission_codename("delete", options)
    return request.user.has_perm(f"{options.app_label}.{codename}")
