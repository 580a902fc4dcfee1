"""What a kind of misbehaviour is, and the list of all."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from carriers.simulator import envelopes
from carriers.simulator.connection import Move


@dataclass(frozen=True, slots=True)
class Exchange:
    """One call as a fault sees it: ``make_envelope`` gives the good answer, and carries out a suspend or resume."""

    operation: str
    iccid: str
    path: str
    host: str
    make_envelope: Callable[[], dict[str, Any]]

    def answer(self) -> bytes:
        """The good answer as bytes."""
        return envelopes.render(self.make_envelope())


Play = Callable[[Exchange], bytes | Iterator[Move]]


@dataclass(frozen=True, slots=True)
class Kind:
    """One named misbehaviour; ``operations`` empty = it can befall every operation."""

    name: str
    meaning: str
    play: Play
    operations: frozenset[str]


KINDS: dict[str, Kind] = {}


def kind(name: str, *, operations: Sequence[str] = ()) -> Callable[[Play], Play]:
    """Register a misbehaviour under a name; its docstring is what ``--help`` says."""

    def register(play: Play) -> Play:
        meaning = (play.__doc__ or "").rstrip(".")
        KINDS[name] = Kind(name, meaning, play, frozenset(operations))
        return play

    return register
