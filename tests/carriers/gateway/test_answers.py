"""Answers are read strictly: a fact that is not clearly there is none."""

import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carriers.gateway import answers
from carriers.gateway.errors import GatewayError
from carriers.gateway.exchange import HttpReply
from tests.carriers.gateway.outcomes import TOKEN, chain

ICCID = "8986001234567890123F"
ENVELOPE = {"code": 0, "message": "success", "data": {"used_bytes": 5}}
STATUS = {"status": "active", "online": True, "changed_at": "2026-11-30T08:00:00Z"}
USAGE = {"used_bytes": 1_048_576, "cycle_start": "2026-11-27", "as_of": "2026-12-01T03:10:00Z"}
REALNAME = {"verified": True, "verified_at": "2026-10-02T10:00:00Z"}


def read(body, content_type="application/json", **fields):
    """Read the data of an answer with this body, given as bytes or as what JSON is made of."""
    if not isinstance(body, bytes):
        body = json.dumps(body, ensure_ascii=False).encode()
    reply = HttpReply(fields.pop("status", 200), body, content_type, **fields)
    return answers.read_data(reply, iccid=ICCID, secret=TOKEN)


def refusal(function, *arguments, **options):
    """The error that reading ends with."""
    with pytest.raises(GatewayError) as caught:
        function(*arguments, **options)
    return caught.value


def test_data_of_a_good_answer():
    assert read(ENVELOPE) == {"used_bytes": 5}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b" ",
        b"null",
        b"0",
        b'"text"',
        b"[]",
        b"{",
        b'{"code": 0}{"code": 0}',
        b"{'code': 0}",
        b'{"code": NaN, "data": {}}',
        b'{"code": 0, "data": {"used_bytes": Infinity}}',
        b'{"code": ' + b"9" * 5_000 + b"}",
        b'{"data":' * 50_000,
        b"[" * 1_000_000,
        b"\x1f\x8b\x08\x00rest",
    ],
    ids=lambda body: repr(body[:20]),
)
def test_body_that_is_no_json_object(body):
    assert refusal(read, body).category == "bad_response"


@pytest.mark.parametrize("code", ["0", "", None, 0.0, False, True, [0], "1003"], ids=repr)
def test_code_that_is_no_integer(code):
    assert refusal(read, ENVELOPE | {"code": code}).category == "bad_response"


@pytest.mark.parametrize("data", [None, [], "x", 5, True], ids=repr)
def test_data_that_is_no_object(data):
    assert refusal(read, ENVELOPE | {"data": data}).category == "bad_response"


@pytest.mark.parametrize(
    ("code", "category"),
    [
        (1001, "provider"),
        (1002, "provider"),
        (1003, "auth"),
        (1004, "provider_rate_limited"),
        (1, "provider"),
        (-1, "provider"),
        (10**30, "provider"),
    ],
)
def test_business_code_has_its_category(code, category):
    error = refusal(read, {"code": code, "message": "不行", "data": None})

    assert (error.category, error.code, str(error)) == (category, str(code)[:20], "不行")


@pytest.mark.parametrize("message", [None, 5, "", ["x"], "\x00\x01"], ids=repr)
def test_business_error_without_a_text_is_told_by_its_code(message):
    assert str(refusal(read, {"code": 2101, "message": message})) == "provider code 2101"


@pytest.mark.parametrize(
    ("status", "category"),
    [
        (199, "http"),
        (204, "bad_response"),
        (302, "http"),
        (401, "auth"),
        (403, "http"),
        (404, "http"),
        (429, "provider_rate_limited"),
        (500, "http"),
        (599, "http"),
    ],
)
def test_http_status_has_its_category(status, category):
    assert refusal(read, b"", status=status).category == category


def test_answer_that_is_not_whole():
    assert refusal(read, ENVELOPE, is_whole=False).category == "bad_response"


@pytest.mark.parametrize(
    "waits",
    [{"retry_after_ms": 1500}, {"retry_after_ms": 0}, {"retry_after_ms": 10**15}],
    ids=str,
)
def test_wait_of_code_1004(waits):
    asked = refusal(read, {"code": 1004, "data": waits}).retry_after_ms

    assert asked == min(waits["retry_after_ms"], 86_400_000)


@pytest.mark.parametrize(
    "data", [None, [], {}, *({"retry_after_ms": x} for x in (-1, "5", 1.5, True, None))], ids=str
)
def test_wait_of_code_1004_that_says_nothing(data):
    assert refusal(read, {"code": 1004, "data": data}).retry_after_ms is None


@pytest.mark.parametrize("named", [ICCID, ICCID.lower(), None])
def test_answer_that_names_the_card_asked_for(named):
    assert read(ENVELOPE | {"data": {"iccid": named}}) == {"iccid": named}


@pytest.mark.parametrize(
    "named", [ICCID[:-1], ICCID + "0", "", 8986001234567890123, [ICCID]], ids=repr
)
def test_answer_that_names_another_card(named):
    assert refusal(read, ENVELOPE | {"data": {"iccid": named}}).category == "bad_response"


CHINESE = {"code": 2101, "message": "停机保号", "data": None}


@pytest.mark.parametrize(
    ("charset", "content_type"),
    [
        ("utf-8", "application/json"),
        ("utf-8-sig", "application/json"),
        ("utf-8", "application/json; charset=GBK"),
        ("gbk", "application/json; charset=GBK"),
        ("gbk", 'text/plain;charset="gb2312"'),
        ("gbk", "application/json"),
        ("gbk", ""),
        ("gb18030", "application/json; charset=no-such-charset"),
        ("gbk", "application/json; charset=base64"),
        ("gbk", "application/json; charset=" + "x" * 10_000),
        ("big5", "application/json; charset=Big5"),
    ],
)
def test_text_is_read_in_its_charset(charset, content_type):
    text = {**CHINESE, "message": "停機"} if charset == "big5" else CHINESE
    body = json.dumps(text, ensure_ascii=False).encode(charset)

    assert str(refusal(read, body, content_type)) == text["message"]


@pytest.mark.parametrize("charset", ["punycode", "idna", "unicode_escape", "utf-7", "utf-16"])
def test_odd_charset_of_a_megabyte_is_no_hang(charset):
    body = b"\xff" + b"a-" * 500_000

    assert refusal(read, body, f"text/plain; charset={charset}").category == "bad_response"


@pytest.mark.parametrize(
    "body",
    [
        {"code": 2101, "message": f"bad token {TOKEN}"},
        {"code": 2101, "message": f"{TOKEN[:5]}\u0000{TOKEN[5:]}"},
        {"code": 0, "data": None, "message": TOKEN},
        {"code": TOKEN},
        TOKEN.encode(),
    ],
    ids=str,
)
def test_token_that_the_gateway_repeats_is_told_nobody(body):
    for error in chain(refusal(read, body)):
        assert TOKEN not in f"{error} {error!r} {error.args} {vars(error)}"


@pytest.mark.parametrize(
    ("reader", "data", "field"),
    [
        (answers.read_status, STATUS, "changed_at"),
        (answers.read_usage, USAGE, "as_of"),
        (answers.read_usage, USAGE, "used_bytes"),
        (answers.read_usage, USAGE, "cycle_start"),
        (answers.read_realname, REALNAME, "verified_at"),
        (answers.read_realname, REALNAME, "verified"),
    ],
)
def test_field_that_repeats_the_token_is_quoted_nowhere(reader, data, field):
    for error in chain(refusal(reader, data | {field: TOKEN})):
        assert TOKEN not in f"{error} {error!r} {error.args} {vars(error)}"


def test_status_that_repeats_the_token_is_stored_without_it():
    answer = answers.read_status(STATUS | {"status": f"is {TOKEN}"}, secret=TOKEN)

    assert answer.raw_status == "is ***"


@pytest.mark.parametrize("word", ["inventory", "testing", "active", "suspended", "deactivated"])
def test_known_status(word):
    answer = answers.read_status(STATUS | {"status": word})

    assert (answer.status, answer.raw_status, answer.is_online) == (word, word, True)
    assert answer.changed_at == datetime(2026, 11, 30, 8, tzinfo=UTC)


@pytest.mark.parametrize(
    ("word", "raw"),
    [
        ("待激活-PRE", "待激活-PRE"),
        ("ACTIVE", "ACTIVE"),
        ("", ""),
        ("unknown", "unknown"),
        ("x" * 500, "x" * 100),
        ("a\x00b", "ab"),
    ],
)
def test_status_never_seen_before_is_kept_raw(word, raw):
    answer = answers.read_status(STATUS | {"status": word})

    assert (answer.status, answer.raw_status) == ("unknown", raw)


@pytest.mark.parametrize(
    "change", [{"status": 1}, {"status": None}, {"online": 1}, {"online": "true"}]
)
def test_status_that_is_none(change):
    assert refusal(answers.read_status, STATUS | change).category == "bad_response"


@pytest.mark.parametrize(
    ("value", "count"),
    [(0, 0), (2**63 - 1, 2**63 - 1), ("1048576", 1_048_576), ("00", 0), ("007", 7)],
)
def test_byte_count(value, count):
    assert answers.read_usage(USAGE | {"used_bytes": value}).used_bytes == count


@pytest.mark.parametrize(
    "value",
    [
        *(-1, 2**63, 1.5, 1.0, True, None, [], "", "-1", "1,048,576", "1e6", "1.0", " 1", "1\n"),
        *("0x10", "١٢", "9" * 30, "1_000", "+1"),
    ],
    ids=repr,
)
def test_byte_count_that_is_none(value):
    assert refusal(answers.read_usage, USAGE | {"used_bytes": value}).category == "bad_response"


@pytest.mark.parametrize(
    "value",
    [
        "2026-13-01",
        "2026-02-30",
        "20261127",
        "2026-11-27T00:00:00Z",
        "",
        None,
        20261127,
        "2026-W01-1",
    ],
    ids=repr,
)
def test_cycle_start_that_is_no_date(value):
    assert refusal(answers.read_usage, USAGE | {"cycle_start": value}).category == "bad_response"


@pytest.mark.parametrize(
    ("text", "moment"),
    [
        ("2026-12-01T03:10:00Z", datetime(2026, 12, 1, 3, 10, tzinfo=UTC)),
        ("2026-12-01T11:10:00+08:00", datetime(2026, 12, 1, 3, 10, tzinfo=UTC)),
        (None, None),
    ],
)
def test_time(text, moment):
    assert answers.read_usage(USAGE | {"as_of": text}).as_of == moment


@pytest.mark.parametrize("name", ["as_of"])
def test_time_may_be_missing(name):
    assert answers.read_usage({k: v for k, v in USAGE.items() if k != name}).as_of is None


@pytest.mark.parametrize(
    "value",
    ["2026-12-01T03:10:00", "yesterday", "", 1_764_558_600, True, "0001-01-01T00:00:00+23:59", []],
    ids=repr,
)
def test_time_that_is_none(value):
    assert refusal(answers.read_usage, USAGE | {"as_of": value}).category == "bad_response"


def test_realname():
    answer = answers.read_realname({"verified": False})

    assert (answer.verified, answer.verified_at) == (False, None)
    assert refusal(answers.read_realname, {"verified": "yes"}).category == "bad_response"


@pytest.mark.parametrize("accepted", [False, None, "true", 1])
def test_success_that_was_not_accepted_contradicts_itself(accepted):
    assert refusal(answers.read_accepted, {"accepted": accepted}).category == "bad_response"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4)
    ),
    max_leaves=10,
)
FIELDS = st.sampled_from(
    ["status", "online", "changed_at", "used_bytes", "cycle_start", "as_of", "verified", "iccid"]
)


@given(st.binary(max_size=200), st.text(max_size=60))
def test_no_bytes_break_the_reader(body, content_type):
    assert refusal(read, body, content_type).category in ("bad_response", "provider", "auth")


@given(st.dictionaries(FIELDS, JSON))
def test_no_data_break_the_readers(data):
    for reader in (
        answers.read_status,
        answers.read_usage,
        answers.read_realname,
        answers.read_accepted,
    ):
        try:
            reader(data)
        except GatewayError as error:
            assert error.category == "bad_response"  # noqa: PT017  either is right
