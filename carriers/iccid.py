"""The card number: normal form, validity, check digit, and the other spellings of the same card. Pure."""

import re
import unicodedata

SHORTEST, LONGEST = 18, 20
FILLER = "F"
_SHAPE = re.compile(r"[0-9]{17,19}[0-9F]", re.ASCII)
_SEPARATORS = re.compile(r"[\s\-\u2010-\u2015\u2212\u200b\u200e\u200f\u2060\ufeff]+")
_DOUBLED = str.maketrans("0123456789", "0246813579")


def normalised(text: str) -> str:
    """Give a number as it is stored: no separators, full-width characters mapped, upper case."""
    return _SEPARATORS.sub("", unicodedata.normalize("NFKC", text)).upper()


def is_valid(iccid: str) -> bool:
    """Tell whether a normalised number is 18 to 20 digits, the last of which may be a hex F."""
    return _SHAPE.fullmatch(iccid) is not None


def check_digit(digits: str) -> str:
    """Give the Luhn digit that follows these digits."""
    backwards = digits[::-1]
    total = sum(map(int, backwards[::2].translate(_DOUBLED))) + sum(map(int, backwards[1::2]))
    return str(-total % 10)


def luhn_holds(iccid: str) -> bool:
    """Tell whether the last digit is the Luhn digit; many real cards lack it, so this is reported and never refused."""
    return iccid.isdecimal() and check_digit(iccid[:-1]) == iccid[-1]


def twins(iccid: str) -> list[str]:
    """Give the other spellings of the same card: without or with its Luhn digit or the filler F."""
    if iccid.endswith(FILLER):
        body = iccid[:-1]
        found = [body, body + check_digit(body)]
    else:
        found = [iccid + check_digit(iccid), iccid + FILLER]
        if luhn_holds(iccid):
            found += [iccid[:-1], iccid[:-1] + FILLER]
    return [twin for twin in found if is_valid(twin)]
