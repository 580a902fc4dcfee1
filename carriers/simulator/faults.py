"""Which calls go wrong, and how: shares of the calls of all or of single accounts."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field

from django.utils.translation import gettext as _

from carriers.simulator.kinds import KINDS, Kind

# Ten shares of 0.1 add up to a little more than one.
ROUNDING = 1e-9


class FaultSpecError(ValueError):
    """A fault that cannot be set, with the reason in words for the operator."""


@dataclass(frozen=True, slots=True)
class FaultSpec:
    """A share of the calls (of one account, or of all where ``carrier`` is empty) that meets one misbehaviour."""

    kind: str
    share: float
    carrier: str = ""

    @classmethod
    def parse(cls, text: str) -> "FaultSpec":
        """Read ``KIND:SHARE`` or ``KIND:SHARE:CARRIER``."""
        name, colon, rest = text.partition(":")
        share_text, _colon, carrier = rest.partition(":")
        if not colon:
            message = _("%r is not of the form KIND:SHARE or KIND:SHARE:CARRIER")
            raise FaultSpecError(message % text)
        try:
            share = float(share_text)
        except ValueError:
            message = _("share %(share)r of %(kind)s is no number")
            raise FaultSpecError(message % {"share": share_text, "kind": name}) from None
        return cls(name, share, carrier)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            message = _("unknown kind %(kind)r; known are %(known)s")
            raise FaultSpecError(message % {"kind": self.kind, "known": ", ".join(sorted(KINDS))})
        if not 0 <= self.share <= 1:
            message = _("share %(share)g of %(kind)s is not between 0 and 1")
            raise FaultSpecError(message % {"share": self.share, "kind": self.kind})


@dataclass(slots=True)
class FaultPlan:
    """Decides which call meets which fault: the n-th served call of an account meets the same with the same seed."""

    specs: Sequence[FaultSpec]
    seed: int = 0
    _dice: dict[str, random.Random] = field(default_factory=dict)

    def __post_init__(self) -> None:
        carriers = {spec.carrier for spec in self.specs}
        for carrier in carriers:
            total = sum(spec.share for spec in self.specs if spec.carrier in ("", carrier))
            if total > 1 + ROUNDING:
                message = _("the shares for %(accounts)s add up to %(total)g, more than 1")
                accounts = carrier or _("all accounts")
                raise FaultSpecError(message % {"accounts": accounts, "total": total})

    def choose(self, carrier: str, operation: str) -> Kind | None:
        """The misbehaviour that this call meets, if any."""
        if not self.specs:
            return None
        dice = self._dice.get(carrier)
        if dice is None:
            dice = self._dice[carrier] = random.Random(f"{self.seed}:{carrier}")  # noqa: S311 - no secret
        point = dice.random()
        for spec in self.specs:
            chosen = KINDS[spec.kind]
            if spec.carrier not in ("", carrier):
                continue
            if chosen.operations and operation not in chosen.operations:
                continue
            if point < spec.share:
                return chosen
            point -= spec.share
        return None
