"""Every way in which a gateway misbehaves ends as one categorised error, in time, over both transports, and tells no secret."""

import contextlib
import socket
import ssl
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from carriers.gateway.errors import Category
from carriers.simulator import KINDS

from .conftest import TOKEN

DEADLINE_S = 0.7

CATEGORIES = {
    "http429": "provider_rate_limited",
    "http429_retry_after": "provider_rate_limited",
    "http429_retry_date": "provider_rate_limited",
    "http500_html": "http",
    "http502_html": "http",
    "http503_retry_after": "http",
    "http401_json": "auth",
    "http403_html": "http",
    "redirect": "http",
    "broken_header": "bad_response",
    "html_200": "bad_response",
    "not_json_content": "bad_response",
    "empty_body": "bad_response",
    "truncated_json": "bad_response",
    "json_list": "bad_response",
    "deep_json": "bad_response",
    "code_string": "bad_response",
    "missing_data": "bad_response",
    "null_data": "bad_response",
    "huge_body": "bad_response",
    "gzip_bomb": "bad_response",
    "wrong_iccid": "bad_response",
    "gbk": "provider",
    "gbk_no_charset": "provider",
    "code_1001": "provider",
    "code_1002": "provider",
    "code_1003": "auth",
    "code_1004": "provider_rate_limited",
    "code_1004_retry": "provider_rate_limited",
    "business_chinese": "provider",
    "business_long": "provider",
    "close_before_header": "network",
    "close_in_body": "network",
    "reset_before_header": "network",
    "reset_in_header": "network",
    "reset_in_body": "network",
    "hang": "timeout",
    "slow_drip": "timeout",
    "slow_drip_header": "timeout",
}
GOOD = {"json_as_text", "gbk_success", "unknown_status", "missing_times"}
OF_USAGE = {
    "negative_usage": "bad_response",
    "number_commas": "bad_response",
    "huge_number": "bad_response",
    "number_strings": "",
    "usage_decrease": "",
}


def chain(error):
    """The error and all that it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def assert_tells_no_secret(error):
    for link in chain(error):
        assert TOKEN not in f"{link!s}{link!r}{link.args!r}"


def test_every_kind_of_the_simulator_is_tested():
    assert set(KINDS) == set(CATEGORIES) | GOOD | set(OF_USAGE)


@pytest.mark.parametrize("kind", sorted(CATEGORIES))
def test_a_misbehaviour_ends_in_its_category_in_time(call, account, simulator, kind):
    simulator.set_faults(kind)

    error = call.error(account, timeout_s=DEADLINE_S)

    assert error.category == CATEGORIES[kind]
    assert call.elapsed_s < DEADLINE_S + 1
    assert str(error)
    assert len(error.provider_message) <= 500
    assert_tells_no_secret(error)
    assert error.duration <= call.elapsed_s


@pytest.mark.parametrize("kind", sorted(GOOD))
def test_an_odd_but_good_answer_is_taken(call, account, simulator, kind):
    simulator.set_faults(kind)

    answer = call(account)

    assert answer.status in ("unknown", "inventory", "testing", "active", "suspended", "deactivated")
    assert answer.raw_status


@pytest.mark.parametrize("kind", sorted(OF_USAGE))
def test_a_usage_is_taken_or_refused(call, account, simulator, kind):
    simulator.set_faults(kind)

    if category := OF_USAGE[kind]:
        assert call.error(account, "carddata").category == category
    else:
        assert call(account, "carddata").used_bytes >= 0


@pytest.mark.parametrize(
    ("kind", "least_ms", "most_ms"),
    [("http429_retry_after", 1, 600_000), ("http429_retry_date", 0, 600_000), ("code_1004_retry", 1, 600_000)],
)
def test_how_long_the_provider_asks_to_wait_is_told(call, account, simulator, kind, least_ms, most_ms):
    simulator.set_faults(kind)

    assert least_ms <= call.error(account).retry_after_ms <= most_ms


def test_a_business_error_is_told_by_its_code_and_text(call, account, simulator):
    simulator.set_faults("code_1002")

    error = call.error(account)

    assert (error.code, error.provider_code) == ("1002", "1002")
    assert str(error) == "card is locked by another operation"


def test_a_gbk_text_can_be_read(call, account, simulator):
    simulator.set_faults("gbk_no_charset")

    assert any("\u4e00" <= c <= "\u9fff" for c in call.error(account).provider_message)


@pytest.mark.parametrize("kind", ["close_before_header", "reset_before_header", "reset_in_body"])
def test_a_broken_connection_is_tried_once_more(call, account, simulator, kind):
    simulator.set_faults(kind)

    call.error(account)

    assert [c.operation for c in simulator.calls] == ["card_status"] * 2
    assert len({c.request_id for c in simulator.calls}) == 2


@pytest.mark.parametrize("kind", ["http500_html", "empty_body", "code_1001", "code_1003", "hang"])
def test_nothing_else_is_tried_again(call, account, simulator, kind):
    simulator.set_faults(kind)

    call.error(account, timeout_s=DEADLINE_S)

    assert len(simulator.calls) == 1


@pytest.mark.parametrize("operation", ["suspend", "resume"])
def test_a_suspend_that_may_have_arrived_is_not_sent_again(call, account, simulator, operation):
    simulator.set_faults("reset_before_header")

    error = call.error(account, operation, "a reason")

    assert error.category is Category.NETWORK
    assert len(simulator.calls) == 1


def test_a_redirect_to_another_host_is_not_followed(call, account, simulator):
    simulator.set_faults("redirect")

    call.error(account)

    assert len(simulator.calls) == 1


def test_connections_are_kept(call, account, simulator):
    call(account, times=5)

    assert len(simulator.calls) == 5


@pytest.mark.parametrize(
    ("changed", "category"),
    [
        ({"gateway_url": "http://127.0.0.1:1"}, "network"),
        ({"gateway_url": "http://no-such-host.invalid"}, "network"),
        ({"gateway_url": "ftp://127.0.0.1"}, "config"),
        ({"gateway_url": "http://"}, "config"),
        ({"gateway_url": ""}, "config"),
        ({"provider": "nobody"}, "config"),
        ({"token": ""}, "config"),
        ({"token": "two\r\nlines"}, "config"),
        ({"code": "ein Wort zuviel"}, "config"),
        ({"fault": "no key opens the token"}, "config"),
    ],
)
def test_an_account_that_cannot_be_called(call, account, simulator, changed, category):
    error = call.error(replace(account, **changed), timeout_s=3)

    assert error.category == category
    assert simulator.calls == []
    assert_tells_no_secret(error)


# What a raw server does with a connection that it has accepted.


def garbage(connection):
    connection.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")


def endless_header(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nX-Long: ")
    with contextlib.suppress(OSError):
        for _ in range(200):
            connection.sendall(b"x" * 65536)


def wrong_length(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n{}")


def short_body(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}")


def broken_chunks(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n")


def endless_body(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n")
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b" " * 65536)


def drip_body(connection):
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b" ")
            time.sleep(0.05)


def only_interim(connection):
    with contextlib.suppress(OSError):
        while True:
            connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
            time.sleep(0.05)


def no_content(connection):
    connection.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")


@pytest.fixture
def raw_server():
    """Serve each connection with a function, and close it; gives how many connections there were."""
    servers = []

    def serve(play, *, context=None):
        server = socket.create_server(("127.0.0.1", 0))
        accepted = []

        def run():
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                accepted.append(connection)
                threading.Thread(target=handle, args=(connection,), daemon=True).start()

        def handle(connection):
            with contextlib.suppress(OSError, ssl.SSLError):
                if context is not None:
                    connection = context.wrap_socket(connection, server_side=True)
                with connection:
                    connection.recv(65536)
                    play(connection)

        threading.Thread(target=run, daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.getsockname()[1]}", accepted

    yield serve
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("play", "categories"),
    [
        (garbage, {"bad_response"}),
        (endless_header, {"bad_response"}),
        (wrong_length, {"bad_response"}),
        (short_body, {"network"}),
        (broken_chunks, {"bad_response"}),
        (endless_body, {"bad_response"}),
        (drip_body, {"timeout"}),
        (only_interim, {"timeout"}),
        (no_content, {"bad_response"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_no_proper_http(call, account, raw_server, play, categories):
    url, accepted = raw_server(play)

    error = call.error(replace(account, gateway_url=url), timeout_s=DEADLINE_S)

    assert error.category in categories
    assert call.elapsed_s < DEADLINE_S + 1
    assert_tells_no_secret(error)
    for connection in accepted:
        connection.close()


def test_tls_to_a_gateway_that_speaks_none(call, account, raw_server):
    url, _ = raw_server(garbage)

    error = call.error(replace(account, gateway_url=url.replace("http:", "https:")))

    assert error.category is Category.NETWORK
    assert not error.was_sent
    assert_tells_no_secret(error)


def test_a_certificate_that_nobody_vouches_for(call, account, raw_server, tmp_path):
    url, _ = raw_server(no_content, context=self_signed(tmp_path))

    error = call.error(replace(account, gateway_url=url.replace("http://127.0.0.1", "https://localhost")))

    assert error.category is Category.NETWORK
    assert not error.was_sent
    assert_tells_no_secret(error)


def self_signed(folder):
    """Make a server's context with a certificate of its own making."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    path = folder / "server.pem"
    path.write_bytes(
        certificate.public_bytes(serialization.Encoding.PEM)
        + key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    return context
