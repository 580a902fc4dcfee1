"""A Lua file, loaded once and run by EVALSHA; knows nothing of any script.

Nothing but a script that the server does not know (NOSCRIPT) or could not begin (BUSY) is sent again: those two say that
nothing has run. After a lost reply nobody knows, so the caller is told.
"""

import hashlib
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from redis import Redis
from redis.exceptions import NoScriptError, RedisError, ResponseError

BUSY_TRIES = 5
BUSY_PAUSE_S = 0.02

Keys = Sequence[str]
Arguments = Sequence[str | int | float]


class LuaScript:
    """One script; the client is passed with every call and never kept."""

    def __init__(self, path: Path) -> None:
        self._text = path.read_text(encoding="utf-8")
        self._digest = hashlib.sha1(self._text.encode(), usedforsecurity=False).hexdigest()

    def run(self, client: Redis, keys: Keys, arguments: Arguments) -> Any:
        """Run the script once and give its answer; raises ``RedisError``."""
        for _ in range(BUSY_TRIES):
            try:
                return self._run(client, keys, arguments)
            except ResponseError as error:
                if not _is_busy(error):
                    raise
                time.sleep(BUSY_PAUSE_S)
        return self._run(client, keys, arguments)

    def run_many(self, client: Redis, calls: Sequence[tuple[Keys, Arguments]]) -> list[Any]:
        """Run the script once per call in one pipeline; an answer that is an error is given in its place.

        Raises ``RedisError`` when the connection breaks: nobody knows then which of the calls have run.
        """
        if not calls:
            return []
        pipe = client.pipeline(transaction=False)
        for keys, arguments in calls:
            pipe.evalsha(self._digest, len(keys), *keys, *arguments)
        answers = pipe.execute(raise_on_error=False)
        for i, answer in enumerate(answers):
            if isinstance(answer, NoScriptError) or _is_busy(answer):
                try:
                    answers[i] = self.run(client, *calls[i])
                except ResponseError as error:
                    answers[i] = error
        return list(answers)

    def _run(self, client: Redis, keys: Keys, arguments: Arguments) -> Any:
        try:
            return client.evalsha(self._digest, len(keys), *keys, *arguments)
        except NoScriptError:
            return client.eval(self._text, len(keys), *keys, *arguments)


def _is_busy(answer: object) -> bool:
    return isinstance(answer, RedisError) and str(answer).startswith("BUSY")
