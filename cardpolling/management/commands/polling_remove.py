"""``manage.py polling_remove``: take cards out of polling."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _

from cardpolling import triggers
from cardpolling.management.arguments import cards_by_iccid
from cardpolling.management.outages import told_clearly


class Command(BaseCommand):
    """Parse, call, print."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Name the cards."""
        parser.description = _(
            "Takes cards out of polling: polling is switched off for them, and they leave the queues. A check that is under way "
            "ends, but the card is not put back. Switch polling on again in the admin."
        )
        parser.add_argument("iccids", nargs="+", metavar="ICCID", help=_("a card"))

    def handle(self, *_args: Any, **options: Any) -> None:
        """Take them out and say how many were under polling."""
        with told_clearly():
            cards = cards_by_iccid(options["iccids"])
            removed = triggers.remove_cards(cards)
        text = _("%(removed)d cards taken out of polling, %(others)d were not under polling.")
        self.stdout.write(text % {"removed": removed, "others": len(cards) - removed})
