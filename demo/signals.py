"""Being told to stop: by Ctrl-C, by ``kill``, or by a terminal that was closed."""

import signal
from types import FrameType

NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class StopSignals:
    """Counts the signals; while ``is_abrupt``, each also raises ``KeyboardInterrupt``, as Python has it for Ctrl-C."""

    def __init__(self) -> None:
        self.times = 0
        self.is_abrupt = True
        for number in NUMBERS:
            signal.signal(number, self._told)

    def is_told(self) -> bool:
        """Whether this process is to stop."""
        return self.times > 0

    def is_told_again(self) -> bool:
        """Whether somebody lost patience."""
        return self.times > 1

    def _told(self, _number: int, _frame: FrameType | None) -> None:
        self.times += 1
        if self.is_abrupt:
            raise KeyboardInterrupt
