"""Environment variables: what is read, and how what cannot be read is refused."""

import pytest
from django.core.exceptions import ImproperlyConfigured

from cardpolling import environment

NAME = "CARDPOLLING_TEST"


@pytest.fixture(params=["text", "words", "number", "flag", "redis_url", "database", "time_zone"])
def reader(request):
    """Each reader with a default of its own, and that default."""
    defaults = {"text": "x", "words": ["x"], "number": 7, "flag": True, "time_zone": "UTC"}
    read = getattr(environment, request.param)
    if request.param == "redis_url":
        return lambda: read(NAME), ""
    if request.param == "database":
        return lambda: read(NAME, "sqlite:///x.sqlite3")["NAME"], "x.sqlite3"
    default = defaults[request.param]
    return lambda: read(NAME, default=default), default


@pytest.mark.parametrize("value", [None, "", "  "])
def test_what_is_not_set_or_empty_has_its_default(monkeypatch, reader, value):
    if value is None:
        monkeypatch.delenv(NAME, raising=False)
    else:
        monkeypatch.setenv(NAME, value)
    read, default = reader

    assert read() == default


@pytest.mark.parametrize(
    ("read", "value", "meaning"),
    [
        (lambda: environment.text(NAME), " a b ", "a b"),
        (lambda: environment.words(NAME), " a, b ,,c", ["a", "b", "c"]),
        (lambda: environment.number(NAME, 1), " 42 ", 42),
        (lambda: environment.flag(NAME, default=False), "Yes", True),
        (lambda: environment.flag(NAME, default=True), "0", False),
        (lambda: environment.redis_url(NAME), "rediss://h:1/2", "rediss://h:1/2"),
        (lambda: environment.time_zone(NAME, "UTC"), "Asia/Shanghai", "Asia/Shanghai"),
        (lambda: environment.database(NAME, "")["HOST"], "postgres://u:p@db:5432/x", "db"),
    ],
)
def test_what_is_set_is_read(monkeypatch, read, value, meaning):
    monkeypatch.setenv(NAME, value)

    assert read() == meaning


@pytest.mark.parametrize(
    ("read", "value"),
    [
        (lambda: environment.number(NAME, 1), "secret-1.5"),
        (lambda: environment.flag(NAME, default=False), "secret-maybe"),
        (lambda: environment.redis_url(NAME), "http://:secret@h"),
        (lambda: environment.redis_url(NAME), "redis://:secret@h:port"),
        (lambda: environment.redis_url(NAME), "redis:secret"),
        (lambda: environment.database(NAME, ""), "mysql://u:secret@h/x"),
        (lambda: environment.database(NAME, ""), "postgres:secret"),
        (lambda: environment.time_zone(NAME, "UTC"), "Mars/Secret"),
        (lambda: environment.time_zone(NAME, "UTC"), "../secret"),
    ],
)
def test_what_cannot_be_read_is_one_line_without_the_value(monkeypatch, read, value):
    monkeypatch.setenv(NAME, value)

    with pytest.raises(ImproperlyConfigured) as refusal:
        read()

    said = str(refusal.value)
    assert NAME in said
    assert "for example" in said
    assert "\n" not in said
    assert "secret" not in said.lower()
