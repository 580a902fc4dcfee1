"""``manage.py import_cards``."""

import pytest
from django.core.management import CommandError, call_command

from carriers.models import Card, Package

GOOD = "iccid,msisdn\n8986001234567890123,138\n8986001234567890555,139\n"


@pytest.fixture
def write(tmp_path):
    """Write a file and give its path."""

    def write_file(content):
        path = tmp_path / "cards.csv"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return str(path)

    return write_file


def test_a_file_is_imported_and_the_counts_end_it(write, carrier, capsys):
    call_command("import_cards", write(GOOD), carrier=carrier.code)

    out = capsys.readouterr().out
    assert Card.objects.count() == 2
    assert "2 created, 0 updated, 0 unchanged, 0 repeated, 0 refused." in out


def test_refused_rows_are_listed_and_the_exit_code_tells(write, carrier, capsys):
    with pytest.raises(SystemExit) as raised:
        call_command("import_cards", write(GOOD + "123,1\n"), carrier=carrier.code)

    out = capsys.readouterr().out
    assert raised.value.code == 1
    assert "Row 4 refused: “123” is no ICCID" in out
    assert (Card.objects.count(), "1 refused." in out) == (2, True)


def test_a_dry_run_writes_nothing_and_says_so(write, carrier, capsys):
    call_command("import_cards", write(GOOD), carrier=carrier.code, dry_run=True)

    assert "Nothing written (dry run): 2 created" in capsys.readouterr().out
    assert Card.objects.count() == 0


def test_the_package_is_for_rows_that_name_none(write, carrier):
    package = Package.objects.create(name="small", allowance_bytes=1)

    call_command("import_cards", write(GOOD), carrier=carrier.code, package="small")

    assert package.cards.count() == 2


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (GOOD, {"carrier": "nobody"}, r"no account with the code nobody\. Known codes: acme"),
        (GOOD, {"package": "huge"}, "no package named huge"),
        ("", {}, "empty"),
        ("number\n1\n", {}, "no column iccid"),
    ],
)
def test_what_cannot_be_used_is_said_in_one_message(write, carrier, content, options, message):
    with pytest.raises(CommandError, match=message) as raised:
        call_command("import_cards", write(content), **{"carrier": carrier.code} | options)

    assert raised.value.returncode == 2


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_a_file_that_cannot_be_opened_is_said(tmp_path, carrier, name):
    with pytest.raises(CommandError, match=r"No such file|directory") as raised:
        call_command("import_cards", str(tmp_path / name), carrier=carrier.code)

    assert raised.value.returncode == 2


def test_control_characters_of_a_file_do_not_reach_the_terminal(write, carrier, capsys):
    with pytest.raises(SystemExit):
        call_command("import_cards", write("iccid\n\x1b[31mred\n"), carrier=carrier.code)

    assert "\x1b" not in capsys.readouterr().out


def test_no_progress_bar_disturbs_a_pipe(write, carrier, capsys):
    call_command("import_cards", write(GOOD), carrier=carrier.code)

    assert capsys.readouterr().err == ""
