"""The attempts of one method, stepped by hand: what is asked for, tried again, reported and counted."""

import asyncio
import json
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from cardpolling import clock
from carriers.gateway import attempts, statistics, with_rate_limit_exempt, with_rate_limit_wait
from carriers.gateway.accounts import AccountDirectory, Group
from carriers.gateway.answers import RealnameAnswer
from carriers.gateway.attempts import Method
from carriers.gateway.errors import Category, GatewayError
from carriers.gateway.exchange import HttpReply, HttpRequest
from carriers.gateway.guard import Guard, SlotWanted
from carriers.gateway.slots import refusal
from carriers.gateway.statistics import MINUTE_MS, Statistics
from tests.carriers.gateway.conftest import CARRIER_ID, ICCID

QUERY = Group("query", 5.0, ("realname",))
NOW_MS = 1_764_547_230_000
GRANTED = None


def reply(data=None, **envelope):
    body = json.dumps({"code": 0, "message": "", "data": data, **envelope}).encode()
    return HttpReply(200, body)


GOOD = reply({"verified": True, "accepted": True})


def broken(was_sent=True):
    return GatewayError(Category.NETWORK, "connection broken", was_sent=was_sent)


@dataclass
class Run:
    """What a method asked for, and what it came to."""

    steps: list[Any] = field(default_factory=list)
    answer: Any = None
    error: BaseException | None = None

    @property
    def slots(self):
        return [step for step in self.steps if isinstance(step, SlotWanted)]

    @property
    def requests(self):
        return [step for step in self.steps if isinstance(step, HttpRequest)]


def drive(method, *script):
    """Step a method: each entry answers one step, or is thrown, or is waited for (seconds) before the next."""
    run, steps = Run(), attempts.run(method)
    try:
        run.steps.append(next(steps))
        for entry in script:
            if isinstance(entry, float):
                time.sleep(entry)
            elif isinstance(entry, BaseException):
                run.steps.append(steps.throw(entry))
            else:
                run.steps.append(steps.send(entry))
    except StopIteration as end:
        run.answer = end.value
    except BaseException as raised:  # noqa: BLE001  the test judges it
        run.error = raised
    finally:
        steps.close()
    return run


@pytest.fixture
def counted():
    """What the guard counts with."""
    return Statistics()


@pytest.fixture
def throttled():
    """Whose rate the guard lowered."""
    return []


@pytest.fixture
def method(make_account, counted, throttled):
    """Make a method of a guarded client."""
    guard = Guard(AccountDirectory(), counted, lambda *told: throttled.append(told))

    def make(operation="realname", **fields):
        usual = {"account": make_account(groups=(QUERY,)), "guard": guard, "reason": "test"}
        return Method(operation, ICCID, **(usual | fields))

    return make


@pytest.fixture
def numbers(client, counted):
    """Give how often each outcome was counted."""
    with clock.frozen(NOW_MS):

        def read():
            counted.flush(client)
            minute = NOW_MS // MINUTE_MS
            span = {"first_minute": minute, "last_minute": minute}
            found = statistics.read(client, [CARRIER_ID], **span)[CARRIER_ID]
            return {name[:-2]: n for name, n in found.items() if name.endswith("|n")}

        yield read


def test_a_slot_then_an_exchange_then_the_answer(method, numbers):
    run = drive(method(), GRANTED, GOOD)

    assert [type(step) for step in run.steps] == [SlotWanted, HttpRequest]
    assert run.answer == RealnameAnswer(verified=True, verified_at=None)
    assert numbers() == {"realname|success": 1}


def test_slot_is_that_of_the_account_and_its_group(method):
    slot = drive(method(), GRANTED).slots[0]

    assert slot.limit == (CARRIER_ID, QUERY)
    assert (slot.call.operation, slot.call.iccid) == ("realname", ICCID)
    assert (slot.call.carrier_id, slot.call.attempt) == (CARRIER_ID, 1)


def test_operation_of_no_group_passes_the_guard_too(method, numbers):
    run = drive(method("suspend"), GRANTED, GOOD)

    assert [slot.limit for slot in run.slots] == [None]
    assert numbers() == {"suspend|success": 1}


def test_slot_carries_what_the_caller_set(method):
    with with_rate_limit_exempt("renewal"), with_rate_limit_wait(4):
        slot = drive(method()).slots[0]
    plain = drive(method()).slots[0]

    assert (slot.is_exempt, slot.call.exempt_source, slot.wait_s) == (True, "renewal", 4)
    assert (plain.is_exempt, plain.call.exempt_source, plain.wait_s) == (False, None, None)


def test_without_a_guard_no_slot_is_asked_for(method):
    run = drive(method(guard=None), GOOD)

    assert [type(step) for step in run.steps] == [HttpRequest]
    assert run.answer.verified


@pytest.mark.parametrize("category", list(Category))
@pytest.mark.parametrize("operation", ["realname", "suspend", "resume"])
@pytest.mark.parametrize("was_sent", [True, False], ids=["sent", "unsent"])
def test_only_a_network_failure_of_what_may_be_repeated_is_tried_again(
    method, numbers, category, operation, was_sent
):
    failure = GatewayError(category, was_sent=was_sent)

    run = drive(method(operation), GRANTED, failure, GRANTED, GOOD)

    is_repeatable = operation == "realname" or not was_sent
    if category is Category.NETWORK and is_repeatable:
        assert run.error is None
        assert numbers() == {f"{operation}|network": 1, f"{operation}|success": 1}
    else:
        assert run.error is failure
        assert numbers() == {f"{operation}|{category}": 1}


@pytest.mark.parametrize("most", [1, 2, 3, 5])
def test_attempts_end_with_the_last_that_is_allowed(method, numbers, most):
    run = drive(method(max_attempts=most), *(GRANTED, broken()) * 9)

    assert run.error.category == "network"
    assert len(run.requests) == len(run.slots) == most
    assert numbers() == {"realname|network": most}


def test_each_attempt_has_its_own_slot_number_and_request_id(method):
    run = drive(method(), GRANTED, broken(), GRANTED, GOOD)

    assert [slot.call.attempt for slot in run.slots] == [1, 2]
    ids = [slot.call.request_id for slot in run.slots]
    assert [request.headers["X-Request-Id"] for request in run.requests] == ids
    assert len(set(ids)) == 2


def test_answer_that_is_none_is_not_asked_for_again(method, numbers):
    run = drive(method(), GRANTED, HttpReply(200, b"<html>"))

    assert run.error.category == "bad_response"
    assert numbers() == {"realname|bad_response": 1}


def test_refused_slot_ends_the_method_and_sends_nothing(method, numbers):
    refused = refusal()

    run = drive(method(), refused)

    assert run.error is refused
    assert run.requests == []
    assert numbers() == {"realname|refused": 1}


def test_refused_retry_reports_the_failure_that_was_met(method, numbers):
    failure, refused = broken(), refusal()

    run = drive(method(), GRANTED, failure, refused)

    assert run.error is failure
    assert run.error.__cause__ is refused
    assert numbers() == {"realname|network": 1, "realname|refused": 1}


def test_duration_is_that_of_the_attempt_that_failed(method):
    first = drive(method(max_attempts=1), GRANTED, 0.2, broken())
    # Neither the wait for the slot nor the attempt before belongs to it.
    second = drive(method(), 0.2, GRANTED, 0.2, broken(), 0.2, GRANTED, broken())

    assert first.error.duration >= 0.2
    assert 0 <= second.error.duration < 0.15


def test_wait_is_counted_apart_from_the_call(method, client, counted):
    with clock.frozen(NOW_MS):
        drive(method(), 0.3, GRANTED, GOOD)
        counted.flush(client)

    minute = NOW_MS // MINUTE_MS
    totals = statistics.totals(client, [CARRIER_ID], first_minute=minute, last_minute=minute)
    found = totals[CARRIER_ID]
    assert (found.calls, found.waits) == (1, 1)
    assert found.wait_s >= 0.3
    assert found.duration_s < 0.2


def test_own_bug_is_an_internal_error_without_the_text_of_its_cause(method, numbers):
    run = drive(method(), GRANTED, RuntimeError("secret"))

    assert isinstance(run.error, GatewayError)
    assert (run.error.category, str(run.error)) == ("internal", "unexpected RuntimeError")
    assert numbers() == {"realname|internal": 1}


@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt(), SystemExit(), asyncio.CancelledError()], ids=repr
)
def test_stop_on_the_wire_passes_and_is_counted_once(method, numbers, stop):
    run = drive(method(), GRANTED, stop)

    assert run.error is stop
    assert numbers() == {"realname|cancelled": 1}


@pytest.mark.parametrize(
    "stop", [KeyboardInterrupt(), SystemExit(), asyncio.CancelledError(), LookupError()], ids=repr
)
def test_stop_while_waiting_for_a_slot_passes_and_is_not_counted(method, numbers, stop):
    run = drive(method(), stop)

    assert run.error is stop
    assert numbers() == {}


@pytest.mark.parametrize(
    ("script", "counts"),
    [((), {}), ((GRANTED,), {"realname|cancelled": 1})],
    ids=["waiting", "on the wire"],
)
def test_method_that_is_dropped_counts_what_was_granted(method, numbers, script, counts):
    drive(method(), *script)

    assert numbers() == counts


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"fault": "no key"}, "no key"),
        ({"provider": "nobody"}, "provider"),
        ({"token": ""}, "token"),
    ],
    ids=str,
)
def test_account_that_cannot_be_used_is_one_attempt_without_an_exchange(
    method, numbers, make_account, fields, text
):
    run = drive(method(account=make_account(**fields)), GRANTED)

    assert run.requests == []
    assert (run.error.category, run.error.was_sent) == ("config", False)
    assert text in str(run.error)
    assert numbers() == {"realname|config": 1}


@pytest.mark.parametrize(
    ("answer", "asked_ms"),
    [
        (HttpReply(429, b""), None),
        (HttpReply(429, b"", retry_after="3"), 3_000),
        (reply(code=1004), None),
        (reply({"retry_after_ms": 1_500}, code=1004), 1_500),
    ],
    ids=["429", "429 with a wait", "1004", "1004 with a wait"],
)
def test_refusal_by_the_provider_lowers_the_rate_of_its_account(
    method, throttled, answer, asked_ms
):
    run = drive(method(), GRANTED, answer)

    assert run.error.category == "provider_rate_limited"
    assert throttled == [(CARRIER_ID, asked_ms)]


def test_no_other_failure_lowers_the_rate(method, throttled):
    for category in set(Category) - {Category.PROVIDER_RATE_LIMITED}:
        drive(method(max_attempts=1), GRANTED, GatewayError(category))
    drive(method(), refusal())
    drive(method(), GRANTED, GOOD)

    assert throttled == []
