"""What a polling configuration says about a card: which checks, how often, within what bounds."""

from collections.abc import Mapping
from dataclasses import dataclass

from cardpolling.checktypes import CheckType


@dataclass(frozen=True, slots=True)
class Rules:
    """The knobs that hold for a card; a check type without an interval is not polled."""

    config_id: int
    name: str
    intervals_s: Mapping[CheckType, int]
    step_order: tuple[CheckType, ...]
    step_timeout_s: float
    total_timeout_s: float
    backoff_base_s: int
    backoff_cap_s: int
    alert_after_failures: int
    cooldown_s: int

    @property
    def polled_types(self) -> tuple[CheckType, ...]:
        """The check types that are polled, in step order."""
        return tuple(t for t in self.step_order if t in self.intervals_s)
