"""The polling state: one typed function per file in ``lua/``, same name, arguments in the order of its header.

The functions named ``..._many`` run a script for many cards in one pipeline; an answer that is an error stands in its card's
place. No caller ever sees bytes, replies by position or bare numbers. Nothing is decided here, and no SQL is asked.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, TypeVar

from redis import Redis
from redis.client import Pipeline

from cardpolling.checktypes import CheckType
from cardpolling.due import FieldChanges, Guarded
from cardpolling.keys import AccountKeys
from cardpolling.luascript import Arguments, Keys, LuaScript

__all__ = ["Claim", "ClaimBatch", "ExecRight", "FieldChanges", "Guarded"]

LUA = Path(__file__).parent / "lua"
SCAN_LIMIT = 2_000
NOT_POLLED = -1

_claim = LuaScript(LUA / "claim.lua")
_acquire_exec = LuaScript(LUA / "acquire_exec.lua")
_renew = LuaScript(LUA / "renew.lua")
_finish = LuaScript(LUA / "finish.lua")
_request_check = LuaScript(LUA / "request_check.lua")
_remove = LuaScript(LUA / "remove.lua")
_release = LuaScript(LUA / "release.lua")
_enroll = LuaScript(LUA / "enroll.lua")

Answer = TypeVar("Answer")


class ExecRight(IntEnum):
    """What became of a claim's exec right; another number raises ``ValueError``."""

    TAKEN = 1
    LOST = 0
    BUSY = -1


@dataclass(frozen=True, slots=True)
class Claim:
    """A card taken for execution: who, by which token, and whether it came from the priority queue."""

    carrier_id: int
    card_id: str
    token: str
    from_priority: bool = False

    @property
    def keys(self) -> AccountKeys:
        """Key names of the card's account."""
        return AccountKeys(self.carrier_id)


@dataclass(frozen=True, slots=True)
class ClaimBatch:
    """What one claim took, and how many leases it found expired."""

    expired: int
    claims: tuple[Claim, ...]


def claim(  # noqa: PLR0913  the script's arguments
    client: Redis,
    keys: AccountKeys,
    *,
    now_ms: int,
    lease_ms: int,
    limit: int,
    priority_ratio: float,
    token_prefix: str,
    budgets: Mapping[str, int | None],
    groups: Mapping[CheckType, str],
    realname_counts: bool = True,
    scan_limit: int | None = None,
    skip_priority: bool = False,
    queue_key: str | None = None,
) -> ClaimBatch:
    """Take due cards of an account (``lua/claim.lua``).

    ``budgets`` are calls left per rate-limit group, None = not limited. ``skip_priority`` passes an empty key in place of the
    priority queue: the normal queue's turn. ``queue_key`` names a ZSET to claim from in place of the normal queue.
    """
    priority_key = keys.no_priority if skip_priority else keys.priority
    arguments: Arguments = [
        now_ms,
        lease_ms,
        limit,
        priority_ratio,
        token_prefix,
        ";".join(f"{group}={'' if n is None else n}" for group, n in budgets.items()),
        ";".join(f"{check_type}={group}" for check_type, group in groups.items()),
        int(realname_counts),
        keys.card_prefix,
        SCAN_LIMIT if scan_limit is None else scan_limit,
    ]
    answer = _claim.run(client, [priority_key, queue_key or keys.queue, keys.inflight], arguments)
    expired, *taken = answer
    claims = (
        Claim(keys.carrier_id, str(card_id), str(token), from_priority=bool(flag))
        for card_id, token, flag in zip(taken[::3], taken[1::3], taken[2::3], strict=True)
    )
    return ClaimBatch(int(expired), tuple(claims))


def acquire_exec(client: Redis, claim: Claim, *, executor_id: str, ttl_ms: int) -> ExecRight:
    """Take the right to execute a claim (``lua/acquire_exec.lua``)."""
    return ExecRight(_acquire_exec.run(client, *_acquire_call(claim, executor_id, ttl_ms)))


def acquire_exec_many(
    client: Redis, requests: Sequence[tuple[Claim, str]], *, ttl_ms: int
) -> list[ExecRight | Exception]:
    """Take the exec rights of many claims, each under its executor id."""
    calls = [_acquire_call(claim, executor_id, ttl_ms) for claim, executor_id in requests]
    return _many(_acquire_exec, client, calls, ExecRight)


def _acquire_call(claim: Claim, executor_id: str, ttl_ms: int) -> tuple[Keys, Arguments]:
    keys = claim.keys
    return (
        [keys.claim(claim.card_id), keys.exec_right(claim.card_id)],
        [claim.token, executor_id, ttl_ms],
    )


def renew(client: Redis, claim: Claim, *, executor_id: str, lease_ms: int, now_ms: int) -> bool:
    """Extend lease and exec right; False when they are no longer this executor's (``lua/renew.lua``)."""
    return bool(_renew.run(client, *_renew_call(claim, executor_id, lease_ms, now_ms)))


def renew_many(
    client: Redis, held: Sequence[tuple[Claim, str]], *, lease_ms: int, now_ms: int
) -> list[bool | Exception]:
    """Extend the leases and exec rights of many claims, each under its executor id."""
    calls = [_renew_call(claim, executor_id, lease_ms, now_ms) for claim, executor_id in held]
    return _many(_renew, client, calls, bool)


def _renew_call(
    claim: Claim, executor_id: str, lease_ms: int, now_ms: int
) -> tuple[Keys, Arguments]:
    keys, card_id = claim.keys, claim.card_id
    return (
        [
            keys.claim(card_id),
            keys.exec_right(card_id),
            keys.inflight,
            keys.priority,
            keys.queue,
        ],
        [claim.token, executor_id, lease_ms, lease_ms, now_ms, card_id],
    )


def finish(
    client: Redis, claim: Claim, changes: FieldChanges, *, executor_id: str, now_ms: int
) -> bool:
    """Write a result and end its claim; False when the result came late (``lua/finish.lua``)."""
    return bool(_finish.run(client, *_finish_call(claim, executor_id, changes, now_ms)))


def finish_many(
    client: Redis, finished: Sequence[tuple[Claim, str, FieldChanges]], *, now_ms: int
) -> list[bool | Exception]:
    """Write many results and end their claims: claim, executor id and changes of each."""
    calls = [_finish_call(*one, now_ms) for one in finished]
    return _many(_finish, client, calls, bool)


def _finish_call(
    claim: Claim, executor_id: str, changes: FieldChanges, now_ms: int
) -> tuple[Keys, Arguments]:
    keys, card_id = claim.keys, claim.card_id
    pairs = [text for pair in changes.pairs.items() for text in (pair[0], str(pair[1]))]
    return (
        [
            keys.due(card_id),
            keys.claim(card_id),
            keys.exec_right(card_id),
            keys.inflight,
            keys.priority,
            keys.queue,
        ],
        [
            claim.token,
            executor_id,
            card_id,
            now_ms,
            len(changes.pairs),
            *pairs,
            *changes.deletions,
        ],
    )


def request_check(  # noqa: PLR0913  the script's arguments
    client: Redis,
    carrier_id: int,
    card_id: str | int,
    types: Iterable[CheckType],
    *,
    now_ms: int,
    cooldown_ms: int = 0,
    confirmations: Sequence[int] = (),
    expected: str = "",
    to_priority: bool = True,
) -> int:
    """Ask for checks of a card: the number of types requested, 0 = all in cooldown, ``NOT_POLLED`` = in neither queue.

    ``confirmations`` are delays in seconds, ``expected`` the result that ends them (``lua/request_check.lua``).
    """
    (answer,) = request_check_many(
        client,
        [(carrier_id, card_id, types)],
        now_ms=now_ms,
        cooldown_ms=cooldown_ms,
        confirmations=confirmations,
        expected=expected,
        to_priority=to_priority,
    )
    if isinstance(answer, Exception):
        raise answer
    return answer


def request_check_many(  # noqa: PLR0913  the script's arguments
    client: Redis,
    requests: Sequence[tuple[int, str | int, Iterable[CheckType]]],
    *,
    now_ms: int,
    cooldown_ms: int = 0,
    confirmations: Sequence[int] = (),
    expected: str = "",
    to_priority: bool = True,
) -> list[int | Exception]:
    """Ask for checks of many cards: account id, card id and check types of each."""
    delays = ",".join(str(delay_s) for delay_s in confirmations)
    calls: list[tuple[Keys, Arguments]] = []
    for carrier_id, card_id, types in requests:
        keys = AccountKeys(carrier_id)
        arguments = [now_ms, card_id, cooldown_ms, delays, expected, int(to_priority), *types]
        calls.append(
            ([keys.due(card_id), keys.priority, keys.queue, keys.claim(card_id)], arguments)
        )
    return _many(_request_check, client, calls, int)


def remove(client: Redis, carrier_id: int, card_id: str | int) -> bool:
    """Take a card out of polling; whether it stood in a queue (``lua/remove.lua``)."""
    return bool(_remove.run(client, *_remove_call(carrier_id, card_id)))


def remove_many(
    client: Redis, carrier_id: int, card_ids: Iterable[str | int]
) -> list[bool | Exception]:
    """Take many cards of an account out of polling."""
    return _many(_remove, client, [_remove_call(carrier_id, c) for c in card_ids], bool)


def _remove_call(carrier_id: int, card_id: str | int) -> tuple[Keys, Arguments]:
    keys = AccountKeys(carrier_id)
    return [keys.priority, keys.queue, keys.due(card_id)], [card_id]


def release(client: Redis, claim: Claim, *, now_ms: int) -> bool:
    """Give back a claim whose publication failed; False when it is not this claim's any more (``lua/release.lua``)."""
    return bool(_release.run(client, *_release_call(claim, now_ms)))


def release_many(client: Redis, claims: Iterable[Claim], *, now_ms: int) -> list[bool | Exception]:
    """Give back many claims."""
    return _many(_release, client, [_release_call(one, now_ms) for one in claims], bool)


def _release_call(claim: Claim, now_ms: int) -> tuple[Keys, Arguments]:
    keys = claim.keys
    return (
        [keys.claim(claim.card_id), keys.inflight, keys.priority, keys.queue],
        [claim.token, claim.card_id, now_ms],
    )


def enroll(
    client: Redis, carrier_id: int, card_id: str | int, due: Mapping[CheckType, int]
) -> bool:
    """Put a card under polling; False when it stood in a queue already (``lua/enroll.lua``)."""
    return bool(_enroll.run(client, *_enroll_call(carrier_id, card_id, due)))


def enroll_many(
    client: Redis, carrier_id: int, cards: Iterable[tuple[str | int, Mapping[CheckType, int]]]
) -> list[bool | Exception]:
    """Put many cards of an account under polling: card id and due times in ms of each."""
    calls = [_enroll_call(carrier_id, card_id, due) for card_id, due in cards]
    return _many(_enroll, client, calls, bool)


def _enroll_call(
    carrier_id: int, card_id: str | int, due: Mapping[CheckType, int]
) -> tuple[Keys, Arguments]:
    keys = AccountKeys(carrier_id)
    dues = [text for check_type, due_ms in due.items() for text in (str(check_type), due_ms)]
    return [keys.due(card_id), keys.priority, keys.queue], [card_id, carrier_id, *dues]


def read_due_many(
    client: Redis, carrier_id: int, card_ids: Iterable[str | int]
) -> list[dict[str, str]]:
    """The due hashes of many cards of an account, as they stand; empty where there is none."""
    keys = AccountKeys(carrier_id)
    pipe: Pipeline = client.pipeline(transaction=False)
    for card_id in card_ids:
        pipe.hgetall(keys.due(card_id))
    return [
        fields if isinstance(fields, dict) else {} for fields in pipe.execute(raise_on_error=False)
    ]


def queue_scores(
    client: Redis, carrier_id: int, card_ids: Iterable[str | int]
) -> list[tuple[float | None, float | None]]:
    """Where many cards of an account stand: score in the priority queue, score in the normal queue; None = not there."""
    keys = AccountKeys(carrier_id)
    pipe: Pipeline = client.pipeline(transaction=False)
    for card_id in card_ids:
        pipe.zscore(keys.priority, str(card_id))
        pipe.zscore(keys.queue, str(card_id))
    scores: list[Any] = pipe.execute()
    return list(zip(scores[::2], scores[1::2], strict=True))


def _many(
    script: LuaScript,
    client: Redis,
    calls: Sequence[tuple[Keys, Arguments]],
    read: Callable[[Any], Answer],
) -> list[Answer | Exception]:
    answers = script.run_many(client, calls)
    return [answer if isinstance(answer, Exception) else read(answer) for answer in answers]
