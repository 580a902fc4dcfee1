"""The attempts of one method, written once: a generator that says what it wants next and is stepped by either driver.

It yields ``SlotWanted`` (take a slot; the driver's answer is nothing) and ``HttpRequest`` (carry it; the answer is the
``HttpReply``). What the driver cannot do it throws into the generator. The generator's value is the typed answer.
"""

from collections.abc import Generator
from dataclasses import dataclass
from typing import Any

from cardpolling import clock
from carriers.gateway import adapters
from carriers.gateway import call as calls
from carriers.gateway.accounts import Account
from carriers.gateway.call import Call
from carriers.gateway.errors import Category, GatewayError
from carriers.gateway.exchange import HttpReply, HttpRequest
from carriers.gateway.guard import Guard, SlotWanted

MAX_ATTEMPTS = 2
"""One retry: a kept connection that the gateway closed meanwhile is a failure of ``network`` kind."""

Step = SlotWanted | HttpRequest
Steps = Generator[Step, Any, Any]


@dataclass(frozen=True, slots=True)
class Method:
    """One operation on one card; ``account`` None = found by carrier id or card number."""

    operation: str
    iccid: str
    account: Account | None
    guard: Guard | None
    reason: str = ""
    max_attempts: int = MAX_ATTEMPTS


def run(method: Method) -> Steps:
    """Attempt until there is an answer, no attempt is left, or another cannot help. Raises ``GatewayError``.

    Where a later attempt is refused by the guard, the failure that was really met is what is reported.
    """
    failure: GatewayError | None = None
    attempt = 1
    while True:
        call = _make_call(method, attempt)
        try:
            if method.guard is not None:
                call = yield from method.guard.before_attempt(call, method.account)
        except GatewayError as refusal:
            if failure is None:
                raise
            raise failure from refusal
        try:
            return (yield from _attempt(method, call))
        except GatewayError as error:
            if attempt >= method.max_attempts or not _may_retry(call, error):
                raise
            failure = error
        attempt += 1


def _make_call(method: Method, attempt: int) -> Call:
    carrier_id = calls.current_carrier_id()
    if carrier_id is None and method.account is not None:
        carrier_id = method.account.carrier_id
    source = calls.current_exempt_source()
    return Call(method.operation, method.iccid, carrier_id, source, attempt)


def _attempt(method: Method, call: Call) -> Generator[HttpRequest, HttpReply, Any]:
    """One granted attempt, from request to typed answer; recorded exactly once however it ends."""
    began_s = clock.monotonic()
    caught: BaseException | None = None
    try:
        return (yield from _exchange(method, call))
    except Exception as error:
        caught = _as_gateway_error(error)
        caught.duration = clock.monotonic() - began_s
        if caught is error:
            raise
        raise caught from error
    except BaseException as error:
        caught = error
        raise
    finally:
        if method.guard is not None:
            method.guard.after_attempt(call, caught, clock.monotonic() - began_s)


def _exchange(method: Method, call: Call) -> Generator[HttpRequest, HttpReply, Any]:
    account = method.account
    if method.guard is not None and (account is None or account.carrier_id != call.carrier_id):
        # The account that is charged is the one that is called.
        account = method.guard.account_of(call)
    if account is None:
        raise GatewayError(Category.CONFIG, "no account is named", was_sent=False)
    adapter = adapters.adapter_of(account.provider)
    reply = yield adapter.build(account, call, method.reason)
    return adapter.read(account, call, reply)


def _as_gateway_error(error: Exception) -> GatewayError:
    if isinstance(error, GatewayError):
        return error
    return GatewayError(Category.INTERNAL, f"unexpected {type(error).__name__}")


def _may_retry(call: Call, error: GatewayError) -> bool:
    """Only what failed on the network; and a suspend or resume only if it never left, since it may have been done."""
    is_repeatable = call.operation not in ("suspend", "resume") or not error.was_sent
    return error.category.may_retry and is_repeatable
