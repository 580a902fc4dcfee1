"""``manage.py polling_reconcile``: compare the database with the polling state and mend the differences."""

from typing import Any

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from cardpolling import connection, reconciler
from cardpolling.management.outages import told_clearly

LABELS = {
    "enrolled": gettext_lazy("cards missing from the queues, enrolled"),
    "ghosts": gettext_lazy("cards in queues that are not to be polled there, removed"),
    "in_both_queues": gettext_lazy("cards in both queues, taken out of one"),
    "without_due": gettext_lazy("cards in queues without due times, enrolled anew"),
    "far_ahead": gettext_lazy("cards due too far ahead, pulled back"),
    "inflight": gettext_lazy("in-flight tokens left over, dropped"),
    "marks": gettext_lazy("marks of executions left over, dropped"),
    "without_expiry": gettext_lazy("claims without expiry, given one"),
    "orphans": gettext_lazy("due times of cards in no queue, deleted"),
    "dead_keys": gettext_lazy("keys of accounts that are no more, deleted"),
}


class Command(BaseCommand):
    """Parse, call, print."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Say whether to write."""
        parser.description = _(
            "Compares the database with the polling state in Redis and mends the differences; the workers do the same every few "
            "minutes. Rebuilds everything where Redis was emptied."
        )
        parser.add_argument(
            "--dry-run", action="store_true", help=_("say what differs, write nothing")
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Compare, and list what was found."""
        with told_clearly():
            summary = reconciler.reconcile(connection.polling_redis(), dry_run=options["dry_run"])
        for kind, number in summary.as_dict().items():
            if number:
                self.stdout.write(f"{LABELS[kind]}: {number}")
        text = _("%d differences found.") if options["dry_run"] else _("%d differences mended.")
        self.stdout.write(text % summary.total)
