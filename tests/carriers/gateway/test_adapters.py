"""Adapters say how a request is built and how an answer is read, and do nothing else."""

import json
from datetime import date

import pytest

import cardpolling
from carriers.choices import Operation, Provider
from carriers.gateway.adapters import adapter_of
from carriers.gateway.answers import AcceptedAnswer, RealnameAnswer, StatusAnswer, UsageAnswer
from carriers.gateway.call import Call
from carriers.gateway.errors import GatewayError
from carriers.gateway.exchange import HttpReply
from tests.carriers.gateway.conftest import ICCID
from tests.carriers.gateway.outcomes import TOKEN

GOOD = {
    "card_status": (
        {"status": "active", "online": True},
        StatusAnswer("active", "active", is_online=True, changed_at=None),
    ),
    "carddata": (
        {"used_bytes": 5, "cycle_start": "2026-11-27"},
        UsageAnswer(5, date(2026, 11, 27), as_of=None),
    ),
    "realname": ({"verified": True}, RealnameAnswer(verified=True, verified_at=None)),
    "suspend": ({"accepted": True}, AcceptedAnswer(accepted=True)),
    "resume": ({"accepted": True}, AcceptedAnswer(accepted=True)),
}


@pytest.mark.parametrize("provider", Provider.values)
def test_every_provider_has_an_adapter(provider):
    assert adapter_of(provider)


def test_unknown_provider_is_a_fault_of_the_account():
    with pytest.raises(GatewayError) as caught:
        adapter_of("nobody")

    assert (caught.value.category, caught.value.was_sent) == ("config", False)


@pytest.mark.parametrize(
    ("operation", "method", "path"),
    [
        ("card_status", "GET", "status"),
        ("carddata", "GET", "usage"),
        ("realname", "GET", "realname"),
        ("suspend", "POST", "suspend"),
        ("resume", "POST", "resume"),
    ],
)
def test_request_of_an_operation(make_account, operation, method, path):
    account = make_account(gateway_url="https://gateway.example.com/base")
    call = Call(operation, ICCID, account.carrier_id)

    request = adapter_of("standard").build(account, call, "用量超限")

    assert (request.method, request.url) == (
        method,
        f"https://gateway.example.com/base/v1/cards/{ICCID}/{path}",
    )
    assert request.headers["Authorization"] == f"Bearer {TOKEN}"
    assert request.headers["X-Carrier-Account"] == "acme"
    assert request.headers["User-Agent"] == f"cardpolling/{cardpolling.__version__}"
    assert request.headers["X-Request-Id"] == call.request_id
    assert (request.body is None) == (method == "GET") == request.is_idempotent
    assert request.body is None or json.loads(request.body) == {"reason": "用量超限"}


def test_request_shows_no_token(make_account):
    account = make_account()
    request = adapter_of("standard").build(account, Call("realname", ICCID, 7), "")

    assert TOKEN not in repr(request)
    assert TOKEN not in f"{account!r} {account}"


@pytest.mark.parametrize("operation", Operation.values)
def test_every_operation_is_read(make_account, operation):
    data, expected = GOOD[operation]
    body = json.dumps({"code": 0, "message": "", "data": data}).encode()

    answer = adapter_of("standard").read(
        make_account(), Call(operation, ICCID, 7), HttpReply(200, body)
    )

    assert answer == expected


def test_status_word_is_stored_without_the_token(make_account):
    data = {"status": f"for {TOKEN}", "online": False}
    body = json.dumps({"code": 0, "data": data}).encode()

    answer = adapter_of("standard").read(
        make_account(), Call("card_status", ICCID, 7), HttpReply(200, body)
    )

    assert TOKEN not in answer.raw_status
