"""Compares SQL with the polling state and mends the differences; in normal running there are none.

One pass, in batches of flat memory:

1. The cards that SQL wants polled: one that stands in neither queue is enrolled, spread over its interval; one that stands in both
   is taken out of the normal one, one without due hash is enrolled anew, one far ahead is pulled back.
2. Where the queues hold more than that: ghosts (deleted, moved, not polled) are removed.
3. Leftovers of executions: in-flight tokens of disabled accounts or with an absurd expiry, marks of executions that are no more.
4. All keys: claims without expiry are given one, due hashes of cards that stand nowhere and keys of accounts that are no more are
   deleted.

Whoever changes SQL changes Redis a moment later, and executions go on all the while. So what looks wrong is looked at once more
after a pause, and mended by :mod:`cardpolling.mending`, which leaves running executions alone.
"""

import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from redis import Redis

from cardpolling import clock, conf, configuration, crashes, enrolment, mending, planning
from cardpolling.enrolment import PolledCard, Scores
from cardpolling.keys import AccountKeys
from cardpolling.keysweep import KeySweep
from cardpolling.mending import Summary
from cardpolling.paging import pages
from carriers.models import Carrier

logger = logging.getLogger(__name__)

PAGE = 1000
PAUSE_S = 0.5
LONGEST_PAUSES_S = 5.0
SLACK_MS = 60_000
MENDED = "mended"


def reconcile(client: Redis, *, dry_run: bool = False) -> Summary:
    """Compare every account and mend what is wrong; raises ``RedisError`` or ``DatabaseError`` where one is away.

    Two at a time do no harm, but no good either: the caller sees to it that one runs.
    """
    accounts = dict(Carrier.objects.order_by("pk").values_list("pk", "is_enabled"))
    patience = _Patience()
    total = Summary()
    for carrier_id, is_enabled in accounts.items():
        account = _Account(client, AccountKeys(carrier_id), patience, is_dry=dry_run)
        total.add(account.compare(is_enabled=is_enabled))
    total.add(KeySweep(client, accounts, is_dry=dry_run).run())
    if total.total:
        found = {kind: number for kind, number in total.as_dict().items() if number}
        logger.warning("polling state differed from the database: %s", found)
    return total


class _Patience:
    """Gives a change that is under way the time to arrive, but not for ever: a rebuild has many pages to wait for."""

    def __init__(self) -> None:
        self._left_s = LONGEST_PAUSES_S

    def pause(self) -> None:
        """Wait a little, as long as there is patience left."""
        if self._left_s > 0:
            self._left_s -= PAUSE_S
            time.sleep(PAUSE_S)


@dataclass(frozen=True, slots=True)
class _Findings:
    """Queue members that look wrong, each under the first thing that is wrong with it."""

    ghosts: list[str] = field(default_factory=list)
    without_due: list[PolledCard] = field(default_factory=list)
    in_both_queues: list[PolledCard] = field(default_factory=list)
    far_ahead: list[PolledCard] = field(default_factory=list)

    def card_ids(self) -> list[str]:
        """All of them."""
        cards = (*self.without_due, *self.in_both_queues, *self.far_ahead)
        return [*self.ghosts, *(str(card.card_id) for card in cards)]


class _Account:
    """The comparison of one account."""

    def __init__(
        self, client: Redis, keys: AccountKeys, patience: _Patience, *, is_dry: bool
    ) -> None:
        self._client = client
        self._keys = keys
        self._patience = patience
        self._is_dry = is_dry
        self._horizon_ms = clock.now_ms() + longest_wait_ms()
        self._counted: set[str] = set()
        self._summary = Summary()

    def compare(self, *, is_enabled: bool) -> Summary:
        """Compare, mend, and count what was mended among the account's running totals too."""
        members = sum(
            self._check_page(page) for page in enrolment.pages_to_poll(self._keys.carrier_id)
        )
        if (
            self._client.zcard(self._keys.queue) + self._client.zcard(self._keys.priority)
            != members
        ):
            self._check_members()
        self._check_inflight(is_enabled=is_enabled)
        self._check_running()
        self._check_crashes()
        if self._summary.total and not self._is_dry:
            self._client.hincrby(self._keys.counts, MENDED, self._summary.total)
        return self._summary

    def _check_page(self, page: Sequence[PolledCard]) -> int:
        """Check cards that SQL has; give how many queue members that accounts for."""
        polled = {str(card.card_id): card for card in enrolment.under_rules(page)}
        stand = enrolment.standing(self._client, self._keys, list(polled))
        absent = [card for card_id, card in polled.items() if card_id not in stand]
        enrolled = self._enroll(absent) if absent else 0
        hollow = self._without_due(list(stand))
        self._check_suspects([c for c, s in stand.items() if c in hollow or self._is_odd(s)])
        return len(stand) + enrolled

    def _enroll(self, absent: Sequence[PolledCard]) -> int:
        self._patience.pause()
        wanted = enrolment.cards_to_poll([card.card_id for card in absent])
        here = [card for card in wanted if card.carrier_id == self._keys.carrier_id]
        absent = enrolment.missing(self._client, self._keys.carrier_id, enrolment.under_rules(here))
        number = len(absent) if self._is_dry else enrolment.enroll(self._client, absent)
        self._summary.enrolled += number
        return number

    def _check_members(self) -> None:
        """Check what stands in the queues: more than SQL accounts for."""
        for queue in (self._keys.queue, self._keys.priority):
            for members in pages(self._client.zscan_iter(queue, count=PAGE), PAGE):
                found = self._inspect([str(card_id) for card_id, _score in members])
                self._check_suspects(found.card_ids())

    def _check_suspects(self, card_ids: Sequence[str]) -> None:
        if not card_ids:
            return
        self._patience.pause()
        suspects = mending.unclaimed(self._client, self._keys, card_ids)
        if self._is_dry:
            # What is not mended is met again: in the other queue, or because a scan may give a member twice.
            found = self._inspect([card_id for card_id in suspects if card_id not in self._counted])
            self._counted.update(found.card_ids())
            self._count(found)
        else:
            self._mend(self._inspect(suspects))

    def _inspect(self, card_ids: Sequence[str]) -> _Findings:
        """Sort out what is wrong with which of the cards, as Redis and SQL have them now."""
        found = _Findings()
        stand = enrolment.standing(self._client, self._keys, list(dict.fromkeys(card_ids)))
        hollow = self._without_due(list(stand))
        polled = enrolment.members_to_poll(self._keys.carrier_id, stand)
        for card_id, scores in stand.items():
            card = polled.get(card_id)
            if card is None:
                found.ghosts.append(card_id)
            elif card_id in hollow:
                found.without_due.append(card)
            elif None not in scores:
                found.in_both_queues.append(card)
            elif self._is_odd(scores):
                found.far_ahead.append(card)
        return found

    def _is_odd(self, scores: Scores) -> bool:
        """Whether a card stands in both queues, or too far ahead."""
        return None not in scores or max(s for s in scores if s is not None) > self._horizon_ms

    def _without_due(self, card_ids: Sequence[str]) -> set[str]:
        names = [self._keys.due(card_id) for card_id in card_ids]
        # One command for a page; the rest only where it finds something.
        if not names or self._client.exists(*names) == len(names):
            return set()
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.exists(name)
        return {c for c, exists in zip(card_ids, pipe.execute(), strict=True) if not exists}

    def _count(self, found: _Findings) -> None:
        summary = self._summary
        summary.ghosts += len(found.ghosts)
        summary.without_due += len(found.without_due)
        summary.in_both_queues += len(found.in_both_queues)
        summary.far_ahead += len(found.far_ahead)

    def _mend(self, found: _Findings) -> None:
        client, keys, summary = self._client, self._keys, self._summary
        summary.ghosts += mending.remove_ghosts(client, keys, found.ghosts)
        summary.without_due += mending.enroll_anew(client, keys, found.without_due)
        summary.in_both_queues += mending.leave_one_queue(client, keys, found.in_both_queues)
        summary.far_ahead += mending.pull_back(
            client, keys, found.far_ahead, horizon_ms=self._horizon_ms
        )

    def _check_inflight(self, *, is_enabled: bool) -> None:
        """Tokens that no dispatcher will ever sweep: of a disabled account, or with an expiry that no lease could have."""
        now_ms = clock.now_ms()
        tokens = self._tokens(f"({now_ms + 2 * conf.lease_ms() + SLACK_MS}", "+inf")
        if not is_enabled:
            tokens += self._tokens("-inf", str(now_ms))
        if self._is_dry:
            self._summary.inflight += len(tokens)
        elif tokens:
            self._summary.inflight += mending.drop_tokens(self._client, self._keys, tokens)

    def _tokens(self, lowest: str, highest: str) -> list[str]:
        """Tokens of the in-flight set by their expiry; a page at most, the next run goes on."""
        members = self._client.zrangebyscore(self._keys.inflight, lowest, highest, 0, PAGE)
        return [str(token) for token in members]

    def _check_running(self) -> None:
        """Marks of executions whose claim is gone, and which no dispatcher has still to count as crashed."""
        for page in pages(self._client.hscan_iter(self._keys.running, count=PAGE), PAGE):
            pipe = self._client.pipeline(transaction=False)
            for card_id, token in page:
                pipe.get(self._keys.claim(card_id))
                pipe.zscore(self._keys.inflight, token)
            answers = pipe.execute()
            dead = [
                card_id
                for (card_id, token), claim, expiry in zip(
                    page, answers[::2], answers[1::2], strict=True
                )
                if claim != token and expiry is None
            ]
            self._drop_marks(self._keys.running, dead)

    def _check_crashes(self) -> None:
        """Crashes that are too long ago to count."""
        now_ms = clock.now_ms()
        for page in pages(self._client.hscan_iter(self._keys.crashes, count=PAGE), PAGE):
            old = [card_id for card_id, text in page if not crashes.count(text, now_ms)]
            self._drop_marks(self._keys.crashes, old)

    def _drop_marks(self, name: str, card_ids: Sequence[str]) -> None:
        self._summary.marks += len(card_ids)
        if card_ids and not self._is_dry:
            self._client.hdel(name, *card_ids)


def longest_wait_ms() -> int:
    """How far ahead a card's score may lie: the longest interval, back-off or other wait there is, the lease, and some slack."""
    waits_ms = (
        configuration.current().longest_wait_s * 1000,
        planning.LONGEST_RETRY_AFTER_MS,
        planning.CRASH_BACKOFF_CAP_MS,
    )
    return round(max(waits_ms) * (1 + planning.BACKOFF_JITTER)) + conf.lease_ms() + SLACK_MS
