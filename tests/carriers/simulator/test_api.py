"""The standard protocol, over a real socket."""

import json
import re

import pytest

from carriers.simulator.statistics import Limit
from tests.carriers.simulator.wire import read_wire, request_bytes

ICCID = "89860012345678901239"
UTC_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


def test_a_status_answer_has_the_fields_of_the_protocol(simulator, call):
    simulator.set_card(ICCID, status="active", online=True)

    answer = call("card_status", ICCID)

    assert answer.is_whole
    assert answer.headers["content-type"].startswith("application/json")
    assert answer.json.keys() == {"code", "message", "data"}
    assert (answer.json["code"], answer.data["status"], answer.data["online"]) == (
        0,
        "active",
        True,
    )
    assert UTC_TIME.fullmatch(answer.data["changed_at"])


def test_a_usage_answer_has_the_fields_of_the_protocol(call):
    data = call("carddata").data

    assert data.keys() == {"used_bytes", "cycle_start", "as_of"}
    assert isinstance(data["used_bytes"], int)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", data["cycle_start"])
    assert UTC_TIME.fullmatch(data["as_of"])


@pytest.mark.parametrize("verified", [True, False])
def test_a_realname_answer_has_the_fields_of_the_protocol(simulator, call, verified):
    simulator.set_card(ICCID, verified=verified)

    data = call("realname", ICCID).data

    assert data.keys() == {"verified", "verified_at"}
    assert data["verified"] is verified


def test_suspend_and_resume_are_accepted_and_take_effect(simulator, call):
    simulator.api.world.effect_delay_ms = 0
    simulator.set_card(ICCID, status="active")

    assert call("suspend", ICCID).data == {"accepted": True}
    assert call("card_status", ICCID).data["status"] == "suspended"
    assert call("resume", ICCID).data == {"accepted": True}
    assert call("card_status", ICCID).data["status"] == "active"


def test_an_accepted_suspend_is_not_seen_before_its_delay(simulator, call):
    simulator.set_card(ICCID, status="active")

    call("suspend", ICCID)

    assert call("card_status", ICCID).data["status"] == "active"


def test_the_opposite_order_meets_a_lock(simulator, call):
    simulator.set_card(ICCID, status="active")
    call("suspend", ICCID)

    assert call("resume", ICCID).json["code"] == 1002


def test_a_deactivated_card_cannot_be_suspended(simulator, call):
    simulator.set_card(ICCID, status="deactivated")

    answer = call("suspend", ICCID)

    assert answer.json["code"] not in (0, 1001, 1002, 1003, 1004)
    assert "停" in answer.json["message"]


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"reason": 1}', b"{}"])
def test_a_suspend_without_a_reason_is_refused(call, body):
    assert call("suspend", body=body).json["code"] == 2002


def test_a_lost_answer_does_not_undo_a_suspend(simulator, call):
    simulator.api.world.effect_delay_ms = 0
    simulator.set_card(ICCID, status="active")
    simulator.set_faults("reset_in_body")
    call("suspend", ICCID)
    simulator.set_faults()

    assert call("card_status", ICCID).data["status"] == "suspended"


def test_a_refused_suspend_has_no_effect(simulator, call):
    simulator.api.world.effect_delay_ms = 0
    simulator.set_card(ICCID, status="active")
    simulator.set_faults("http502_html")
    call("suspend", ICCID)
    simulator.set_faults()

    assert call("card_status", ICCID).data["status"] == "active"


@pytest.mark.parametrize("iccid", ["123", "8986-0012345678901", "8986001234567890123f", "8" * 21])
def test_what_is_no_iccid_is_not_found(call, iccid):
    assert call("card_status", iccid).json["code"] == 1001


@pytest.mark.parametrize("iccid", ["8" * 18, "8" * 20, "8986001234567890123F"])
def test_every_iccid_is_known(call, iccid):
    assert call("card_status", iccid).json["code"] == 0


def test_a_removed_card_is_not_found(simulator, call):
    simulator.remove_card(ICCID)

    assert call("card_status", ICCID).json["code"] == 1001


def test_a_call_without_a_token_is_refused(call):
    assert call("card_status", token="").json["code"] == 1003


def test_only_the_set_token_is_good(simulator, call):
    simulator.api.token = "right"

    assert call("card_status", token="wrong").json["code"] == 1003
    assert call("card_status", token="right").json["code"] == 0


def test_a_call_without_an_account_is_refused(call):
    assert call("card_status", carrier="").json["code"] == 2001


def test_an_unknown_path_is_answered_404_in_json(call):
    answer = call("nonsense")

    assert (answer.status, answer.json["code"]) == (404, 404)


def test_a_wrong_method_is_answered_405(call):
    assert call("card_status", method="POST").status == 405
    assert call("suspend", method="GET").status == 405


def test_an_answer_takes_its_latency_and_no_more_than_its_jitter(simulator):
    simulator.api.latency_ms, simulator.api.jitter_ms = 100, 50

    delays_s = [simulator.api._delay_s() for _ in range(500)]

    assert min(delays_s) >= 0.1
    assert max(delays_s) <= 0.15
    assert len(set(delays_s)) > 400


def test_a_caller_above_its_limit_is_refused_and_counted(simulator, call):
    simulator.api.limits["acme"] = Limit(2)

    codes = [call("carddata").json["code"] for _ in range(3)]

    assert codes == [0, 0, 1004]
    assert call("carddata").data["retry_after_ms"] > 0
    assert call("carddata", carrier="other").json["code"] == 0
    assert simulator.statistics()["acme"]["violations"] == 2


def test_the_log_keeps_every_call_as_it_arrived(simulator, call):
    simulator.set_faults("code_1002:1:acme")

    call("carddata", ICCID)
    call("realname", ICCID, carrier="other", token="")

    first, second = simulator.calls
    assert (first.operation, first.iccid, first.carrier) == ("carddata", ICCID, "acme")
    assert (first.request_id, first.has_authorization, first.fault) == ("r1", True, "code_1002")
    assert (second.operation, second.has_authorization, second.fault) == ("realname", False, "")
    assert second.arrived_s > first.arrived_s


def test_whoever_follows_a_redirect_is_in_the_log(simulator, open_socket):
    sock = open_socket()

    sock.sendall(request_bytes("GET", f"/redirected/v1/cards/{ICCID}/usage"))

    assert read_wire(sock).status == 404
    assert [record.operation for record in simulator.calls] == ["redirected"]


def test_the_statistics_page_tells_calls_per_account(simulator, call, open_socket):
    call("carddata")
    sock = open_socket()

    sock.sendall(request_bytes("GET", "/simulator/stats"))

    account = read_wire(sock).json["accounts"]["acme"]
    assert (account["calls"], account["most_in_a_second"], account["violations"]) == (1, 1, 0)


def test_faults_can_be_put_while_it_runs(open_socket, call):
    sock = open_socket()
    body = json.dumps(["code_1002:1"]).encode()

    sock.sendall(request_bytes("PUT", "/simulator/faults", body=body))

    assert read_wire(sock).status == 200
    assert call("carddata").json["code"] == 1002


@pytest.mark.parametrize("body", [b'["nonsense:1"]', b"{", b"5", b'["hang:2"]'])
def test_faults_that_cannot_be_are_refused_and_change_nothing(open_socket, call, body):
    sock = open_socket()

    sock.sendall(request_bytes("PUT", "/simulator/faults", body=body))

    assert read_wire(sock).status == 400
    assert call("carddata").json["code"] == 0
