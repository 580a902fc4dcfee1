"""What callers did, per account: how many calls, the most in any sliding second, how often a limit was passed."""

from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import floor
from typing import Any

WINDOW_S = 1.0


@dataclass(slots=True)
class SlidingCount:
    """Counts events within a window that slides."""

    window_s: float = WINDOW_S
    most: int = 0
    _times: deque[float] = field(default_factory=deque)

    def count(self, now_s: float) -> int:
        """How many events lie within the window now."""
        times, before = self._times, now_s - self.window_s
        while times and times[0] <= before:
            times.popleft()
        return len(times)

    def add(self, now_s: float) -> None:
        """Count one event."""
        self._times.append(now_s)
        self.most = max(self.most, self.count(now_s))

    def wait_s(self, now_s: float) -> float:
        """Until the oldest event leaves the window."""
        return max(0.0, self._times[0] + self.window_s - now_s) if self._times else 0.0


@dataclass(slots=True)
class Limit:
    """An account's own limit: calls beyond it within the sliding window are violations and are refused.

    Below one call a second the window is longer than a second: 0.5 means one call in two seconds.
    """

    max_per_second: float
    violations: int = 0
    _admitted: SlidingCount = field(init=False)

    def __post_init__(self) -> None:
        self._admitted = SlidingCount(window_s=self._most / self.max_per_second)

    @property
    def _most(self) -> int:
        return max(1, floor(self.max_per_second))

    def admit(self, now_s: float) -> bool:
        """Whether one more call may be served; only calls that were served fill the window."""
        if self._admitted.count(now_s) >= self._most:
            self.violations += 1
            return False
        self._admitted.add(now_s)
        return True

    def retry_after_ms(self, now_s: float) -> int:
        """When a refused caller may come again."""
        return 1 + int(self._admitted.wait_s(now_s) * 1000)


@dataclass(slots=True)
class AccountStatistics:
    """Counts of one account."""

    calls: int = 0
    now_running: int = 0
    most_at_once: int = 0
    overlapping: int = 0
    arrivals: SlidingCount = field(default_factory=SlidingCount)
    operations: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)


@dataclass(slots=True)
class Statistics:
    """Counts of all accounts since the start."""

    limits: Mapping[str, Limit] = field(default_factory=dict)
    accounts: dict[str, AccountStatistics] = field(default_factory=dict)
    _running: Counter[str] = field(default_factory=Counter)

    def begin(self, carrier: str, operation: str, iccid: str, now_s: float) -> AccountStatistics:
        """Count a call that has arrived."""
        account = self.accounts.get(carrier)
        if account is None:
            account = self.accounts[carrier] = AccountStatistics()
        account.calls += 1
        account.operations[operation] += 1
        account.arrivals.add(now_s)
        account.now_running += 1
        account.most_at_once = max(account.most_at_once, account.now_running)
        if self._running[iccid]:
            account.overlapping += 1
        self._running[iccid] += 1
        return account

    def end(self, account: AccountStatistics, iccid: str) -> None:
        """Count the end of a call, however it ended."""
        account.now_running -= 1
        self._running[iccid] -= 1
        if not self._running[iccid]:
            del self._running[iccid]

    def as_json(self) -> dict[str, Any]:
        """The counts as the statistics page shows them."""
        return {"accounts": {code: self._account_json(code) for code in sorted(self.accounts)}}

    def _account_json(self, code: str) -> dict[str, Any]:
        account, limit = self.accounts[code], self.limits.get(code)
        return {
            "calls": account.calls,
            "operations": dict(account.operations),
            "faults": dict(account.faults),
            "most_in_a_second": account.arrivals.most,
            "most_at_once": account.most_at_once,
            "overlapping_calls_of_a_card": account.overlapping,
            "max_per_second": limit.max_per_second if limit else None,
            "violations": limit.violations if limit else 0,
        }
