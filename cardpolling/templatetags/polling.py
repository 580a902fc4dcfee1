"""What the admin's first page shows of the polling engine."""

from typing import Any

from django import template
from django.utils.translation import gettext as _
from redis import RedisError

from cardpolling import connection, status
from cardpolling.status import AccountStatus

register = template.Library()

NOTHING = "–"
_MINUTE_S, _HOUR_S = 60, 3600
_APPS = ("carriers", "cardpolling", "django_rq")
_MODELS = ("Card", "Carrier", "RateLimitGroup", "Package", "CardEvent", "DailyUsage")


@register.filter
def by_use(apps: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Put the applications and their lists in the order in which operators need them, not in that of the alphabet."""
    return [
        {**app, "models": _sorted(app["models"], _MODELS, "object_name")}
        for app in _sorted(apps, _APPS, "app_label")
    ]


def _sorted(items: list[dict[str, Any]], order: tuple[str, ...], name: str) -> list[dict[str, Any]]:
    places = {word: place for place, word in enumerate(order)}
    return sorted(items, key=lambda item: places.get(item[name], len(order)))


@register.inclusion_tag("admin/polling_overview.html")
def polling_overview(user: Any) -> dict[str, Any]:
    """Show accounts and workers to who may see accounts; Redis being away is told and breaks no page."""
    if not user.has_perm("carriers.view_carrier"):
        return {"is_shown": False}
    try:
        now = status.collect(connection.polling_redis())
    except RedisError as error:
        text = _("Redis does not answer (%(kind)s): no card is checked until it is back.")
        return {"is_shown": True, "outage": text % {"kind": type(error).__name__}}
    accounts = [_shown(account) for account in now.accounts]
    return {"is_shown": True, "accounts": accounts, "workers": len(now.workers)}


def _shown(account: AccountStatus) -> dict[str, Any]:
    age_s, use = account.oldest_due_age_s, account.limit_use
    return {
        "status": account,
        "oldest_due": NOTHING if age_s is None else age_in_words(age_s),
        "limit_use": NOTHING if use is None else f"{use:.0%}",
    }


def age_in_words(age_s: float) -> str:
    """Give an age in one unit that suits it."""
    if age_s < _MINUTE_S:
        return _("%d s") % age_s
    if age_s < _HOUR_S:
        return _("%d min") % (age_s // _MINUTE_S)
    return _("%d h") % (age_s // _HOUR_S)
