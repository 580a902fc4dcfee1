"""Cards from a CSV file: new ones are created, known ones completed, doubtful rows refused with a reason.

1. A row is read (``csvrows``) and brought into normal form (``cardrows``); an empty cell says nothing and changes nothing.
2. It is compared with the rows before it (``seenrows``) and with the cards in SQL, under every spelling of its ICCID.
3. Batches are written, each in a transaction of its own, so that lifecycle hears of new cards batch by batch, after the commit.

A second run of the same file changes nothing.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import BinaryIO, NamedTuple

from django.db import IntegrityError, transaction
from django.utils.translation import gettext as _

from carriers import csvrows
from carriers import iccid as iccids
from carriers.cardrows import COLUMNS, CardRow, Reader, RowRefused
from carriers.models import Card, Carrier, Package
from carriers.seenrows import SeenRow, SeenRows

BATCH_ROWS = 2000
_ATTEMPTS = 3


@dataclass(slots=True)
class Counts:
    """How many rows ended how; ``without_check_digit`` counts accepted ones whose last digit is no Luhn digit."""

    created: int = 0
    updated: int = 0
    unchanged: int = 0
    repeated: int = 0
    refused: int = 0
    without_check_digit: int = 0


def import_cards(
    file: BinaryIO,
    carrier: Carrier,
    *,
    on_refused: Callable[[int, str], None],
    on_batch: Callable[[], None] = lambda: None,
    package: Package | None = None,
    is_dry_run: bool = False,
) -> Counts:
    """Import a file's cards into an account; raise ``csvrows.UnusableFile`` for a file that cannot be read at all.

    ``on_refused`` is told the number and the reason of every refused row, ``on_batch`` that a batch has been dealt with. ``package``
    is for rows that name none.
    """
    rows = csvrows.read(file, COLUMNS, required="iccid")
    reader = Reader(
        dict(Package.objects.values_list("name", "pk")), package.pk if package else None
    )
    counts = Counts()
    with SeenRows() as seen:
        while batch := list(islice(rows, BATCH_ROWS)):
            plan = _deal_with(batch, reader, carrier, seen, is_dry_run=is_dry_run)
            seen.add(plan.seen)
            plan.count_into(counts)
            for number, reason in sorted(plan.refused):
                on_refused(number, reason)
            on_batch()
    return counts


class _Known(NamedTuple):
    """A card that stands in SQL."""

    carrier_id: int
    msisdn: str
    imsi: str
    package_id: int | None

    def completes(self, row: CardRow) -> CardRow:
        """Give the row with what it does not say filled in from the card."""
        return row._replace(
            msisdn=row.msisdn or self.msisdn,
            imsi=row.imsi or self.imsi,
            package_id=row.package_id or self.package_id,
        )


@dataclass(slots=True)
class _Plan:
    """What is to be done about a batch."""

    create: list[CardRow] = field(default_factory=list)
    update: list[CardRow] = field(default_factory=list)
    unchanged: int = 0
    repeated: int = 0
    seen: list[SeenRow] = field(default_factory=list)
    refused: list[tuple[int, str]] = field(default_factory=list)

    def count_into(self, counts: Counts) -> None:
        counts.created += len(self.create)
        counts.updated += len(self.update)
        counts.unchanged += self.unchanged
        counts.repeated += self.repeated
        counts.refused += len(self.refused)
        counts.without_check_digit += sum(not iccids.luhn_holds(row.iccid) for row in self.seen)


def _deal_with(
    batch: Sequence[csvrows.Row],
    reader: Reader,
    carrier: Carrier,
    seen: SeenRows,
    *,
    is_dry_run: bool,
) -> _Plan:
    """Judge and write a batch; judge it anew where another writer created one of its cards in between."""
    attempt = 1
    while True:
        plan = _Judge(carrier, seen).judge(batch, reader)
        try:
            if not is_dry_run:
                _write(plan, carrier)
        except IntegrityError:
            if attempt == _ATTEMPTS:
                raise
            attempt += 1
        else:
            return plan


class _Judge:
    """Decides what is to be done about the rows of one batch."""

    def __init__(self, carrier: Carrier, seen: SeenRows) -> None:
        self._carrier = carrier
        self._seen_rows = seen
        self._seen: dict[str, SeenRow] = {}
        self._known: dict[str, _Known] = {}
        self._plan = _Plan()

    def judge(self, batch: Iterable[csvrows.Row], reader: Reader) -> _Plan:
        rows: list[tuple[CardRow, list[str]]] = []
        for raw in batch:
            try:
                row = reader.read(raw)
                rows.append((row, iccids.twins(row.iccid)))
            except RowRefused as refusal:
                self._plan.refused.append((raw.number, str(refusal)))
        numbers = list({number for row, twins in rows for number in (row.iccid, *twins)})
        self._seen = self._seen_rows.find(numbers)
        self._known = _known_cards(numbers)
        for row, twins in rows:
            try:
                self._judge_row(row, twins)
            except RowRefused as refusal:
                self._plan.refused.append((row.number, str(refusal)))
        return self._plan

    def _judge_row(self, row: CardRow, twins: Sequence[str]) -> None:
        if self._is_repetition(row, twins):
            self._plan.repeated += 1
            return
        known = self._known.get(row.iccid)
        if known is None:
            self._refuse_known_twin(twins)
            self._plan.create.append(row)
        elif known.carrier_id != self._carrier.pk:
            raise RowRefused(_("The card belongs to account %s.") % _code_of(known))
        elif (completed := known.completes(row)).said == (
            known.msisdn,
            known.imsi,
            known.package_id,
        ):
            self._plan.unchanged += 1
        else:
            self._plan.update.append(completed)
        accepted = SeenRow(row.iccid, row.number, row.content)
        self._seen[row.iccid] = accepted
        self._plan.seen.append(accepted)

    def _is_repetition(self, row: CardRow, twins: Sequence[str]) -> bool:
        first = self._seen.get(row.iccid)
        if first is not None and first.content != row.content:
            raise RowRefused(_("Row %d says something else about this card.") % first.number)
        for twin in twins if first is None else ():
            if twin in self._seen:
                names = {"iccid": twin, "row": self._seen[twin].number}
                raise RowRefused(
                    _(
                        "The same card as %(iccid)s in row %(row)d, written with and without its check digit."
                    )
                    % names
                )
        return first is not None

    def _refuse_known_twin(self, twins: Sequence[str]) -> None:
        for twin in twins:
            if twin in self._known:
                names = {"iccid": twin, "code": _code_of(self._known[twin])}
                raise RowRefused(
                    _(
                        "The same card as %(iccid)s of account %(code)s, written with and without its check digit."
                    )
                    % names
                )


def _known_cards(numbers: Sequence[str]) -> dict[str, _Known]:
    rows = Card.objects.filter(iccid__in=numbers)
    fields = rows.values_list("iccid", "carrier_id", "msisdn", "imsi", "package_id")
    return {row[0]: _Known(*row[1:]) for row in fields}


def _code_of(known: _Known) -> str:
    return Carrier.objects.values_list("code", flat=True).get(pk=known.carrier_id)


def _write(plan: _Plan, carrier: Carrier) -> None:
    with transaction.atomic():
        Card.objects.create_many(carrier.pk, [row.description for row in plan.create])
        Card.objects.describe_many(carrier.pk, [row.description for row in plan.update])
