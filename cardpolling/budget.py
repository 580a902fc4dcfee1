"""What an account may start now: in-flight limit, calls per rate-limit group, and whose turn the next slot is. No I/O."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

HORIZON_SLACK_MS = 250

CLAIMS_PER_PLACE = 2
"""As many claims as there are places may wait in RQ: a place that falls free is taken at once and not at the next tick."""


def horizon_ms(dispatch_interval_ms: int) -> int:
    """How far ahead of the limiter cards are claimed.

    Two ticks, since a tick that comes late must not let the limit idle, and some slack for the way through RQ. More would only
    make cards wait in a worker that could wait in their queue, where a priority request still overtakes them.
    """
    return 2 * dispatch_interval_ms + HORIZON_SLACK_MS


def in_flight_limit(
    *, configured: int, places: int, calls_per_s: float | None, lease_ms: int, waiting: int
) -> int:
    """How many claims of an account may be in flight.

    The lesser of what is ``configured`` and what the live workers can take: twice their ``places``, and no more than the limit
    lets them call within half a lease (``calls_per_s`` is None where nothing limits the account), less the cards that already
    wait in its RQ queue, so that jobs which outlived their leases there are not joined by ever more.
    """
    reachable = places * CLAIMS_PER_PLACE
    if calls_per_s is not None:
        reachable = min(reachable, max(1, math.ceil(calls_per_s * lease_ms / 2000)))
    return max(0, min(configured, reachable - waiting))


@dataclass(frozen=True, slots=True)
class Backlog:
    """What is claimed and not yet called, as far as is known: calls owed by the workers, and cards not yet begun."""

    owed: Mapping[str, int]
    cards_not_begun: int


def calls_left(
    free: Mapping[str, int], backlog: Backlog, need: Mapping[str, float]
) -> dict[str, int]:
    """Calls that may be claimed per group: slots ``free`` within the horizon less what is claimed and not yet called.

    ``need`` is how many calls of a group one card makes on average.
    """
    return {
        group: max(
            0,
            slots
            - backlog.owed.get(group, 0)
            - math.ceil(backlog.cards_not_begun * need.get(group, 1.0)),
        )
        for group, slots in free.items()
    }


class PriorityTurns:
    """Gives the priority queue its ratio over time, also where one call has too few slots to divide.

    ``claim.lua`` gives priority ``floor(capacity x ratio)`` slots, at least one; with one slot free per tick that would be
    all of them. So the debt of either queue is kept from call to call, as long as both have more than they are given.
    """

    def __init__(self) -> None:
        self._debt = 0.0

    def quota(self, capacity: int, ratio: float) -> int:
        """How many of ``capacity`` slots the priority queue gets first; all of them where ``ratio`` is 0 (no quota)."""
        if ratio == 0:
            return capacity
        return max(0, min(capacity, round(capacity * ratio + self._debt)))

    def settle(
        self, *, room: int, quota: int, ratio: float, from_priority: int, from_normal: int
    ) -> None:
        """Note what a claim for ``room`` slots really took, when both queues had cards due."""
        total = from_priority + from_normal
        if total == room and from_priority == quota:
            self._debt = max(-1.0, min(1.0, self._debt + total * ratio - from_priority))
        elif quota == 0 and total < room:
            # The normal queue's turn was wasted: its cards do not fit. The priority queue does not wait for the next turn.
            self._debt = 1.0
        else:
            self._debt = 0.0
