"""Form of the log: one line an event, its facts behind it as ``name=value``."""

import logging

_STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime", "taskName"}
_FOREIGN = frozenset({"request", "server_time", "status_code"})
"""What Django's server adds to each of its records."""


class FactsFormatter(logging.Formatter):
    """Appends what a call to the logger gave as ``extra``."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  the base class's name
        """The line, facts in the order in which they were given."""
        facts = [
            f"{name}={value}"
            for name, value in vars(record).items()
            if name not in _STANDARD and name not in _FOREIGN
        ]
        return " ".join([super().formatMessage(record), *facts])
