"""The documents say what is there: variables, checks, keys, commands, files."""

import re
from pathlib import Path

import pytest
from django.conf import settings
from django.core.management import get_commands

from cardpolling import checks, keys
from cardpolling.keys import AccountKeys

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\((?!https?:)([^)#]+)(?:#[^)]*)?\)")
READ = re.compile(r'environment\.\w+\(\s*"([A-Z_]+)"')
MANAGE = re.compile(r"manage\.py\s+([a-z_]+)")
OPTION = re.compile(r"(?:^|\s)(--[a-z-]+)")

OPERATIONS = (ROOT / "docs/operations.md").read_text()
REDIS = (ROOT / "docs/redis.md").read_text()


def variables():
    return sorted(set(READ.findall((ROOT / "cardpolling/settings.py").read_text())))


def row_of(name):
    """The cells of a table row that begins with a name."""
    rows = [line for line in OPERATIONS.splitlines() if line.startswith(f"| `{name}` |")]
    assert len(rows) == 1, name
    return [cell.strip() for cell in rows[0].strip("|").split(" | ")]


def account_keys():
    """Every key of an account as keys.py makes it, by attribute, without its prefix."""
    account = AccountKeys(7)
    made = {}
    for name, member in vars(AccountKeys).items():
        if name.startswith("_") or name in ("carrier_id", "prefix", "card_prefix"):
            continue
        if isinstance(member, property):
            made[name] = getattr(account, name)
        elif callable(member):
            made[name] = getattr(account, name)(42)
    return {name: key.removeprefix(account.prefix) for name, key in made.items()}


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_relative_links_lead_to_files(document):
    links = LINK.findall(document.read_text())

    assert [link for link in links if not (document.parent / link).exists()] == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_exist(document):
    text = " ".join(document.read_text().split())
    named = set(MANAGE.findall(text))

    assert sorted(named - set(get_commands())) == []


def test_every_command_of_ours_is_told():
    ours = {name for name, app in get_commands().items() if app in ("cardpolling", "carriers")}
    told = {name for document in DOCUMENTS for name in MANAGE.findall(document.read_text())}

    assert sorted(ours - told) == []


def test_the_files_that_the_readme_tells_to_run_are_there():
    text = (ROOT / "README.md").read_text()

    for name in ("run", ".ci/run", "manage.py", "requirements.txt"):
        assert name in text
        assert (ROOT / name).is_file()
    for name in ("run", ".ci/run"):
        assert (ROOT / name).stat().st_mode & 0o111


def test_the_options_of_the_demonstration_are_those_of_its_help(capsys):
    from demo import options

    with pytest.raises(SystemExit):
        options.read(["--help"])
    known = set(OPTION.findall(capsys.readouterr().out.replace("[", " ")))
    told = re.findall(r"./run demo ([^`]*)`", (ROOT / "README.md").read_text())

    assert set(OPTION.findall(" ".join(told))) <= known


def test_every_variable_is_explained_and_no_other():
    rows = re.findall(r"^\| `([A-Z_]+)` \|", OPERATIONS, re.MULTILINE)

    assert len(variables()) > 15
    assert sorted(rows) == variables()


def test_every_knob_has_a_range_which_the_document_tells():
    ranges = {knob.setting: knob for knob in checks.RANGES}
    numbers = {
        name for name in dir(settings) if name.startswith("POLLING_") and not name.endswith("_URL")
    }

    assert set(ranges) == numbers
    for name, knob in ranges.items():
        assert row_of(name)[2] == f"{knob.least} to {knob.most}"


def test_defaults_are_those_of_the_settings():
    source = (ROOT / "cardpolling/settings.py").read_text()
    defaults = dict(re.findall(r'environment\.number\("([A-Z_]+)", ([0-9_]+)\)', source))

    assert len(defaults) == len(checks.RANGES)
    for name, default in defaults.items():
        assert row_of(name)[1] == default.replace("_", "")


def test_every_system_check_is_explained():
    in_code = {
        found
        for app in ("cardpolling", "carriers")
        for path in (ROOT / app).rglob("*.py")
        for found in re.findall(r'"((?:cardpolling|carriers)\.[EW]\d{3})"', path.read_text())
    }
    in_document = set(re.findall(r"^\| `([a-z]+\.[EW]\d{3})` \|", OPERATIONS, re.MULTILINE))

    assert in_code == in_document
    assert in_code <= set(re.findall(r"[a-z]+\.[EW]\d{3}", checks.__doc__))


def test_every_key_is_explained():
    rows = set(re.findall(r"^\| `([^`]+)` \|", REDIS, re.MULTILINE))
    expected = {
        key.replace("42", "<card id>")
        if key.startswith("card:")
        else key.replace("stats:42", "stats:<epoch minute>").replace(":42", ":<group>")
        for key in account_keys().values()
    }

    assert len(expected) > 12
    assert sorted(expected - rows) == []


def test_every_key_of_all_accounts_is_explained():
    names = {
        value
        for name, value in vars(keys).items()
        if name.isupper() and isinstance(value, str) and value.startswith("polling:")
    }

    assert names
    assert [name for name in sorted(names) if f"| `{name}` |" not in REDIS] == []
    assert keys.rq_queue_name(7).replace("7", "<carrier id>") in REDIS


def test_every_count_is_explained():
    counted = set()
    for path in (ROOT / "cardpolling").glob("*.py"):
        counted |= set(
            re.findall(r'_counts\.add\(\s*[\w.]+,\s*"([a-z_]+)"', path.read_text(), re.MULTILINE)
        )

    assert len(counted) > 8
    assert [name for name in sorted(counted) if f"`{name}`" not in REDIS] == []
