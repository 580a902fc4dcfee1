"""``manage.py polling_check``: request checks of cards."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from cardpolling import triggers
from cardpolling.management import arguments
from cardpolling.management.outages import told_clearly
from cardpolling.triggers import RequestSummary
from carriers.models import Carrier


class Command(BaseCommand):
    """Parse, call, print."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Say which cards, which checks, and what is to be confirmed."""
        parser.description = _(
            "Requests checks of cards. They are made by the workers, as soon as the account's limit allows."
        )
        parser.add_argument("iccids", nargs="+", metavar="ICCID", help=_("a card"))
        parser.add_argument(
            "--types",
            type=arguments.check_types,
            metavar="T,T",
            help=_(
                "check types: card_status, carddata, realname, package (default: all that are polled)"
            ),
        )
        parser.add_argument(
            "--manual",
            action="store_true",
            help=_(
                "without priority: due now in the queue where the card stands, whatever the cooldown"
            ),
        )
        parser.add_argument(
            "--confirm",
            type=arguments.delays_s,
            default=(),
            metavar="S,S",
            help=_(
                "repeat the check after these seconds until the expected result is seen, for example 30,60,300"
            ),
        )
        parser.add_argument(
            "--expect",
            default="",
            metavar="RESULT",
            help=_("the result that ends the confirmation, for example suspended; needs --confirm"),
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Request, and say what became of it."""
        with told_clearly():
            cards = arguments.cards_by_iccid(options["iccids"])
            summary = triggers.request_check_cards(
                cards,
                options["types"],
                manual=options["manual"],
                confirmations_s=options["confirm"],
                expected=options["expect"],
            )
        text = _("%(requested)d cards requested, %(cooldown)d checked just now and left alone.")
        counts = {"requested": summary.requested, "cooldown": summary.in_cooldown}
        self.stdout.write(text % counts)
        self._warn_of_disabled({card.carrier_id for card in cards})
        _refuse_unpolled(summary)

    def _warn_of_disabled(self, carrier_ids: set[int]) -> None:
        codes = Carrier.objects.filter(pk__in=carrier_ids, is_enabled=False).values_list("code")
        for (code,) in codes:
            note = _("Account %s is disabled: its cards are not checked until it is enabled.")
            self.stderr.write(note % code)


def _refuse_unpolled(summary: RequestSummary) -> None:
    if summary.not_polled:
        raise CommandError(
            _("Not under polling, or the configuration polls none of these checks: %s")
            % ", ".join(summary.not_polled)
        )
