"""The card number: normal form, validity, check digit and the twin with or without it (pure)."""

import re
import unicodedata

from stdnum import luhn

SHORTEST, LONGEST = 18, 20
_SHAPE = re.compile(r"[0-9]{17,19}[0-9F]", re.ASCII)
_SEPARATORS = re.compile(r"[\s\-\u2010-\u2015\u2212\u200b\u200e\u200f\u2060\ufeff]+")


def normalised(text: str) -> str:
    """Give a number as it is stored: no separators, full-width characters mapped, upper case."""
    return _SEPARATORS.sub("", unicodedata.normalize("NFKC", text)).upper()


def is_valid(iccid: str) -> bool:
    """Tell whether a normalised number is 18 to 20 digits, the last of which may be a hex F."""
    return _SHAPE.fullmatch(iccid) is not None


def luhn_holds(iccid: str) -> bool:
    """Tell whether the last digit is the Luhn check digit; many real cards lack it, so only report."""
    return iccid.isdecimal() and luhn.is_valid(iccid)


def twins(iccid: str) -> list[str]:
    """Give the other spellings of the same card: without or with the Luhn digit or the filler F."""
    shorter = iccid[:-1] if luhn_holds(iccid) or iccid.endswith("F") else ""
    longer = [iccid + luhn.calc_check_digit(iccid), iccid + "F"] if iccid.isdecimal() else []
    return [twin for twin in (shorter, *longer) if is_valid(twin)]
