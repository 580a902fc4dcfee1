"""What a call came to, and what must hold of it whatever it was."""

from dataclasses import dataclass
from typing import Any

from carriers.gateway import GatewayError

TOKEN = "tok-Geheim-8421"
GRACE_S = 1.0


@dataclass(frozen=True)
class Outcome:
    """An answer or an error, and how long it took."""

    answer: Any
    error: BaseException | None
    elapsed_s: float
    deadline_s: float

    @property
    def category(self) -> str:
        """Category of the error; ``good`` where there is an answer."""
        if self.error is None:
            return "good"
        assert isinstance(self.error, GatewayError), repr(self.error)
        return str(self.error.category)


def assert_clean(outcome: Outcome) -> None:
    """It ended in time, as an answer or as a ``GatewayError``, and the token is nowhere in what may be logged."""
    assert outcome.elapsed_s < outcome.deadline_s + GRACE_S
    assert outcome.error is None or isinstance(outcome.error, GatewayError), repr(outcome.error)
    for error in chain(outcome.error):
        for text in (str(error), repr(error), repr(error.args), repr(vars(error))):
            assert TOKEN not in text


def chain(error: BaseException | None) -> list[BaseException]:
    """The error and all that it was raised from or during."""
    found: list[BaseException] = []
    waiting = [error]
    while waiting:
        error = waiting.pop()
        if error is not None and error not in found:
            found.append(error)
            waiting += [error.__cause__, error.__context__]
    return found
