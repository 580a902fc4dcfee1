"""Each misbehaviour, read raw from the wire, and which calls meet it."""

import gzip
import json
from email.utils import parsedate_to_datetime

import pytest

from carriers.simulator import KINDS, FaultSpec
from carriers.simulator.faults import FaultPlan, FaultSpecError
from tests.carriers.simulator.wire import SILENCE_S

ICCID = "89860012345678901239"
USED = 1_234_567
MIB = 1024 * 1024


def is_page(answer, status):
    """A whole HTML page with this status."""
    return (
        answer.is_whole
        and answer.status == status
        and answer.headers["content-type"].startswith("text/html")
        and answer.body.startswith(b"<!DOCTYPE html>")
    )


def has_code(answer, code):
    """A whole answer of the gateway itself with this code."""
    return answer.is_whole and answer.status == 200 and answer.json["code"] == code


def in_gbk(answer):
    """The envelope, read as GBK, which is not UTF-8."""
    with pytest.raises(UnicodeDecodeError):
        answer.body.decode()
    return json.loads(answer.body.decode("gbk"))


SEEN_ON_THE_WIRE = {
    "http429": lambda a: a.is_whole and a.status == 429 and "retry-after" not in a.headers,
    "http429_retry_after": lambda a: a.status == 429 and int(a.headers["retry-after"]) > 0,
    "http429_retry_date": lambda a: (
        a.status == 429 and parsedate_to_datetime(a.headers["retry-after"])
    ),
    "http500_html": lambda a: is_page(a, 500),
    "http502_html": lambda a: is_page(a, 502),
    "http503_retry_after": lambda a: is_page(a, 503) and int(a.headers["retry-after"]) > 0,
    "http401_json": lambda a: a.status == 401 and a.json["code"] == 401,
    "http403_html": lambda a: is_page(a, 403),
    "redirect": lambda a: (
        a.status == 302
        and a.headers["location"] == f"http://localhost:80/redirected/v1/cards/{ICCID}/usage"
    ),
    "broken_header": lambda a: a.end == "closed" and not a.raw.startswith(b"HTTP/1."),
    "html_200": lambda a: is_page(a, 200),
    "not_json_content": lambda a: a.is_whole and a.body.startswith(b"OK, but"),
    "json_as_text": lambda a: has_code(a, 0) and a.headers["content-type"] == "text/plain",
    "empty_body": lambda a: a.is_whole and a.status == 200 and a.body == b"",
    "truncated_json": lambda a: (
        a.is_whole and a.body.startswith(b'{"code":0,') and b"}" not in a.body
    ),
    "json_list": lambda a: a.is_whole and a.json[0]["data"]["used_bytes"] == USED,
    "deep_json": lambda a: a.is_whole and a.body.startswith(b"[" * 100_000),
    "code_string": lambda a: a.json["code"] == "0" and a.data["used_bytes"] == USED,
    "missing_data": lambda a: a.json == {"code": 0, "message": "success"},
    "null_data": lambda a: a.json == {"code": 0, "message": "success", "data": None},
    "gbk": lambda a: in_gbk(a)["code"] > 2000 and "charset=GBK" in a.headers["content-type"],
    "gbk_no_charset": lambda a: (
        in_gbk(a)["code"] > 2000 and "charset" not in a.headers["content-type"]
    ),
    "gbk_success": lambda a: in_gbk(a)["data"]["used_bytes"] == USED,
    "huge_body": lambda a: a.is_whole and len(a.body) > 8 * MIB and a.data["used_bytes"] == USED,
    "gzip_bomb": lambda a: len(a.body) < MIB and len(gzip.decompress(a.body)) > 8 * MIB,
    "number_strings": lambda a: a.data["used_bytes"] == str(USED),
    "number_commas": lambda a: a.data["used_bytes"] == "1,235,567",
    "negative_usage": lambda a: a.data["used_bytes"] == -1,
    "huge_number": lambda a: a.is_whole and b'"used_bytes":' + b"9" * 5_000 + b"," in a.body,
    "usage_decrease": lambda a: a.data["used_bytes"] == USED // 2,
    "unknown_status": lambda a: a.data["status"] == "待激活-PRE",
    "missing_times": lambda a: has_code(a, 0) and a.data.keys() == {"used_bytes", "cycle_start"},
    "wrong_iccid": lambda a: a.data["iccid"] not in ("", ICCID) and a.data["used_bytes"] == USED,
    "reset_before_header": lambda a: (a.end, a.raw) == ("reset", b""),
    "reset_in_header": lambda a: (
        a.end == "reset" and a.raw[:15] == b"HTTP/1.1 200 OK" and not a.body
    ),
    "reset_in_body": lambda a: a.end == "reset" and a.body.startswith(b'{"code":0'),
    "close_before_header": lambda a: (a.end, a.raw) == ("closed", b""),
    "close_in_body": lambda a: a.end == "closed" and a.body and not a.is_whole,
    "hang": lambda a: (a.end, a.raw) == ("silence", b""),
    "code_1001": lambda a: has_code(a, 1001),
    "code_1002": lambda a: has_code(a, 1002),
    "code_1003": lambda a: has_code(a, 1003),
    "code_1004": lambda a: has_code(a, 1004) and a.data is None,
    "code_1004_retry": lambda a: has_code(a, 1004) and a.data["retry_after_ms"] > 0,
    "business_chinese": lambda a: has_code(a, 2101) and "停机" in a.json["message"],
    "business_long": lambda a: has_code(a, 2101) and len(a.json["message"]) > 20_000,
}
ENDLESS = {"slow_drip": b" ", "slow_drip_header": b"x"}


@pytest.mark.parametrize("name", SEEN_ON_THE_WIRE)
def test_a_fault_is_seen_on_the_wire(simulator, call, name):
    simulator.set_card(ICCID, used_bytes=USED)
    simulator.set_faults(name)
    operation = "card_status" if name == "unknown_status" else "carddata"

    answer = call(operation, ICCID, timeout_s=SILENCE_S if name == "hang" else 10)

    assert SEEN_ON_THE_WIRE[name](answer)
    assert simulator.statistics()["acme"]["faults"] == {name: 1}


@pytest.mark.parametrize("name", ENDLESS)
def test_a_drip_goes_on_byte_by_byte_without_an_end(simulator, call, name):
    simulator.set_faults(name)
    first = len(call("carddata", most=1).raw)

    answer = call("carddata", most=first + 2)

    assert answer.raw.startswith(b"HTTP/1.1 200 OK\r\n")
    assert answer.raw.endswith(ENDLESS[name] * 2)


def test_every_kind_has_its_row():
    assert KINDS.keys() == SEEN_ON_THE_WIRE.keys() | ENDLESS.keys()


def test_every_kind_says_what_it_is():
    assert all(kind.meaning for kind in KINDS.values())


def test_the_n_th_call_meets_the_same_fault_with_the_same_seed():
    specs = [FaultSpec("hang", 0.3), FaultSpec("gbk", 0.3)]

    def fates(seed):
        plan = FaultPlan(specs, seed)
        return [getattr(plan.choose("acme", "carddata"), "name", "") for _ in range(1_000)]

    assert fates(1) == fates(1)
    assert fates(1) != fates(2)
    assert all(250 < fates(1).count(name) < 350 for name in ("hang", "gbk"))


def test_shares_of_zero_and_one_are_never_and_always():
    plan = FaultPlan([FaultSpec("hang", 0), FaultSpec("gbk", 1)])

    assert {plan.choose("acme", "carddata").name for _ in range(1_000)} == {"gbk"}


def test_a_fault_of_one_account_spares_the_others():
    plan = FaultPlan([FaultSpec("hang", 1, "acme")])

    assert plan.choose("acme", "carddata").name == "hang"
    assert plan.choose("other", "carddata") is None


def test_a_fault_of_one_operation_spares_the_others(simulator, call):
    simulator.set_faults("negative_usage")

    assert call("realname").json["code"] == 0


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("hang", "KIND:SHARE"),
        ("nonsense:0.5", "unknown kind 'nonsense'"),
        ("hang:much", "'much'"),
        ("hang:1.5", "between 0 and 1"),
        ("hang:-0.1", "between 0 and 1"),
        ("hang:nan", "between 0 and 1"),
    ],
)
def test_a_fault_that_cannot_be_is_refused_with_its_reason(text, reason):
    with pytest.raises(FaultSpecError, match=reason):
        FaultSpec.parse(text)


def test_shares_that_add_up_to_more_than_all_calls_are_refused():
    specs = [FaultSpec("hang", 0.6), FaultSpec("gbk", 0.6, "acme")]

    with pytest.raises(FaultSpecError, match=r"acme add up to 1\.2"):
        FaultPlan(specs)
