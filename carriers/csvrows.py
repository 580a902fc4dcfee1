"""Rows of a CSV file that people made: any of their encodings, broken rows told apart, flat memory.

A row is a line: numbers and names hold no line breaks, so that a quotation mark nobody closed spoils its own row and not the rest of
the file.
"""

import codecs
import csv
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import BinaryIO

from django.utils.translation import gettext as _

LONGEST_LINE = 64 * 1024
_UTF16 = (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
_DELIMITERS = (",", ";", "\t")


class UnusableFile(Exception):
    """The file as a whole cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class Row:
    """One row: its number as a spreadsheet shows it (the header is 1), its cells by column, or why it is broken."""

    number: int
    cells: dict[str, str] = field(default_factory=dict)
    fault: str = ""


def read(file: BinaryIO, columns: Sequence[str], *, required: str) -> Iterator[Row]:
    """Give the rows of a seekable file, of each the named columns that the header has; empty rows are passed over.

    Raises ``UnusableFile``, before the first row, for a file that is no text or whose header lacks the required column.
    """
    encoding = _encoding_of(file)
    file.seek(0)
    lines = _lines(file)
    _number, first = next(lines, (0, b""))
    header, delimiter = _header(_decoded_header(first, encoding), required)
    wanted = {header.index(name): name for name in columns if name in header}
    for number, line in lines:
        if line.strip():
            yield _row(number, line, _Form(encoding, delimiter, len(header), wanted))


@dataclass(frozen=True, slots=True)
class _Form:
    encoding: str
    delimiter: str
    width: int
    wanted: dict[int, str]


def _lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Give numbered lines; of one that is too long only the beginning, so that no line fills the memory."""
    number = 0
    while line := file.readline(LONGEST_LINE + 1):
        number += 1
        end = line
        while not end.endswith(b"\n") and (end := file.readline(LONGEST_LINE + 1)):
            pass
        yield number, line


def _encoding_of(file: BinaryIO) -> str:
    """Tell UTF-8 from GB18030 by which of them more lines are; a line damaged in the middle decides nothing."""
    start = file.read(4)
    file.seek(0)
    if start.startswith(_UTF16):
        raise UnusableFile(_("The file is UTF-16: save it as CSV UTF-8."))
    if start.startswith(codecs.BOM_UTF8):
        return "utf-8-sig"
    balance = 0
    for _number, line in _lines(file):
        if not line.isascii():
            balance += 1 if _is(line, "utf-8") else -_is(line, "gb18030")
    return "utf-8" if balance >= 0 else "gb18030"


def _is(line: bytes, encoding: str) -> bool:
    try:
        line.decode(encoding)
    except UnicodeDecodeError:
        return False
    return True


def _decoded_header(line: bytes, encoding: str) -> str:
    if not line.strip():
        raise UnusableFile(_("The file is empty."))
    try:
        return line.decode(encoding)
    except UnicodeDecodeError:
        raise UnusableFile(_("The file is neither UTF-8 nor GBK text.")) from None


def _header(line: str, required: str) -> tuple[list[str], str]:
    """Give the column names and the delimiter under which the required column is found."""
    for delimiter in _DELIMITERS:
        names = [_name(cell) for cell in _split(line, delimiter) or ()]
        if required in names:
            twice = sorted({name for name in names if name and names.count(name) > 1})
            if twice:
                raise UnusableFile(_("The header names a column twice: %s") % ", ".join(twice))
            return names, delimiter
    raise UnusableFile(_("The first row must name the columns; there is no column %s.") % required)


def _name(cell: str) -> str:
    return unicodedata.normalize("NFKC", cell).strip("\ufeff \t").casefold()


def _split(line: str, delimiter: str) -> list[str] | None:
    try:
        return next(csv.reader([line.rstrip("\r\n")], delimiter=delimiter, strict=True))
    except (csv.Error, StopIteration):
        return None


def _row(number: int, line: bytes, form: _Form) -> Row:
    if len(line) > LONGEST_LINE:
        return Row(number, fault=_("The row is too long."))
    try:
        text = line.decode(form.encoding)
    except UnicodeDecodeError:
        return Row(number, fault=_("The row is not %s text.") % form.encoding)
    cells = _split(text, form.delimiter)
    if cells is None:
        return Row(number, fault=_("The row is broken: check its quotation marks."))
    if len(cells) != form.width and any(_beyond(cells, form.width)):
        count = {"found": len(cells), "expected": form.width}
        return Row(
            number, fault=_("The row has %(found)d columns instead of %(expected)d.") % count
        )
    return Row(number, {name: cells[index] for index, name in form.wanted.items()})


def _beyond(cells: list[str], width: int) -> Iterable[bool]:
    """Tell of what is wrong with a row of another width: cells that lack, or content beyond the header."""
    yield len(cells) < width
    yield any(cell.strip() for cell in cells[width:])
