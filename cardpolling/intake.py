"""Takes claims for execution: exec rights, due hashes and cards of a whole batch in a few round trips."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from redis import Redis

from cardpolling import clock, configuration, crashes, state
from cardpolling.configuration import Rules
from cardpolling.due import DueEntry
from cardpolling.keys import AccountKeys
from cardpolling.state import Claim, ExecRight
from cardpolling.steps import facts
from cardpolling.steps.facts import CardFacts
from cardpolling.units import unit_of_work

NOTHING_DUE = DueEntry.decode({})


@dataclass(frozen=True, slots=True)
class ExecRequest:
    """A claim that asks for its exec right, under an executor id unique to this execution."""

    claim: Claim
    executor_id: str


@dataclass(frozen=True, slots=True)
class Begun:
    """What an execution starts from.

    ``card`` is None where the card is gone from this account, or polling is switched off for it. ``rules`` is None where no
    configuration polls it. ``taken_at_s`` is the monotonic time from which the lease counts.
    """

    right: ExecRight
    taken_at_s: float
    entry: DueEntry = NOTHING_DUE
    card: CardFacts | None = None
    rules: Rules | None = None
    crashes: int = 0


def begin(
    client: Redis, requests: Sequence[ExecRequest], *, lease_ms: int
) -> list[Begun | Exception]:
    """Take the exec right of each claim and read what its execution needs; one answer per request, in order.

    Raises ``RedisError`` or ``DatabaseError`` for the batch when Redis or SQL is away: nothing is lost, the leases end.
    """
    taken_at_s = clock.monotonic()
    pairs = [(request.claim, request.executor_id) for request in requests]
    rights = state.acquire_exec_many(client, pairs, ttl_ms=lease_ms)
    taken = [r.claim for r, right in zip(requests, rights, strict=True) if right is ExecRight.TAKEN]
    begun = _read(client, taken, taken_at_s) if taken else {}
    answers: list[Begun | Exception] = []
    for request, right in zip(requests, rights, strict=True):
        if isinstance(right, Exception):
            answers.append(right)
        else:
            answers.append(begun.get(request.claim.token) or Begun(right, taken_at_s))
    return answers


def _read(client: Redis, claims: Sequence[Claim], taken_at_s: float) -> dict[str, Begun]:
    """What each claim's execution starts from, by token."""
    entries, crash_counts = _read_state(client, claims)
    cards = _read_cards(claims)
    config = configuration.current()
    begun = {}
    for claim in claims:
        card = cards.get(claim.card_id)
        if card is not None and card.carrier_id != claim.carrier_id:
            card = None
        rules = None
        if card is not None:
            rules = config.match(card.carrier_id, card.status, card.realname_verified)
        begun[claim.token] = Begun(
            ExecRight.TAKEN,
            taken_at_s,
            entries[claim.token],
            card,
            rules,
            crash_counts[claim.token],
        )
    _mark_running(client, claims, crash_counts)
    return begun


def _read_state(
    client: Redis, claims: Sequence[Claim]
) -> tuple[dict[str, DueEntry], dict[str, int]]:
    """Due entry and number of recent crashes per token, in one round trip."""
    pipe = client.pipeline(transaction=False)
    for claim in claims:
        account = AccountKeys(claim.carrier_id)
        pipe.hgetall(account.due(claim.card_id))
        pipe.hget(account.crashes, claim.card_id)
    replies = pipe.execute()
    now_ms = clock.now_ms()
    entries = {c.token: DueEntry.decode(replies[2 * i]) for i, c in enumerate(claims)}
    counts = {c.token: crashes.count(replies[2 * i + 1], now_ms) for i, c in enumerate(claims)}
    return entries, counts


def _read_cards(claims: Sequence[Claim]) -> dict[str, CardFacts]:
    ids = {int(claim.card_id) for claim in claims if claim.card_id.isdecimal()}
    with unit_of_work():
        return {str(card_id): card for card_id, card in facts.read_polled(ids).items()}


def _mark_running(client: Redis, claims: Sequence[Claim], crash_counts: Mapping[str, int]) -> None:
    """Mark all but the suspects: those are marked when their turn comes (``crashes``)."""
    tokens: dict[int, dict[str, str]] = defaultdict(dict)
    for claim in claims:
        if not crash_counts[claim.token]:
            tokens[claim.carrier_id][claim.card_id] = claim.token
    crashes.mark_running(client, tokens)
