"""The Chinese catalogue: complete, compiled, and with the same placeholders as the source."""

import ast
import gettext
import re
from pathlib import Path

import pytest
from django.utils import translation
from django.utils.translation import templatize

from carriers.choices import CardStatus
from carriers.models import Carrier

ROOT = Path(__file__).resolve().parent.parent
CATALOGUE = ROOT / "locale/zh_Hans/LC_MESSAGES/django.po"
MARKERS = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext", "ngettext_lazy"}
IN_TEMPLATES = re.compile(r"""gettext\(u?(?P<text>'(?:\\.|[^'])*'|"(?:\\.|[^"])*")\)""")
PLACEHOLDER = re.compile(r"%\(\w+\)[sdr]|%[sdr]")
ENTRY = re.compile(
    r'^msgid (?P<id>(?:".*"\n)+)(?:msgid_plural (?P<plural>(?:".*"\n)+))?msgstr(?:\[0\])? (?P<text>(?:".*"\n)+)',
    re.MULTILINE,
)


def joined(quoted):
    return "".join(ast.literal_eval(line) for line in quoted.split("\n") if line)


def marked_in_code(path):
    for node in ast.walk(ast.parse(path.read_text())):
        name = getattr(node, "func", None) and getattr(
            node.func, "id", getattr(node.func, "attr", "")
        )
        if name in MARKERS and isinstance(node.args[0], ast.Constant):
            yield node.args[0].value


def marked_in_template(path):
    for match in IN_TEMPLATES.finditer(templatize(path.read_text())):
        yield ast.literal_eval(match["text"])


@pytest.fixture(scope="module")
def entries():
    """Source -> translation, as the catalogue has it."""
    text = CATALOGUE.read_text() + "\n"
    return {joined(m["id"]): joined(m["text"]) for m in ENTRY.finditer(text) if joined(m["id"])}


def test_every_string_of_the_source_is_translated(entries):
    code = [p for app in ("cardpolling", "carriers", "demo") for p in (ROOT / app).rglob("*.py")]
    templates = [p for p in (ROOT / "templates").rglob("*") if p.suffix in {".html", ".txt"}]

    marked = {text for path in code for text in marked_in_code(path)}
    marked |= {text for path in templates for text in marked_in_template(path)}

    assert len(marked) > 100
    assert sorted(text for text in marked if not entries.get(text)) == []


def test_nothing_is_fuzzy_or_left_over():
    text = CATALOGUE.read_text()

    assert "fuzzy" not in text
    assert "#~" not in text


def test_the_compiled_catalogue_is_that_of_the_source(entries):
    with CATALOGUE.with_suffix(".mo").open("rb") as file:
        compiled = gettext.GNUTranslations(file)._catalog

    texts = {key if isinstance(key, str) else key[0]: text for key, text in compiled.items() if key}
    assert texts == entries


def test_placeholders_are_the_same_in_both_languages(entries):
    different = [
        text
        for text, translation in entries.items()
        if sorted(PLACEHOLDER.findall(text)) != sorted(PLACEHOLDER.findall(translation))
    ]

    assert different == []


def test_operators_read_their_own_words():
    with translation.override("zh-hans"):
        assert str(Carrier._meta.verbose_name) == "运营商账户"
        assert str(CardStatus.SUSPENDED.label) == "已停机"
