"""One HTTP exchange as values: what they show, and how long a gateway asks to wait."""

from datetime import UTC, datetime

import pytest

from cardpolling import clock, connection
from carriers.gateway.exchange import LONGEST_RETRY_AFTER_MS, HttpReply, HttpRequest, retry_after_ms
from tests.carriers.gateway.conftest import dead_redis
from tests.carriers.gateway.outcomes import TOKEN

NOW = datetime(2026, 12, 1, 8, 0, 0, tzinfo=UTC)
NOW_MS = round(NOW.timestamp() * 1000)


@pytest.mark.parametrize(
    ("method", "is_idempotent"), [("GET", True), ("POST", False), ("PUT", False)]
)
def test_only_a_get_may_be_sent_twice(method, is_idempotent):
    assert HttpRequest(method, "http://a", {}).is_idempotent is is_idempotent


def test_request_shows_no_headers():
    request = HttpRequest("GET", "http://a/b", {"Authorization": f"Bearer {TOKEN}"})

    assert TOKEN not in f"{request} {request!r}"
    assert "http://a/b" in repr(request)


def test_reply_is_whole_unless_it_says_otherwise():
    assert HttpReply(200, b"").is_whole
    assert not HttpReply(200, b"", is_whole=False).is_whole


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        ("0", 0),
        ("2", 2_000),
        (" 10 ", 10_000),
        ("007", 7_000),
        ("86400", LONGEST_RETRY_AFTER_MS),
        ("86401", LONGEST_RETRY_AFTER_MS),
        ("9" * 12, LONGEST_RETRY_AFTER_MS),
        ("9" * 10_000, LONGEST_RETRY_AFTER_MS),
    ],
    ids=lambda value: str(value)[:20],
)
def test_wait_in_seconds(text, wait_ms):
    assert retry_after_ms(text) == wait_ms


@pytest.mark.parametrize(
    ("text", "wait_ms"),
    [
        ("Tue, 01 Dec 2026 08:00:30 GMT", 30_000),
        ("Tue, 01 Dec 2026 08:00:30", 30_000),
        ("Tue, 01 Dec 2026 16:00:30 +0800", 30_000),
        ("Tuesday, 01-Dec-26 08:00:30 GMT", 30_000),
        ("Tue, 01 Dec 2026 08:00:00 GMT", 0),
        ("Tue, 01 Dec 2026 07:59:00 GMT", 0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0),
        ("Wed, 02 Dec 2026 07:59:59 GMT", LONGEST_RETRY_AFTER_MS - 1_000),
        ("Wed, 21 Oct 2099 07:28:00 GMT", LONGEST_RETRY_AFTER_MS),
    ],
)
def test_wait_until_a_date(text, wait_ms):
    with clock.frozen(NOW_MS):
        assert retry_after_ms(text) == wait_ms


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "soon", "-5", "+5", "1.5", "1e3", "٣", "²", "５", "2 s", "Tue", "\x00", ","),
        *("Tue, 99 Dec 2026 08:00:00 GMT", "Tue, 01 Dec 2026 99:00:00 GMT"),
        *("Tue, 01 Dec 99999 08:00:00 GMT", "Tue, 01 Dec 2026 08:00:00 +9999"),
        *("9" * 30 + " " + "9" * 30, "Tue, 01 Dec 2026 08:00:00 -" + "9" * 50),
    ],
    ids=lambda text: repr(text[:30]),
)
def test_wait_that_says_nothing(text):
    with clock.frozen(NOW_MS):
        assert retry_after_ms(text) is None


def test_date_says_nothing_where_the_time_is_not_known(client, monkeypatch):
    clock.forget()
    monkeypatch.setattr(connection, "polling_redis", dead_redis)

    assert retry_after_ms("Tue, 01 Dec 2026 08:00:30 GMT") is None
    assert retry_after_ms("30") == 30_000
