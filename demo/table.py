"""The live table: accounts, workers, address and login, last events."""

from collections.abc import Iterable, Mapping

from django.utils.translation import gettext as _
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from demo.figures import AccountFigures, Figures


def screen(
    figures: Figures, *, pids: Mapping[str, int], footer: str, events: Iterable[str]
) -> RenderableType:
    """All that is shown at one moment; ``pids`` are what the supervisor runs, by name."""
    parts: list[RenderableType] = [
        _accounts(figures),
        _workers(figures, {pid: name for name, pid in pids.items()}),
        Text(footer),
    ]
    parts += [Text(event, style="yellow") for event in events]
    return Group(*parts)


def _accounts(figures: Figures) -> Table:
    table = Table(title=_("Accounts"), title_justify="left")
    table.add_column(_("account"))
    for heading in (
        _("calls/s"),
        _("limit/s"),
        _("use"),
        _("cards"),
        _("due now"),
        _("oldest due"),
        _("in flight"),
        _("failed/min"),
        _("checked once"),
    ):
        table.add_column(heading, justify="right")
    for account in figures.accounts:
        table.add_row(*_account_cells(account), style=None if account.status.is_enabled else "dim")
    return table


def _account_cells(account: AccountFigures) -> list[str]:
    status = account.status
    limit, age_s = status.limit_per_second, status.oldest_due_age_s
    return [
        status.code,
        f"{account.calls_per_s:.1f}",
        "–" if limit is None else f"{limit:g}",
        "–" if not limit else f"{account.calls_per_s / limit:.0%}",
        str(status.cards),
        str(status.due_now),
        "–" if age_s is None else f"{age_s:.1f} s",
        str(status.in_flight),
        str(status.failures_last_minute),
        f"{account.checked_share:.0%}",
    ]


def _workers(figures: Figures, names: Mapping[int, str]) -> Table:
    table = Table(
        title=_("Workers"),
        title_justify="left",
        caption=None if figures.workers else _("no worker is running"),
    )
    table.add_column(_("worker"))
    for heading in (_("process"), _("places busy"), _("heartbeat"), _("up")):
        table.add_column(heading, justify="right")
    for worker in figures.workers:
        table.add_row(
            names.get(worker.pid, worker.host),
            str(worker.pid),
            f"{worker.slots_busy}/{worker.slots}",
            f"{worker.heartbeat_age_s:.1f} s",
            f"{worker.up_s:.0f} s",
        )
    return table
