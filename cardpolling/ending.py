"""Ends executions, many in one go: what was found to SQL, and only then the claim's end to Redis."""

from collections.abc import Sequence
from dataclasses import dataclass

from django.db import DatabaseError
from redis import Redis, RedisError

from cardpolling import completion, recording
from cardpolling.completion import Completion
from cardpolling.recording import Recording


@dataclass(slots=True)
class Ending:
    """One execution that is to end; whoever asks for it again after an error passes the same object.

    ``recording`` is what goes to SQL first, None where nothing was found. ``is_recorded`` and ``is_refused`` (the database takes
    this result never) are set here.
    """

    completion: Completion
    recording: Recording | None = None
    is_recorded: bool = False
    is_refused: bool = False


def end(client: Redis, endings: Sequence[Ending]) -> list[bool | Exception]:
    """Record and complete; per ending and in order whether it came in time, or the exception that kept it from ending.

    A database that is away (``DatabaseError``) keeps only those from ending that have something to record; a Redis that is away
    (``RedisError``) keeps all, and what was recorded is not recorded again. Raises nothing.
    """
    outage = _record([e for e in endings if e.recording is not None and not e.is_recorded])
    ready = [e for e in endings if e.recording is None or e.is_recorded]
    answers: dict[int, bool | Exception] = {}
    try:
        completed = completion.complete(client, [e.completion for e in ready]) if ready else []
        answers = {id(e): answer for e, answer in zip(ready, completed, strict=True)}
    except RedisError as error:
        answers = {id(e): error for e in ready}
    if outage is not None:
        answers |= {id(e): outage for e in endings if id(e) not in answers}
    return [answers[id(e)] for e in endings]


def _record(endings: Sequence[Ending]) -> DatabaseError | None:
    """Bring to SQL what is new; the error where the database is away."""
    if not endings:
        return None
    try:
        answers = recording.save([e.recording for e in endings if e.recording is not None])
    except DatabaseError as error:
        return error
    for ending, answer in zip(endings, answers, strict=True):
        ending.is_recorded, ending.is_refused = True, answer is not None
    return None
