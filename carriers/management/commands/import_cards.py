"""Import cards from a CSV file into an account."""

import os
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from django.core.management.base import BaseCommand, CommandError
from django.utils.translation import gettext as _
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn

from carriers.csvrows import UnusableFile
from carriers.imports import Counts, import_cards
from carriers.models import Carrier, Package

SOME_REFUSED, UNUSABLE = 1, 2


class Command(BaseCommand):
    """Create and complete cards from a file; refused rows are listed, all others are imported."""

    help = (
        "Imports cards from a CSV file (UTF-8 or GBK; columns by header name: iccid, msisdn, imsi, package). New cards are created "
        "and polled, known ones completed; an empty cell changes nothing. Refused rows are listed with their number (the header is "
        "row 1) and the reason. Exit code: 0 all rows imported, 1 some refused, 2 file or arguments unusable."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the arguments."""
        parser.add_argument("file", type=Path, metavar="FILE.csv", help="the file")
        parser.add_argument("--carrier", required=True, metavar="CODE", help="code of the account")
        parser.add_argument("--package", metavar="NAME", help="package of rows that name none")
        parser.add_argument("--dry-run", action="store_true", help="judge all rows, write nothing")

    def handle(self, *_args: Any, **options: Any) -> None:
        """Import, list what was refused, and end with the counts."""
        carrier, package = _carrier(options["carrier"]), _package(options["package"])
        path: Path = options["file"]
        try:
            with path.open("rb") as file, _progress(file) as on_batch:
                counts = import_cards(
                    file,
                    carrier,
                    on_refused=self._list_refused,
                    on_batch=on_batch,
                    package=package,
                    is_dry_run=options["dry_run"],
                )
        except (OSError, UnusableFile) as error:
            raise CommandError(f"{path}: {_reason(error)}", returncode=UNUSABLE) from error
        self.stdout.write(_summary(counts, is_dry_run=options["dry_run"]))
        if counts.refused:
            sys.exit(SOME_REFUSED)

    def _list_refused(self, number: int, reason: str) -> None:
        self.stdout.write(
            _("Row %(number)d refused: %(reason)s") % {"number": number, "reason": reason}
        )


def _carrier(code: str) -> Carrier:
    try:
        return Carrier.objects.get(code=code)
    except Carrier.DoesNotExist:
        codes = ", ".join(Carrier.objects.values_list("code", flat=True).order_by("code"))
        names = {"code": code, "codes": codes or "-"}
        message = _("There is no account with the code %(code)s. Known codes: %(codes)s") % names
        raise CommandError(message, returncode=UNUSABLE) from None


def _package(name: str | None) -> Package | None:
    if name is None:
        return None
    try:
        return Package.objects.get(name=name)
    except Package.DoesNotExist:
        message = _("There is no package named %s.") % name
        raise CommandError(message, returncode=UNUSABLE) from None


def _reason(error: Exception) -> str:
    return (error.strerror or "") if isinstance(error, OSError) else str(error)


def _summary(counts: Counts, *, is_dry_run: bool) -> str:
    text = _(
        "%(created)d created, %(updated)d updated, %(unchanged)d unchanged, %(repeated)d repeated, %(refused)d refused."
    ) % {
        "created": counts.created,
        "updated": counts.updated,
        "unchanged": counts.unchanged,
        "repeated": counts.repeated,
        "refused": counts.refused,
    }
    if counts.without_check_digit:
        note = _("%d ICCIDs do not end with a Luhn check digit.") % counts.without_check_digit
        text = f"{text}\n{note}"
    return _("Nothing written (dry run): %s") % text if is_dry_run else text


@contextmanager
def _progress(file: BinaryIO) -> Iterator[Any]:
    """Show on a terminal how much of the file has been read."""
    console = Console(stderr=True)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not console.is_terminal) as progress:
        task = progress.add_task(_("Importing"), total=os.fstat(file.fileno()).st_size)
        yield lambda: progress.update(task, completed=file.tell())
