"""Names of all keys of the polling state, and nothing else.

All keys of one account share the hash tag ``{c<carrier id>}``, so that an account lives on one node of a Redis Cluster.
``docs/redis.md`` says who writes and who reads each.
"""

from dataclasses import dataclass

WORKERS = "polling:workers"
"""HASH, process id -> heartbeat (JSON) of each worker process."""

RECONCILED = "polling:reconciled"
"""STRING, who reconciled last, with the reconciler's interval as expiry: while it stands nobody reconciles again."""


def rq_queue_name(carrier_id: int) -> str:
    """Name of the RQ queue that carries the claims of one account."""
    return f"polling.card.{carrier_id}"


@dataclass(frozen=True, slots=True)
class AccountKeys:
    """Key names of one account."""

    carrier_id: int

    @property
    def prefix(self) -> str:
        """Prefix with the account's hash tag."""
        return f"polling:{{c{self.carrier_id}}}:"

    @property
    def priority(self) -> str:
        """ZSET, card id -> earliest due in ms: cards to be checked first."""
        return self.prefix + "priority"

    @property
    def queue(self) -> str:
        """ZSET, card id -> earliest due in ms: the normal queue."""
        return self.prefix + "queue"

    @property
    def inflight(self) -> str:
        """ZSET, token -> lease expiry in ms: claims being executed."""
        return self.prefix + "inflight"

    @property
    def dispatch(self) -> str:
        """STRING: dispatch lock, value unique per holder."""
        return self.prefix + "dispatch"

    @property
    def candidates(self) -> str:
        """ZSET, card id -> earliest due in ms, with expiry: cards found behind many blocked ones (``scouting``)."""
        return self.prefix + "candidates"

    @property
    def no_priority(self) -> str:
        """A key that is always empty: passed to claim in place of the priority queue on the normal queue's turn."""
        return self.prefix + "empty"

    @property
    def running(self) -> str:
        """HASH, card id -> token whose steps are running now: tells a crash from a claim that was never begun."""
        return self.prefix + "running"

    @property
    def crashes(self) -> str:
        """HASH, card id -> ``<count>|<first ms>``: claims that expired while their steps were running."""
        return self.prefix + "crashes"

    @property
    def counts(self) -> str:
        """HASH: running totals of what dispatcher and executors did (claimed, published, released, expired, lost, ...)."""
        return self.prefix + "counts"

    @property
    def card_prefix(self) -> str:
        """What ``claim.lua`` derives card keys from."""
        return self.prefix + "card:"

    def due(self, card_id: str | int) -> str:
        """HASH: due times and failure counts of a card."""
        return f"{self.card_prefix}{card_id}:due"

    def claim(self, card_id: str | int) -> str:
        """STRING with PX: token of the card's present claim."""
        return f"{self.card_prefix}{card_id}:claim"

    def exec_right(self, card_id: str | int) -> str:
        """STRING with PX: id of the executor that runs the claim."""
        return f"{self.card_prefix}{card_id}:exec"

    def limit(self, group: str) -> str:
        """ZSET, grant -> its time in us: grants of one rate-limit group, of the last second and those to come."""
        return f"{self.prefix}limit:{group}"

    def free_slots(self, group: str) -> str:
        """ZSET, grant -> its time in us: grants that were given back and may be used by others."""
        return f"{self.prefix}free:{group}"

    @property
    def throttle(self) -> str:
        """STRING with PX: how far the account's rate is lowered after the provider refused calls (``throttle.lua``)."""
        return self.prefix + "throttle"

    def statistics(self, minute: int) -> str:
        """HASH: call statistics of one minute (epoch minutes), kept 48 h."""
        return f"{self.prefix}stats:{minute}"
