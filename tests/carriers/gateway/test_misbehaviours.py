"""Whatever a gateway does ends as an answer or a categorised error, in time, over both transports."""

import gzip
import socket
import time
from datetime import date

import pytest

from carriers.gateway.exchange import MAX_BODY_BYTES, MAX_INTERIM_ANSWERS
from carriers.simulator import KINDS
from tests.carriers.gateway import certificates
from tests.carriers.gateway.conftest import ICCID
from tests.carriers.gateway.outcomes import TOKEN, assert_clean
from tests.carriers.gateway.rawserver import answer

NETWORK_ATTEMPTS = 2
SHORT_S = 0.5
BUSINESS_TEXT = "卡号已停机保号，不能办理此业务"

EXPECTED = {
    "broken_header": "bad_response",
    "business_chinese": "provider",
    "business_long": "provider",
    "close_before_header": "network",
    "close_in_body": "network",
    "code_1001": "provider",
    "code_1002": "provider",
    "code_1003": "auth",
    "code_1004": "provider_rate_limited",
    "code_1004_retry": "provider_rate_limited",
    "code_string": "bad_response",
    "deep_json": "bad_response",
    "empty_body": "bad_response",
    "gbk": "provider",
    "gbk_no_charset": "provider",
    "gbk_success": "good",
    "gzip_bomb": "bad_response",
    "hang": "timeout",
    "html_200": "bad_response",
    "http401_json": "auth",
    "http403_html": "http",
    "http429": "provider_rate_limited",
    "http429_retry_after": "provider_rate_limited",
    "http429_retry_date": "provider_rate_limited",
    "http500_html": "http",
    "http502_html": "http",
    "http503_retry_after": "http",
    "huge_body": "bad_response",
    "huge_number": "bad_response",
    "json_as_text": "good",
    "json_list": "bad_response",
    "missing_data": "bad_response",
    "missing_times": "good",
    "negative_usage": "bad_response",
    "not_json_content": "bad_response",
    "null_data": "bad_response",
    "number_commas": "bad_response",
    "number_strings": "good",
    "redirect": "http",
    "reset_before_header": "network",
    "reset_in_body": "network",
    "reset_in_header": "network",
    "slow_drip": "timeout",
    "slow_drip_header": "timeout",
    "truncated_json": "bad_response",
    "unknown_status": "good",
    "usage_decrease": "good",
    "wrong_iccid": "bad_response",
}


def test_every_kind_of_the_simulator_has_its_row():
    assert set(EXPECTED) == set(KINDS)


@pytest.mark.parametrize("kind", sorted(EXPECTED))
def test_kind_ends_in_its_category(call, simulator, account, kind):
    operation = min(KINDS[kind].operations or {"carddata"})
    simulator.set_faults(kind)

    outcome = call(account, operation, deadline_s=SHORT_S)

    assert_clean(outcome)
    assert outcome.category == EXPECTED[kind]
    attempts = NETWORK_ATTEMPTS if outcome.category == "network" else 1
    assert len(simulator.calls) == attempts == call.totals().calls


@pytest.mark.parametrize("kind", [k for k in EXPECTED if EXPECTED[k] in ("network", "timeout")])
@pytest.mark.parametrize("operation", ["suspend", "resume"])
def test_switch_that_may_have_been_done_is_not_repeated(call, simulator, account, kind, operation):
    simulator.set_faults(kind)

    outcome = call(account, operation, deadline_s=SHORT_S)

    assert_clean(outcome)
    assert outcome.category == EXPECTED[kind]
    assert len(simulator.calls) == 1


@pytest.mark.parametrize(
    ("kind", "code", "text"),
    [
        ("code_1001", "1001", "card not found"),
        ("code_1003", "1003", "token invalid or expired"),
        ("business_chinese", "2101", BUSINESS_TEXT),
        ("gbk", "2101", BUSINESS_TEXT),
        ("gbk_no_charset", "2101", BUSINESS_TEXT),
    ],
)
def test_business_error_says_what_the_gateway_said(call, simulator, account, kind, code, text):
    simulator.set_faults(kind)

    error = call(account).error

    assert (error.code, error.provider_code, error.provider_message) == (code, code, text)
    assert (str(error), error.application_error.code) == (text, code)
    assert error.duration > 0


def test_long_message_is_cut_and_cleaned(call, simulator, account):
    simulator.set_faults("business_long")

    error = call(account).error

    assert len(error.provider_message) == 500
    assert error.provider_message.isprintable()


@pytest.mark.parametrize(
    ("kind", "least_ms", "most_ms"),
    [
        ("http429_retry_after", 2000, 2000),
        ("http429_retry_date", 0, 2000),
        ("http503_retry_after", 2000, 2000),
        ("code_1004_retry", 1500, 1500),
    ],
)
def test_wait_that_the_gateway_asks_for_is_told(call, simulator, account, kind, least_ms, most_ms):
    simulator.set_faults(kind)

    error = call(account).error

    assert least_ms <= error.retry_after_ms <= most_ms


@pytest.mark.parametrize("kind", ["http429", "code_1004", "http500_html"])
def test_no_wait_is_told_where_the_gateway_names_none(call, simulator, account, kind):
    simulator.set_faults(kind)

    assert call(account).error.retry_after_ms is None


@pytest.mark.parametrize(
    ("kind", "status"),
    [("http403_html", 403), ("http502_html", 502), ("redirect", 302), ("http429", 429)],
)
def test_http_status_is_told(call, simulator, account, kind, status):
    simulator.set_faults(kind)

    error = call(account).error

    assert (error.http_status, error.code) == (status, str(status))


def test_redirect_to_another_host_is_not_followed(call, make_account, serve):
    other = serve(lambda peer: peer.read_request() and peer.send(answer()))
    location = f"Location: http://localhost:{other.port}/v1/cards/{ICCID}/status\r\n"
    server = serve(
        lambda p: p.read_request() and p.send(answer(status="302 Found", headers=location))
    )

    outcome = call(make_account(gateway_url=server.url))

    assert outcome.category == "http"
    assert other.connections == 0


def test_good_answers(call, simulator, account):
    simulator.set_card(ICCID, status="active", used_bytes=1_048_576, cycle_start=date(2026, 11, 27))

    status, usage = call(account).answer, call(account, "carddata").answer

    assert (status.status, status.raw_status) == ("active", "active")
    assert (usage.used_bytes, usage.cycle_start) == (1_048_576, date(2026, 11, 27))
    assert call(account, "realname").answer.verified in (True, False)
    assert call(account, "suspend").answer.accepted
    assert simulator.server.open_connections == 1
    assert call.totals().calls == len(simulator.calls) == 4


def test_request_is_that_of_the_protocol(call, make_account, serve):
    server = serve(lambda peer: peer.read_request() and peer.send(answer({"accepted": True})))

    call(make_account(gateway_url=server.url + "/base"), "suspend")

    head, _, body = server.requests[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    headers = dict(line.lower().split(": ", 1) for line in lines[1:])
    assert lines[0] == f"POST /base/v1/cards/{ICCID}/suspend HTTP/1.1"
    assert headers["authorization"] == f"bearer {TOKEN.lower()}"
    assert headers["x-carrier-account"] == "acme"
    assert headers["accept"] == "application/json"
    assert headers["accept-encoding"] == "identity"
    assert headers["user-agent"].startswith("cardpolling/")
    assert len(headers["x-request-id"]) == 32
    assert body == b'{"reason": "test"}'


def test_each_attempt_has_a_request_id_of_its_own(call, simulator, account):
    simulator.set_faults("reset_before_header")

    call(account)

    assert len({made.request_id for made in simulator.calls}) == NETWORK_ATTEMPTS


# --- On the wire: what the simulator cannot do


def _after_request(*moves):
    """A script that answers each connection's first request by these bytes and ends."""

    def play(peer):
        peer.read_request()
        for move in moves:
            peer.send(move)

    return play


def _then(first, last):
    def play(peer):
        peer.read_request()
        peer.send(first)
        last(peer)

    return play


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
GOOD = answer()

WIRE = {
    "garbage": (_after_request(b"\x00\xff" * 5_000), "bad_response"),
    "garbage lines": (_after_request(b"220 smtp.example.com ready\r\n\r\n"), "bad_response"),
    "tls alert": (_after_request(b"\x15\x03\x01\x00\x02\x02\x16"), "bad_response"),
    "nothing": (_after_request(), "network"),
    "reset before header": (lambda p: p.read_request() and p.reset(), "network"),
    "reset before request": (lambda p: p.reset(), "network"),
    "closed within header": (_after_request(HEAD), "network"),
    "closed within header name": (_after_request(HEAD[:-8]), "network"),
    "closed within body": (_after_request(GOOD[:-5]), "network"),
    "drip in status line": (_then(b"HTTP/1.1 200 O", lambda p: p.drip(b"K")), "timeout"),
    "drip in header": (_then(HEAD + b"X: ", lambda p: p.drip(b"x")), "timeout"),
    "drip in body": (
        _then(HEAD + b"Content-Length: 9999\r\n\r\n", lambda p: p.drip(b" ")),
        "timeout",
    ),
    "drip in body without length": (
        _then(HEAD + b"\r\n" + b"{", lambda p: p.drip(b" ")),
        "timeout",
    ),
    "good answer, then drip without length": (
        _then(HEAD + b"\r\n" + GOOD.partition(b"\r\n\r\n")[2], lambda p: p.drip(b" ")),
        "timeout",
    ),
    "drip in chunks": (
        _then(HEAD + b"Transfer-Encoding: chunked\r\n\r\nffff\r\n", lambda p: p.drip(b" ")),
        "timeout",
    ),
    "drip of 1xx": (_then(b"", lambda p: p.drip(b"HTTP/1.1 100 Continue\r\n\r\n")), "timeout"),
    "ssh": (_after_request(b"SSH-2.0-OpenSSH_9.2\r\n"), "bad_response"),
    "silence after header": (_then(HEAD, lambda p: p.linger()), "timeout"),
    "silence": (_then(b"", lambda p: p.linger()), "timeout"),
    "request never read": (lambda p: p.linger(), "timeout"),
    "header line of 1 MB": (_after_request(HEAD + b"X: " + b"x" * 1_000_000), "bad_response"),
    "10,000 headers": (_after_request(HEAD + b"X: x\r\n" * 10_000 + b"\r\n"), "bad_response"),
    "endless headers": (_then(HEAD, lambda p: p.flood(b"X-A: b\r\n" * 1_000)), "bad_response"),
    "endless header line": (_then(HEAD, lambda p: p.flood(b"x" * 65_536)), "bad_response"),
    "gzip though identity was asked": (
        _after_request(
            answer(
                body=gzip.compress(GOOD.partition(b"\r\n\r\n")[2], mtime=0),
                headers="Content-Encoding: gzip\r\n",
            )
        ),
        "bad_response",
    ),
    "length too long": (_after_request(GOOD.replace(b"Length: ", b"Length: 9")), "network"),
    "length too short": (
        _after_request(HEAD + b"Content-Length: 9\r\n\r\n" + GOOD.partition(b"\r\n\r\n")[2]),
        "bad_response",
    ),
    "length no number": (
        _after_request(HEAD + b"Content-Length: many\r\n\r\n{}"),
        "bad_response",
    ),
    "length negative": (_after_request(HEAD + b"Content-Length: -5\r\n\r\n{}"), "bad_response"),
    "chunk size no number": (
        _after_request(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n"),
        ("network", "bad_response"),
    ),
    "chunks cut short": (
        _after_request(HEAD + b"Transfer-Encoding: chunked\r\n\r\nff\r\n{}"),
        "network",
    ),
    "100 continue": (_after_request(b"HTTP/1.1 100 Continue\r\n\r\n" + GOOD), "good"),
    "103 early hints": (
        _after_request(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + GOOD),
        "good",
    ),
    "many 1xx": (_after_request(b"HTTP/1.1 102 Processing\r\n\r\n" * 50 + GOOD), "good"),
    "endless 1xx": (
        _then(b"", lambda p: p.flood(b"HTTP/1.1 103 Early Hints\r\n\r\n" * 100)),
        "bad_response",
    ),
    "as many 1xx as are passed over": (
        _after_request(b"HTTP/1.1 102 Processing\r\n\r\n" * MAX_INTERIM_ANSWERS + GOOD),
        "good",
    ),
    "one 1xx more": (
        _after_request(b"HTTP/1.1 102 Processing\r\n\r\n" * (MAX_INTERIM_ANSWERS + 1) + GOOD),
        "bad_response",
    ),
    "101 switching": (
        _after_request(
            b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
        ),
        ("http", "bad_response"),
    ),
    "204 no content": (_after_request(b"HTTP/1.1 204 No Content\r\n\r\n"), "bad_response"),
    "304 not modified": (_after_request(b"HTTP/1.1 304 Not Modified\r\n\r\n"), "http"),
    "status 999": (_after_request(b"HTTP/1.1 999 What\r\nContent-Length: 0\r\n\r\n"), "http"),
    "HTTP/1.0 without length": (
        _after_request(b"HTTP/1.0 200 OK\r\n\r\n" + GOOD.partition(b"\r\n\r\n")[2]),
        "good",
    ),
    "chunks": (
        _after_request(
            HEAD
            + b"Transfer-Encoding: chunked\r\n\r\n"
            + b"%x\r\n%s\r\n0\r\n\r\n"
            % (len(GOOD.partition(b"\r\n\r\n")[2]), GOOD.partition(b"\r\n\r\n")[2])
        ),
        "good",
    ),
    "byte order mark": (
        _after_request(answer(body=b"\xef\xbb\xbf" + GOOD.partition(b"\r\n\r\n")[2])),
        "good",
    ),
    "unknown charset": (
        _after_request(GOOD.replace(b"application/json", b"application/json; charset=klingon")),
        "good",
    ),
    "bytes that are no text": (
        _after_request(answer(body=b'{"code": 0, "message": "\xff\xff\x80"}')),
        "bad_response",
    ),
}


@pytest.mark.parametrize("name", WIRE)
def test_wire_misbehaviour_ends_in_its_category(call, make_account, serve, name):
    script, expected = WIRE[name]
    server = serve(script)

    outcome = call(make_account(gateway_url=server.url), deadline_s=SHORT_S)

    assert_clean(outcome)
    assert outcome.category in (expected if isinstance(expected, tuple) else (expected,))
    # Each attempt is the guard's: no library tries again on its own.
    assert server.connections == call.totals().calls
    assert server.connections == (NETWORK_ATTEMPTS if outcome.category == "network" else 1)


@pytest.mark.parametrize(
    "length", [b"Content-Length: 50000000\r\n", b""], ids=["with length", "without length"]
)
def test_body_of_many_megabytes_is_read_to_the_bound_only(call, make_account, serve, length):
    sent, ended = [], []

    def play(peer):
        peer.read_request()
        peer.send(HEAD + length + b"\r\n")
        try:
            for _ in range(800):
                peer.send(b" " * 65_536)
                sent.append(65_536)
        finally:
            ended.append(peer)

    server = serve(play)
    account = make_account(gateway_url=server.url)

    outcome = call(account)
    again = call(account)

    assert_clean(outcome)
    assert (outcome.category, again.category) == ("bad_response", "bad_response")
    assert server.connections == 2
    # What is beyond the bound is in the buffers of the two sockets.
    assert sum(sent) / 2 < 12 * MAX_BODY_BYTES
    call.idle(0.2)
    assert len(ended) == 2


def test_longest_body_is_read(call, make_account, serve):
    body = GOOD.partition(b"\r\n\r\n")[2].ljust(MAX_BODY_BYTES)
    server = serve(_after_request(answer(body=body)))

    assert call(make_account(gateway_url=server.url)).category == "good"


def test_refused_connection(call, make_account):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]

    outcome = call(make_account(gateway_url=f"http://127.0.0.1:{port}"), "suspend")

    assert_clean(outcome)
    assert outcome.category == "network"
    assert not outcome.error.was_sent
    assert call.totals().calls == NETWORK_ATTEMPTS


def test_host_that_does_not_resolve(call, make_account):
    outcome = call(make_account(gateway_url="http://gateway.invalid"), "suspend", deadline_s=3)

    assert_clean(outcome)
    assert (outcome.category, outcome.error.was_sent) == ("network", False)


def test_resolver_that_hangs_does_not_break_the_deadline(call, make_account, monkeypatch):
    real = socket.getaddrinfo

    def hang(host, *arguments, **kw):
        if host == "slow.example":
            time.sleep(2.5)
        return real("127.0.0.1", *arguments, **kw)

    monkeypatch.setattr(socket, "getaddrinfo", hang)

    outcome = call(make_account(gateway_url="http://slow.example:9"), deadline_s=SHORT_S)

    assert_clean(outcome)
    assert outcome.category == "timeout"


@pytest.fixture
def deaf_port():
    """A port that answers no attempt to connect: its queue is full."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        waiting = []
        for _ in range(3):
            sock = socket.socket()
            sock.settimeout(0)
            sock.connect_ex(listener.getsockname())
            waiting.append(sock)
        yield listener.getsockname()[1]
        for sock in waiting:
            sock.close()


def test_connection_that_is_never_made(call, make_account, deaf_port):
    outcome = call(make_account(gateway_url=f"http://127.0.0.1:{deaf_port}"), deadline_s=SHORT_S)

    assert_clean(outcome)
    assert outcome.category == "timeout"


def test_many_addresses_that_are_deaf_do_not_break_the_deadline(
    call, make_account, deaf_port, monkeypatch
):
    real = socket.getaddrinfo

    def many(host, *arguments, **kw):
        found = real("127.0.0.1" if host == "many.example" else host, *arguments, **kw)
        return found * (8 if host == "many.example" else 1)

    monkeypatch.setattr(socket, "getaddrinfo", many)

    outcome = call(make_account(gateway_url=f"http://many.example:{deaf_port}"), deadline_s=SHORT_S)

    assert_clean(outcome)
    assert outcome.category == "timeout"


@pytest.mark.parametrize(
    "url",
    [
        "",
        "gateway.example.com",
        "ftp://127.0.0.1",
        "http://",
        "http://[::1",
        "http://127.0.0.1:0",
        "http://127.0.0.1:99999",
        "http://127.0.0.1:x",
        "http://user:password@127.0.0.1",
        "http://127.0.0.1/?a=b",
        "http://127.0.0.1/#a",
        "http://127.0.0.1\\@other.example",
        "http://with space.example",
        "http://line\r\nbreak.example",
        "http://" + "a" * 70 + ".example",
        "http://.example",
        "http://a..example",
    ],
)
def test_gateway_url_that_cannot_be_used(call, make_account, url):
    outcome = call(make_account(gateway_url=url))

    assert_clean(outcome)
    assert (outcome.category, outcome.error.was_sent) == ("config", False)


@pytest.mark.parametrize(
    "url", ["http://网关.invalid", "http://xn--b1a.invalid", "http://under_score.invalid"]
)
def test_unusual_host_that_does_not_resolve(call, make_account, url):
    outcome = call(make_account(gateway_url=url), deadline_s=3)

    assert_clean(outcome)
    assert outcome.category == "network"


@pytest.mark.parametrize(
    "fields",
    [
        {"token": ""},
        {"token": f"{TOKEN}\r\nX-Evil: 1"},
        {"token": f"{TOKEN} "},
        {"token": f"{TOKEN}é"},
        {"code": ""},
        {"code": "acme\r\nX-Evil: 1"},
        {"code": "acme网"},
        {"provider": "unheard-of"},
        {"fault": "the gateway token cannot be read with the present keys"},
    ],
    ids=str,
)
def test_account_that_cannot_be_used_sends_nothing(call, account, make_account, simulator, fields):
    outcome = call(make_account(gateway_url=account.gateway_url, **fields))

    assert_clean(outcome)
    assert (outcome.category, outcome.error.was_sent) == ("config", False)
    assert not simulator.calls


@pytest.mark.parametrize(
    "iccid", ["", "123", "../../admin", ICCID + "/x", ICCID.lower() + "a", "８" * 19]
)
def test_card_number_that_is_none_sends_nothing(call, account, simulator, iccid):
    outcome = call(account, iccid=iccid)

    assert_clean(outcome)
    assert (outcome.category, outcome.error.was_sent) == ("config", False)
    assert not simulator.calls


# --- Kept connections


def test_kept_connection_that_the_server_closed_is_tried_again(call, make_account, serve):
    def play(peer):
        peer.read_request()
        peer.send(GOOD)
        if peer.number == 0:
            peer.read_request()
            return
        peer.linger()

    server = serve(play)
    account = make_account(gateway_url=server.url)

    outcomes = [call(account), call(account)]

    assert [outcome.category for outcome in outcomes] == ["good", "good"]
    assert server.connections == 2
    # The second call met the closed connection, and its retry took a slot of its own.
    assert call.totals().calls == 3


def test_kept_connection_closed_while_idle_is_not_used(call, make_account, serve):
    server = serve(_after_request(GOOD))
    account = make_account(gateway_url=server.url)

    call(account)
    call.idle(0.2)
    outcome = call(account, "suspend")

    assert outcome.category == "bad_response"
    assert len(server.requests) == 2
    assert call.totals().calls == 2


LATE = answer({"status": "suspended", "online": False, "changed_at": None})


@pytest.mark.parametrize(
    "extra",
    [
        LATE,
        b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n",
        b"more",
        b"\r\n",
    ],
    ids=["second answer", "408", "400", "garbage", "empty line"],
)
@pytest.mark.parametrize("pause_s", [0.0, 0.1], ids=["at once", "later"])
def test_unasked_bytes_are_never_taken_for_the_next_answer(
    call, make_account, serve, extra, pause_s
):
    def play(peer):
        peer.read_request()
        peer.send(GOOD if pause_s or peer.number else GOOD + extra)
        if pause_s:
            time.sleep(pause_s)
            peer.send(extra)
        while peer.read_request():
            peer.send(GOOD)

    server = serve(play)
    account = make_account(gateway_url=server.url)

    first = call(account)
    call.idle(0.3)
    second = call(account)

    # In one piece with an answer, garbage spoils it; what matters is the next.
    assert first.category == "good" or (extra == b"more" and first.category == "bad_response")
    assert second.category == "good"
    assert second.answer.status == "active"


def test_answer_that_comes_after_the_deadline_is_never_taken_for_the_next(
    call, make_account, serve
):
    def play(peer):
        peer.read_request()
        if peer.number == 0:
            time.sleep(SHORT_S + 0.2)
            peer.send(LATE)
        peer.send(GOOD)

    server = serve(play)
    account = make_account(gateway_url=server.url)

    first = call(account, deadline_s=SHORT_S)
    second = call(account)

    assert first.category == "timeout"
    assert (second.category, second.answer.status) == ("good", "active")


def test_cookies_are_never_sent_back(call, make_account, serve):
    def play(peer):
        while peer.read_request():
            peer.send(answer(headers="Set-Cookie: session=abc; Path=/\r\n"))

    server = serve(play)
    account = make_account(gateway_url=server.url)

    call(account)
    call(account)

    assert len(server.requests) == 2
    assert b"cookie" not in server.requests[1].lower()


# --- TLS


def test_tls_to_a_port_without_tls(call, make_account, simulator):
    url = simulator.url.replace("http:", "https:")

    outcome = call(make_account(gateway_url=url), "suspend")

    # The simulator waits for the end of what it takes for a request.
    assert_clean(outcome)
    assert outcome.category == "timeout"


@pytest.mark.parametrize("said", [GOOD, b"SSH-2.0-OpenSSH_9.2\r\n"], ids=["http", "ssh"])
def test_tls_to_a_port_that_says_something_else(call, make_account, serve, said):
    server = serve(lambda peer: (peer.sock.recv(9), peer.send(said), peer.wait_for_end()))
    url = server.url.replace("http:", "https:")

    outcome = call(make_account(gateway_url=url), "suspend")

    assert_clean(outcome)
    assert (outcome.category, outcome.error.was_sent) == ("network", False)


def test_plain_request_to_a_port_with_tls(call, make_account, serve, certificate):
    server = serve(lambda peer: peer.read_request(), tls=certificates.server_context(certificate))

    outcome = call(make_account(gateway_url=server.url.replace("https:", "http:")))

    assert_clean(outcome)
    assert outcome.category in ("network", "bad_response")


def test_certificate_that_nobody_trusts(call, make_account, serve, certificate):
    server = serve(lambda peer: peer.read_request(), tls=certificates.server_context(certificate))

    outcome = call(make_account(gateway_url=server.url), "suspend")

    assert_clean(outcome)
    assert (outcome.category, outcome.error.was_sent) == ("network", False)
    assert not server.requests


def test_certificate_of_another_host(trusted_certificate, call, make_account, serve):
    server = serve(
        lambda peer: peer.read_request(), tls=certificates.server_context(trusted_certificate)
    )

    outcome = call(make_account(gateway_url=f"https://localhost:{server.port}"), "suspend")

    assert_clean(outcome)
    assert (outcome.category, outcome.error.was_sent) == ("network", False)
    assert not server.requests


def test_trusted_certificate(trusted_certificate, call, make_account, serve):
    def play(peer):
        while peer.read_request():
            peer.send(GOOD)

    server = serve(play, tls=certificates.server_context(trusted_certificate))
    account = make_account(gateway_url=server.url)

    outcomes = [call(account), call(account)]

    assert [outcome.category for outcome in outcomes] == ["good", "good"]
    assert server.connections == 1


@pytest.mark.parametrize("moves", ["drip", "linger"])
def test_tls_exchange_that_drips_or_hangs(trusted_certificate, call, make_account, serve, moves):
    def play(peer):
        peer.read_request()
        peer.send(HEAD + b"Content-Length: 9999\r\n\r\n")
        peer.drip(b" ") if moves == "drip" else peer.linger()

    server = serve(play, tls=certificates.server_context(trusted_certificate))

    outcome = call(make_account(gateway_url=server.url), deadline_s=SHORT_S)

    assert_clean(outcome)
    assert outcome.category == "timeout"


@pytest.mark.parametrize("moves", ["drip", "linger"])
def test_handshake_that_drips_or_hangs(call, make_account, serve, moves):
    def play(peer):
        if moves == "linger":
            peer.linger()
        # A TLS record that is announced and never ends.
        peer.send(b"\x16\x03\x03\x40\x00")
        peer.drip(b"\x02")

    server = serve(play)

    outcome = call(
        make_account(gateway_url=server.url.replace("http:", "https:")), deadline_s=SHORT_S
    )

    assert_clean(outcome)
    assert outcome.category == "timeout"
