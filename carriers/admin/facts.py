"""Facts of a card as operators read them: the value, how long ago it was seen, and whether it still says anything.

Ages are counted by this host's clock: a page must be readable while Redis, whose clock the engine goes by, is away.
"""

from collections.abc import Mapping
from datetime import datetime, timedelta

from django.utils import timezone
from django.utils.html import format_html
from django.utils.safestring import SafeString
from django.utils.timesince import timesince
from django.utils.translation import gettext as _

from cardpolling import configuration
from cardpolling.checktypes import CheckType
from cardpolling.rules import Rules
from carriers import bytesizes, packages
from carriers.choices import CardStatus, PackageState
from carriers.models import Card

NOTHING = "–"
MISSED_CHECKS = 2
"""A fact is stale when it is older than so many of its intervals."""

_JUST_NOW = timedelta(minutes=1)


def rules_of(card: Card) -> Rules | None:
    """The rules by which a card is polled, None where it is not polled at all; its account is read where it is not at hand."""
    if not card.is_polled or not card.carrier.is_enabled:
        return None
    match = configuration.current().match
    return match(card.carrier_id, card.status, card.realname_verified)


def intervals_of(card: Card) -> Mapping[CheckType, int]:
    """Seconds between two checks of the types that are polled of a card."""
    rules = rules_of(card)
    return rules.intervals_s if rules else {}


def is_stale(checked_at: datetime, interval_s: int | None, now: datetime) -> bool:
    """Tell whether a fact is older than the checks that are due since; one that nobody checks is stale after a day."""
    longest = packages.KNOWN_FOR
    if interval_s is not None:
        longest = timedelta(seconds=MISSED_CHECKS * interval_s)
    return now - checked_at > longest


def age(checked_at: datetime, now: datetime) -> str:
    """How long ago something was, in words."""
    if now - checked_at < _JUST_NOW:
        return _("just now")
    return _("%(age)s ago") % {"age": timesince(checked_at, now, depth=1)}


def moment(at: datetime) -> str:
    """A point in time to the second, the same in every language."""
    return f"{timezone.localtime(at):%Y-%m-%d %H:%M:%S}"


def seen(checked_at: datetime | None, interval_s: int | None) -> SafeString:
    """When a fact was last seen: its age, marked where it is stale; the exact time is the tooltip."""
    if checked_at is None:
        return format_html('<span class="seen seen-never">{}</span>', _("never seen"))
    now = timezone.now()
    words = age(checked_at, now)
    exact = moment(checked_at)
    if is_stale(checked_at, interval_s, now):
        text = _("stale: %(age)s") % {"age": words}
        return format_html('<span class="seen seen-stale" title="{}">{}</span>', exact, text)
    return format_html('<span class="seen" title="{}">{}</span>', exact, words)


def pill(text: object, kind: str) -> SafeString:
    """A word in a coloured frame; the colour only repeats what the word says."""
    return format_html('<span class="pill pill-{}">{}</span>', kind, text)


def status(card: Card) -> SafeString:
    """The status; a word that is none of ours is shown as the gateway sent it."""
    word = pill(card.get_status_display(), card.status)
    if card.status == CardStatus.UNKNOWN and card.raw_status:
        word = format_html("{} “{}”", word, card.raw_status)
    if card.is_online is None:
        return word
    if card.is_online:
        return format_html('{} <span class="online">{}</span>', word, _("online"))
    return format_html('{} <span class="offline">{}</span>', word, _("offline"))


def realname(card: Card) -> SafeString:
    """Whether a person stands behind the card."""
    if card.realname_verified is None:
        return pill(_("Unknown"), "unknown")
    if card.realname_verified:
        return pill(_("Verified"), "good")
    return pill(_("Not verified"), "warning")


def usage(card: Card) -> SafeString:
    """What was used in the billing cycle, of how much."""
    if card.used_bytes is None:
        return format_html("{}", NOTHING)
    text: object = bytesizes.display(card.used_bytes)
    if card.package is not None:
        amounts = {"used": text, "allowance": bytesizes.display(card.package.allowance_bytes)}
        text = _("%(used)s of %(allowance)s") % amounts
    if card.usage_decreased_at is not None:
        return format_html("{} {}", text, pill(_("went down"), "warning"))
    return format_html("{}", text)


_PACKAGE_KINDS = {PackageState.COVERED: "good", PackageState.EXHAUSTED: "warning"}


def package_state(card: Card) -> SafeString:
    """Whether the package still covers the card."""
    kind = _PACKAGE_KINDS.get(PackageState(card.package_state), "unknown")
    return pill(card.get_package_state_display(), kind)
