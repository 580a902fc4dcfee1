"""The demonstration's cards."""

import csv
from pathlib import Path

import pytest
from stdnum import luhn

DEMO = Path(__file__).parents[2] / "demo"
NETWORKS = {"cmcc-demo": "46000", "cucc-demo": "46001", "ctcc-demo": "46003"}


def cards_of(code):
    """The rows of one account's file."""
    with (DEMO / f"cards-{code}.csv").open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


@pytest.mark.parametrize("code", NETWORKS)
def test_an_account_has_a_thousand_valid_cards(code):
    cards = cards_of(code)

    assert len(cards) == 1_000
    assert list(cards[0]) == ["iccid", "msisdn", "imsi", "package"]
    assert all(c["iccid"].startswith("8986") and len(c["iccid"]) == 20 for c in cards)
    assert all(luhn.is_valid(c["iccid"]) for c in cards)
    assert all(len(c["msisdn"]) == 11 and c["msisdn"].isdigit() for c in cards)
    assert all(len(c["imsi"]) == 15 and c["imsi"].isdigit() for c in cards)
    assert all(c["imsi"].startswith(NETWORKS[code]) for c in cards)
    assert {c["package"] for c in cards} == {"IoT 100 MB", "IoT 1 GB", ""}


@pytest.mark.parametrize("column", ["iccid", "msisdn", "imsi"])
def test_no_number_stands_twice(column):
    numbers = [card[column] for code in NETWORKS for card in cards_of(code)]

    assert len(set(numbers)) == 3_000
