"""The one converter between bytes and what people write and read (pure): 1 MB = 1,024 KB = 1,048,576 bytes."""

import re
from decimal import ROUND_DOWN, Decimal

_UNITS = ("B", "KB", "MB", "GB", "TB", "PB")
_STEP = 1024
_HUNDREDTH = Decimal("0.01")
_SIZE = re.compile(r"(\d+(?:\.\d+)?)([KMGTP]?)(?:I?B)?", re.ASCII)


def parse(text: str) -> int:
    """Read ``1024 MB``, ``1.5GB``, ``1,048,576``; raise ``ValueError`` for anything else."""
    match = _SIZE.fullmatch(re.sub(r"[\s,_]", "", text).upper())
    if match is None:
        raise ValueError(f"not a size: {text!r}")
    number, unit = Decimal(match[1]), match[2]
    size = number * _STEP ** (_UNITS.index(unit + "B") if unit else 0)
    if size != int(size):
        raise ValueError(f"not a size: {text!r}")
    return int(size)


def display(size: int) -> str:
    """Give a size with the unit that suits it, two decimals at most."""
    power = 0
    while abs(size) >= _STEP ** (power + 1) and power < len(_UNITS) - 1:
        power += 1
    # Rounded down: a byte below the allowance must not look like the allowance.
    value = (Decimal(size) / _STEP**power).quantize(_HUNDREDTH, ROUND_DOWN)
    number = f"{value:,f}".rstrip("0").rstrip(".")
    return f"{number} {_UNITS[power]}"


def exact(size: int) -> str:
    """Give a size that ``parse`` reads back to the byte."""
    power = 0
    while size and size % _STEP ** (power + 1) == 0 and power < len(_UNITS) - 1:
        power += 1
    return f"{size // _STEP**power} {_UNITS[power]}"
