"""``manage.py polling_status``: what is going on, per account and per worker."""

import json
from dataclasses import asdict
from typing import IO, Any, cast

from django.core.management.base import BaseCommand, CommandParser
from django.utils.translation import gettext as _
from rich.console import Console
from rich.table import Table

from cardpolling import connection, status
from cardpolling.management.outages import told_clearly
from cardpolling.status import AccountStatus, Status, WorkerStatus

WIDTH_OF_FILES = 160


class Command(BaseCommand):
    """Parse, call, print."""

    def add_arguments(self, parser: CommandParser) -> None:
        """Choose between a table and JSON."""
        parser.description = _(
            "Shows what is going on: cards, due checks, calls against the limit and lost claims per account; places and heartbeat "
            "per worker."
        )
        parser.add_argument(
            "--json", action="store_true", help=_("print JSON with stable keys instead of tables")
        )

    def handle(self, *_args: Any, **options: Any) -> None:
        """Collect and print."""
        with told_clearly():
            current = status.collect(connection.polling_redis())
        if options["json"]:
            self.stdout.write(json.dumps(asdict(current), indent=2))
            return
        is_shown = self.stdout.isatty()
        console = Console(
            file=cast("IO[str]", self.stdout),
            no_color=options["no_color"],
            # In a file or a pipe nothing is cut off.
            width=None if is_shown else WIDTH_OF_FILES,
        )
        console.print(account_table(current))
        console.print(worker_table(current))


def account_table(current: Status) -> Table:
    """One row per account."""
    table = Table(title=_("Accounts"))
    table.add_column(_("account"))
    for heading in (
        _("cards"),
        _("due now"),
        _("oldest due"),
        _("in flight"),
        _("calls/min"),
        _("failed/min"),
        _("limit/s"),
        _("use"),
        _("expired"),
        _("lost"),
    ):
        table.add_column(heading, justify="right")
    for account in current.accounts:
        table.add_row(*_account_cells(account), style=None if account.is_enabled else "dim")
    return table


def _account_cells(account: AccountStatus) -> list[str]:
    name = account.code if account.is_enabled else _("%s (disabled)") % account.code
    age_s, limit, use = account.oldest_due_age_s, account.limit_per_second, account.limit_use
    return [
        name,
        str(account.cards),
        str(account.due_now),
        "–" if age_s is None else f"{age_s:.1f} s",
        str(account.in_flight),
        str(account.calls_last_minute),
        str(account.failures_last_minute),
        "–" if limit is None else f"{limit:g}",
        "–" if use is None else f"{use:.0%}",
        str(account.expired),
        str(account.lost_claims),
    ]


def worker_table(current: Status) -> Table:
    """One row per worker process."""
    table = Table(
        title=_("Workers"), caption=None if current.workers else _("no worker is running")
    )
    table.add_column(_("host"))
    for heading in (_("process"), _("places busy"), _("heartbeat"), _("up")):
        table.add_column(heading, justify="right")
    table.add_column(_("claims nothing because"))
    for worker in current.workers:
        table.add_row(*_worker_cells(worker))
    return table


def _worker_cells(worker: WorkerStatus) -> list[str]:
    return [
        worker.host,
        str(worker.pid),
        f"{worker.slots_busy}/{worker.slots}",
        f"{worker.heartbeat_age_s:.1f} s",
        f"{worker.up_s:.0f} s",
        worker.refusal,
    ]
