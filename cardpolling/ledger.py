"""What this process holds and still owes to the gateways, counted per account.

The dispatcher must not claim what nobody could call yet: its budget is what the limiter has left *less what is claimed and not
yet called*. That difference is known only to the processes that hold the claims, so each counts it here and publishes it
with its heartbeat. Approximate by nature (a heartbeat is some 100 ms old): it steers how many cards wait, never the rate,
which the guard alone holds.
"""

import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

LEARNING_RATE = 0.05


@dataclass(frozen=True, slots=True)
class AccountLoad:
    """Load of one account in one process: places held and calls owed per rate-limit group."""

    held: int = 0
    owed: Mapping[str, int] = field(default_factory=dict)


class Ledger:
    """Thread-safe counts; written by the executor's loop, read by the dispatcher and the job loop."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._held: Counter[int] = Counter()
        self._owed: Counter[tuple[int, str]] = Counter()
        self._need: dict[tuple[int, str], float] = {}

    def hold(self, carrier_id: int, cards: int) -> None:
        """Count ``cards`` places as taken by an account."""
        with self._lock:
            self._held[carrier_id] += cards

    def leave(self, carrier_id: int) -> None:
        """Count one place of an account as free again."""
        with self._lock:
            self._held[carrier_id] -= 1
            if self._held[carrier_id] <= 0:
                del self._held[carrier_id]

    def owe(self, carrier_id: int, calls: Mapping[str, int]) -> None:
        """Count the calls that a card just begun will make, and learn how many a card makes on average."""
        with self._lock:
            for group, number in calls.items():
                self._owed[carrier_id, group] += number
                known = self._need.get((carrier_id, group), float(number))
                self._need[carrier_id, group] = known + LEARNING_RATE * (number - known)

    def settle(self, carrier_id: int, group: str, calls: int = 1) -> None:
        """Count calls as made, or as never to be made."""
        with self._lock:
            self._owed[carrier_id, group] -= calls
            if self._owed[carrier_id, group] <= 0:
                del self._owed[carrier_id, group]

    def held(self) -> int:
        """Places taken in this process."""
        with self._lock:
            return sum(self._held.values())

    def held_by(self, carrier_id: int) -> int:
        """Places that one account holds."""
        with self._lock:
            return self._held[carrier_id]

    def need(self, carrier_id: int, group: str) -> float:
        """Calls of a group that one card of the account makes, on average; 1 as long as nothing is known."""
        with self._lock:
            return self._need.get((carrier_id, group), 1.0)

    def loads(self) -> dict[int, AccountLoad]:
        """Copy of all counts, per account that has any."""
        with self._lock:
            owed: dict[int, dict[str, int]] = {}
            for (carrier_id, group), number in self._owed.items():
                owed.setdefault(carrier_id, {})[group] = number
            accounts = set(self._held) | set(owed)
            return {c: AccountLoad(self._held[c], owed.get(c, {})) for c in accounts}
