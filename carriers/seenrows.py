"""What stood in the earlier rows of a file: kept on disk, so that a file of any length fits into memory."""

import sqlite3
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import NamedTuple, Self


class SeenRow(NamedTuple):
    """A row that was accepted."""

    iccid: str
    number: int
    content: str


class SeenRows:
    """Accepted rows of one file by ICCID, in a private temporary database that is gone when it is closed."""

    def __init__(self) -> None:
        # An empty name is SQLite's anonymous temporary file.
        self._database = sqlite3.connect("", isolation_level=None, check_same_thread=False)
        self._database.execute(
            "CREATE TABLE seen (iccid TEXT PRIMARY KEY, number INTEGER, content TEXT) WITHOUT ROWID"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._database.close()

    def find(self, iccids: Sequence[str]) -> dict[str, SeenRow]:
        """Give those of these ICCIDs that were accepted before; at most a few thousand at a time."""
        marks = ", ".join("?" * len(iccids))
        query = f"SELECT iccid, number, content FROM seen WHERE iccid IN ({marks})"  # noqa: S608 (marks only)
        return {row[0]: SeenRow(*row) for row in self._database.execute(query, iccids)}

    def add(self, rows: Iterable[SeenRow]) -> None:
        """Remember accepted rows."""
        self._database.execute("BEGIN")
        self._database.executemany("INSERT INTO seen VALUES (?, ?, ?)", rows)
        self._database.execute("COMMIT")
