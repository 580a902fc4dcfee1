"""What the table shows beyond the status: calls a second, and the share of cards checked at least once."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass

from django.db.models import Count
from redis import Redis

from cardpolling import clock, status
from cardpolling.status import AccountStatus, WorkerStatus
from carriers.gateway import statistics
from carriers.models import Card

SPAN_S = 5.0
MINUTE_MS = 60_000


@dataclass(frozen=True, slots=True)
class AccountFigures:
    """One account: its status, calls a second of the last moments, share (0 to 1) of its cards that were checked once."""

    status: AccountStatus
    calls_per_s: float
    checked_share: float


@dataclass(frozen=True, slots=True)
class Figures:
    """All accounts and workers at one moment."""

    accounts: tuple[AccountFigures, ...]
    workers: tuple[WorkerStatus, ...]


class CallRates:
    """Calls a second over the last ``SPAN_S`` seconds, from counts that only grow within their minute."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int], int] = {}
        self._readings: deque[tuple[float, dict[int, int]]] = deque()

    def read(self, counts: Mapping[tuple[int, int], int], *, now_s: float) -> dict[int, float]:
        """Rates by account; ``counts`` are calls by account and minute, as they stand at ``now_s``."""
        self._counts |= counts
        totals: dict[int, int] = {}
        for (carrier_id, _minute), calls in self._counts.items():
            totals[carrier_id] = totals.get(carrier_id, 0) + calls
        self._readings.append((now_s, totals))
        while len(self._readings) > 1 and now_s - self._readings[1][0] >= SPAN_S:
            self._readings.popleft()
        then_s, before = self._readings[0]
        if now_s <= then_s:
            return dict.fromkeys(totals, 0.0)
        return {c: (n - before.get(c, 0)) / (now_s - then_s) for c, n in totals.items()}


class FiguresReader:
    """Reads figures again and again."""

    def __init__(self, client: Redis) -> None:
        self._client = client
        self._rates = CallRates()

    def read(self) -> Figures:
        """Read; raises ``RedisError`` where Redis does not answer, ``DatabaseError`` where the database does not."""
        current = status.collect(self._client)
        carrier_ids = [account.carrier_id for account in current.accounts]
        rates = self._rates.read(
            self._counts(carrier_ids, current.at_ms // MINUTE_MS), now_s=clock.monotonic()
        )
        checked = dict(
            Card.objects.filter(status_checked_at__isnull=False)
            .values_list("carrier")
            .annotate(cards=Count("pk"))
            .order_by()
        )
        return Figures(
            tuple(
                AccountFigures(
                    account,
                    calls_per_s=rates.get(account.carrier_id, 0.0),
                    checked_share=checked.get(account.carrier_id, 0) / max(1, account.cards),
                )
                for account in current.accounts
            ),
            current.workers,
        )

    def _counts(self, carrier_ids: list[int], minute: int) -> dict[tuple[int, int], int]:
        counts: dict[tuple[int, int], int] = {}
        for read_minute in (minute - 1, minute):
            totals = statistics.totals(
                self._client, carrier_ids, first_minute=read_minute, last_minute=read_minute
            )
            counts |= {(c, read_minute): total.calls for c, total in totals.items()}
        return counts
