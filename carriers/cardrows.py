"""From the cells of a row to the numbers of a card, in normal form, or the reason why not."""

import re
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from django.utils.translation import gettext as _

from carriers import csvrows
from carriers import iccid as iccids
from carriers.querysets import CardDescription

COLUMNS = ("iccid", "msisdn", "imsi", "package")
LONGEST_MSISDN, LONGEST_IMSI = 20, 15
_LONGEST_QUOTE = 40
_SEPARATORS = re.compile(r"[\s\-().+\u2010-\u2015\u200b\ufeff]+")
_AS_TEXT = re.compile(r'="(.*)"')
_SCIENTIFIC = re.compile(r"\d(?:[.,]\d+)?E\+?\d+", re.ASCII | re.IGNORECASE)


class RowRefused(Exception):
    """A row that is not imported; the message says why."""


class CardRow(NamedTuple):
    """An acceptable row; empty and None = the file does not say."""

    number: int
    iccid: str
    msisdn: str
    imsi: str
    package_id: int | None

    @property
    def description(self) -> CardDescription:
        """The row as it is written."""
        return CardDescription(self.iccid, self.msisdn, self.imsi, self.package_id)

    @property
    def said(self) -> tuple[str, str, int | None]:
        """What the row says about the card."""
        return self.msisdn, self.imsi, self.package_id

    @property
    def content(self) -> str:
        """The same as one text: what a repetition must have in common with the first row."""
        return f"{self.msisdn}/{self.imsi}/{self.package_id or ''}"


@dataclass(frozen=True, slots=True)
class Reader:
    """Reads rows; knows the packages by name, and the one for rows that name none."""

    packages: Mapping[str, int]
    default_package_id: int | None = None

    def read(self, row: csvrows.Row) -> CardRow:
        """Give the card that a row describes; raise ``RowRefused``."""
        if row.fault:
            raise RowRefused(row.fault)
        cells = {name: _text(cell) for name, cell in row.cells.items()}
        return CardRow(
            row.number,
            _iccid(cells["iccid"]),
            _digits("MSISDN", cells.get("msisdn", ""), longest=LONGEST_MSISDN),
            _digits("IMSI", cells.get("imsi", ""), longest=LONGEST_IMSI),
            self._package_id(cells.get("package", "")),
        )

    def _package_id(self, name: str) -> int | None:
        if not name:
            return self.default_package_id
        try:
            return self.packages[name]
        except KeyError:
            raise RowRefused(_("There is no package named %s.") % quoted(name)) from None


def quoted(text: str) -> str:
    """Give what a file said, short and without control characters, fit for a terminal and a page."""
    shown = "".join(c if c.isprintable() else "�" for c in text[:_LONGEST_QUOTE])
    return f"“{shown}…”" if len(text) > _LONGEST_QUOTE else f"“{shown}”"


def _text(cell: str) -> str:
    """Undo what spreadsheets do to keep a long number as text: ``="8986…"`` and ``'8986…``."""
    text = unicodedata.normalize("NFKC", cell).strip()
    as_text = _AS_TEXT.fullmatch(text)
    return (as_text[1] if as_text else text).removeprefix("'").strip()


def _iccid(text: str) -> str:
    iccid = iccids.normalised(text)
    if iccids.is_valid(iccid):
        return iccid
    if not iccid:
        raise RowRefused(_("There is no ICCID."))
    if _SCIENTIFIC.fullmatch(text):
        raise RowRefused(
            _("%s is an ICCID that a spreadsheet has rounded: its digits are lost.") % quoted(text)
        )
    raise RowRefused(
        _("%s is no ICCID: 18 to 20 digits, the last of which may be F.") % quoted(text)
    )


def _digits(label: str, text: str, *, longest: int) -> str:
    digits = _SEPARATORS.sub("", text)
    if digits and not (digits.isascii() and digits.isdecimal() and len(digits) <= longest):
        reason = {"text": quoted(text), "label": label, "longest": longest}
        raise RowRefused(_("%(text)s is no %(label)s: digits only, %(longest)d at most.") % reason)
    return digits
