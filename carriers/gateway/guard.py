"""The guard before and after every HTTP attempt: nothing reaches a gateway without it.

Written once for both drivers: ``before_attempt`` is a generator that yields what it wants of the limiter, and the driver,
blocking or not, gets it. A client without a guard neither limits nor counts.
"""

import logging
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import TypeGuard

from cardpolling import clock
from carriers.gateway import call as calls
from carriers.gateway.accounts import Account, AccountDirectory
from carriers.gateway.call import Call
from carriers.gateway.errors import Category, GatewayError
from carriers.gateway.limiter import Limit
from carriers.gateway.statistics import Statistics

logger = logging.getLogger(__name__)

LEAST_COUNTED_WAIT_S = 0.001


@dataclass(frozen=True, slots=True)
class SlotWanted:
    """A slot that the driver is to take for a call; it raises ``GatewayError`` (``rate_limited``) where there is none.

    ``limit`` None = the call is not limited. An exempt call is entered into the record and never waits. ``wait_s`` is what the
    caller set: 0 = refuse at once, None = the client's own rule.
    """

    call: Call
    limit: Limit | None
    is_exempt: bool
    wait_s: float | None


Throttle = Callable[[int, int | None], None]
"""Lowers an account's rate: carrier id and how long (ms) its provider asks to wait."""


class Guard:
    """Takes slots and counts; shared by all clients of a process or loop."""

    def __init__(
        self, directory: AccountDirectory, statistics: Statistics, throttle: Throttle
    ) -> None:
        self._directory = directory
        self._statistics = statistics
        self._throttle = throttle

    def account_of(self, call: Call) -> Account:
        """The account that a call is charged to; raises ``GatewayError`` (``config``): no call is ever unlimited by mistake."""
        try:
            account = self._look_up(call)
        except Exception as error:
            logger.exception("account not looked up")
            text = f"unexpected {type(error).__name__}"
            raise GatewayError(Category.INTERNAL, text, was_sent=False) from None
        if account is None:
            raise GatewayError(Category.CONFIG, "no account is known for this card", was_sent=False)
        return account

    def _look_up(self, call: Call) -> Account | None:
        carrier_id = call.carrier_id
        if carrier_id is None:
            carrier_id = self._directory.resolve(call.iccid)
        return None if carrier_id is None else self._directory.get(carrier_id)

    def before_attempt(
        self, call: Call, account: Account | None = None
    ) -> Generator[SlotWanted, None, Call]:
        """Take a slot; gives the call with the account it is charged to. Raises ``GatewayError``."""
        if account is None or account.carrier_id != call.carrier_id:
            account = self.account_of(call)
            call = replace(call, carrier_id=account.carrier_id)
        group = account.group_of(call.operation)
        limit = None if group is None else (account.carrier_id, group)
        began_s = clock.monotonic()
        try:
            yield SlotWanted(call, limit, call.exempt_source is not None, calls.current_wait_s())
        except GatewayError:
            self._statistics.count_refusal(call)
            raise
        waited_s = clock.monotonic() - began_s
        if waited_s >= LEAST_COUNTED_WAIT_S:
            self._statistics.count_wait(call, waited_s)
        return call

    def after_attempt(self, call: Call, error: BaseException | None, duration_s: float) -> None:
        """Record an attempt that was granted, exactly once; never raises."""
        try:
            self._statistics.count_call(call, error, duration_s)
            if _is_throttled(error) and call.carrier_id is not None:
                self._throttle(call.carrier_id, error.retry_after_ms)
        except Exception:  # what is counted must never change what the call brought
            logger.exception("attempt not recorded")


def _is_throttled(error: BaseException | None) -> TypeGuard[GatewayError]:
    return isinstance(error, GatewayError) and error.category is Category.PROVIDER_RATE_LIMITED
