"""Cards from a CSV file."""

import io

import pytest
from django.db import connection

from carriers import imports
from carriers.csvrows import UnusableFile
from carriers.imports import Counts
from carriers.models import Card, Package

ICCID = "8986001234567890123"
WITH_CHECK_DIGIT = "89860012345678901238"


@pytest.fixture
def packages(db):
    """Packages by name."""
    names = ("small", "畅享包")
    return {name: Package.objects.create(name=name, allowance_bytes=1) for name in names}


@pytest.fixture
def run(carrier):
    """Import a text or bytes; give the counts and the refused rows."""

    def run_import(content, **options):
        refused = []
        data = content.encode() if isinstance(content, str) else content
        counts = imports.import_cards(
            io.BytesIO(data),
            options.pop("carrier", carrier),
            on_refused=lambda number, reason: refused.append((number, reason)),
            **options,
        )
        return counts, refused

    return run_import


def lines(*rows):
    return "\n".join(("iccid,msisdn,imsi,package", *rows))


def test_new_cards_are_created_under_polling(run, carrier, packages):
    counts, refused = run(lines(f"{ICCID},13800138000,460001234567890,畅享包"))

    card = Card.objects.get()
    assert (card.carrier, card.iccid, card.is_polled) == (carrier, ICCID, True)
    assert (card.msisdn, card.imsi) == ("13800138000", "460001234567890")
    assert card.package == packages["畅享包"]
    assert (counts.created, refused) == (1, [])


def test_a_second_run_changes_nothing(run, packages, told):
    text = lines(f"{ICCID},13800138000,,small", "898600000000000001,,,", "898600000000000002,,,")
    run(text)
    told.clear()
    before = list(Card.objects.values())

    counts, refused = run(text)

    assert (counts.unchanged, counts.created, counts.updated, refused) == (3, 0, 0, [])
    assert list(Card.objects.values()) == before
    assert told == []


def test_a_known_card_is_completed_and_empty_cells_change_nothing(run, carrier, make_card):
    make_card(carrier, iccid=ICCID, msisdn="1", imsi="2", status="active", is_polled=False)

    counts, _ = run(lines(f"{ICCID},3,,"))

    card = Card.objects.get()
    assert (card.msisdn, card.imsi, card.status, card.is_polled) == ("3", "2", "active", False)
    assert counts.updated == 1


@pytest.mark.parametrize(
    "columns", ["iccid", "ICCID ", "\ufeffIccid", "ｉｃｃｉｄ", "iccid,note", '"iccid"']
)
def test_columns_go_by_their_names(run, columns):
    counts, refused = run(f"{columns}\r\n{ICCID}{',x' if ',' in columns else ''}\r\n")

    assert (counts.created, refused) == (1, [])


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_delimiters_of_all_spreadsheets_are_read(run, delimiter):
    run(delimiter.join(("msisdn", "iccid")) + "\n" + delimiter.join(("138", ICCID)))

    assert Card.objects.values_list("iccid", "msisdn").get() == (ICCID, "138")


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk", "gb18030"])
def test_encodings_are_told_apart(run, packages, encoding):
    counts, refused = run(lines(f"{ICCID},,,畅享包").encode(encoding))

    assert (counts.created, refused) == (1, [])
    assert Card.objects.get().package == packages["畅享包"]


@pytest.mark.parametrize(
    "written",
    [
        "8986 0012 3456 7890 123",
        "8986-0012-3456-7890-123",
        "８９８６００１２３４５６７８９０１２３",
        "\u3000８９８６ 0012 3456 7890 123\u200b",
        "'8986001234567890123",
        '="8986001234567890123"',
        '"=""8986001234567890123"""',
    ],
)
def test_a_number_is_brought_into_normal_form(run, written):
    counts, refused = run(f"iccid\n{written}\n")

    assert (Card.objects.get().iccid, refused, counts.created) == (ICCID, [], 1)


@pytest.mark.parametrize(
    ("row", "reason"),
    [
        pytest.param(",,,", "no ICCID", id="no number"),
        pytest.param("123,,,", "no ICCID", id="too short"),
        pytest.param("898600123456789012345,,,", "no ICCID", id="too long"),
        pytest.param("89860012F4567890123,,,", "no ICCID", id="F in the middle"),
        pytest.param("8.98600E+18,,,", "spreadsheet", id="rounded by a spreadsheet"),
        pytest.param(f"{ICCID},123456789012345678901,,", "MSISDN", id="MSISDN too long"),
        pytest.param(f"{ICCID},=cmd|'/c calc'!A1,,", "MSISDN", id="a formula"),
        pytest.param(f"{ICCID},13\x008,,", "MSISDN", id="a NUL"),
        pytest.param(f"{ICCID},,4600012345678901,", "IMSI", id="IMSI too long"),
        pytest.param(f"{ICCID},,,huge", "package", id="unknown package"),
        pytest.param(f'{ICCID},"138,,', "quotation", id="a quotation mark nobody closed"),
        pytest.param(f"{ICCID},138", "columns", id="cells lack"),
        pytest.param(f"{ICCID},138,,,x", "columns", id="a cell too many"),
        pytest.param(f"{ICCID}," + "1" * 70_000 + ",,", "too long", id="a very long row"),
    ],
)
def test_a_broken_row_is_refused_and_the_rest_imported(run, packages, row, reason):
    counts, refused = run(lines("898600000000000001,,,", row, "898600000000000002,,,small"))

    assert [number for number, _ in refused] == [3]
    assert reason in refused[0][1]
    assert (counts.created, counts.refused) == (2, 1)


def test_a_row_with_damaged_bytes_is_refused_alone(run, packages):
    rows = [f"{898600000000000000 + n},,,畅享包".encode() for n in range(5)]
    rows[2] = b"898600000000000002,,,\xe7\x95"

    counts, refused = run(b"\n".join([b"iccid,msisdn,imsi,package", *rows]))

    assert ([number for number, _ in refused], counts.created) == ([4], 4)


def test_trailing_empty_cells_and_empty_rows_are_passed_over(run):
    counts, refused = run(lines(f"{ICCID},,,,,", "", "   "))

    assert (counts.created, refused) == (1, [])


def test_a_repeated_row_is_counted_and_a_contradicting_one_refused(run):
    rows = (f"{ICCID},138,,", f"{ICCID[:9]} {ICCID[9:]},138,,", f"{ICCID},139,,")

    counts, refused = run(lines(*rows))

    assert (counts.created, counts.repeated, counts.refused) == (1, 1, 1)
    assert refused == [(4, "Row 2 says something else about this card.")]
    assert Card.objects.get().msisdn == "138"


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (ICCID, WITH_CHECK_DIGIT),
        (WITH_CHECK_DIGIT, ICCID),
        (ICCID, ICCID + "F"),
        (ICCID + "F", ICCID),
    ],
)
def test_a_card_written_with_and_without_check_digit_is_refused_once(run, first, second):
    counts, refused = run(lines(f"{first},,,", f"{second},,,"))

    assert (counts.created, counts.refused) == (1, 1)
    assert refused[0][0] == 3
    assert first in refused[0][1]
    assert Card.objects.get().iccid == first


def test_a_card_known_without_its_check_digit_is_refused(run, carrier, make_card):
    make_card(carrier, iccid=ICCID)

    counts, refused = run(lines(f"{WITH_CHECK_DIGIT},,,"))

    assert (counts.created, Card.objects.count()) == (0, 1)
    assert ICCID in refused[0][1]


def test_rows_far_apart_are_compared(run, monkeypatch):
    monkeypatch.setattr(imports, "BATCH_ROWS", 2)
    rows = [f"{898600000000000000 + n},,," for n in range(6)]

    counts, refused = run(lines(*rows, rows[0], "898600000000000000,1,,", rows[1]))

    assert (counts.created, counts.repeated, counts.refused) == (6, 2, 1)
    assert refused[0][0] == 9


def test_a_card_of_another_account_is_refused_and_stays(run, make_carrier, make_card):
    other = make_carrier("other")
    card = make_card(other, iccid=ICCID)

    counts, refused = run(lines(f"{ICCID},138,,"))

    card.refresh_from_db()
    assert (card.carrier, card.msisdn, counts.refused) == (other, "", 1)
    assert "other" in refused[0][1]


def test_the_package_column_goes_before_the_argument(run, packages):
    text = lines("898600000000000001,,,畅享包", "898600000000000002,,,")

    run(text, package=packages["small"])

    names = Card.objects.order_by("iccid").values_list("package__name", flat=True)
    assert list(names) == ["畅享包", "small"]


def test_a_dry_run_counts_and_writes_nothing(run, told):
    told.clear()

    counts, _refused = run(lines(f"{ICCID},,,", f"{ICCID},,,", "1,,,"), is_dry_run=True)

    assert (counts.created, counts.repeated, counts.refused) == (1, 1, 1)
    assert (Card.objects.count(), told) == (0, [])


def test_missing_check_digits_are_counted_and_not_refused(run):
    counts, refused = run(lines(f"{WITH_CHECK_DIGIT},,,", "8986001234567890555,,,"))

    assert (counts.created, counts.without_check_digit, refused) == (2, 1, [])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "empty"),
        (b"\r\n", "empty"),
        (b"number\n1\n", "iccid"),
        (b"iccid,iccid\n1,2\n", "twice"),
        ("iccid\n1\n".encode("utf-16"), "UTF-16"),
        (b"\x89PNG\xff\xff\xff\n", "neither"),
    ],
)
def test_an_unusable_file_is_refused_as_a_whole(run, content, reason):
    with pytest.raises(UnusableFile, match=reason):
        run(content)


def test_lifecycle_hears_of_new_cards_once_per_batch(run, carrier, told):
    told.clear()

    run(lines(*(f"{898600000000000000 + n},,," for n in range(3))))

    ids = Card.objects.order_by("pk").values_list("pk", flat=True)
    assert told == [(card_id, None, carrier.pk) for card_id in ids]


def test_many_rows_need_few_queries(run, django_assert_max_num_queries):
    rows = [f"{898600000000000000 + n},,," for n in range(1500)]

    with django_assert_max_num_queries(20):
        counts, _ = run(lines(*rows))

    assert counts == Counts(created=1500, without_check_digit=counts.without_check_digit)


def test_a_card_created_by_another_writer_meanwhile_is_not_doubled(run, carrier, monkeypatch):
    known_cards = imports._known_cards
    once = iter([lambda: Card.objects.create(carrier=carrier, iccid=ICCID, msisdn="7")])

    def create_in_between(numbers):
        known = known_cards(numbers)
        next(once, lambda: None)()
        return known

    monkeypatch.setattr(imports, "_known_cards", create_in_between)

    counts, _ = run(lines(f"{ICCID},138,,", "898600000000000001,,,"))

    assert (counts.created, counts.updated, Card.objects.count()) == (1, 1, 2)
    assert connection.is_usable()
