"""Good answers with facts that are odd, wrong, or another card's."""

from typing import Any

from carriers.simulator import envelopes, http1
from carriers.simulator.kinds.registry import Exchange, kind

OPTIONAL_TIMES = frozenset({"changed_at", "as_of", "verified_at"})
UNKNOWN_STATUS = "待激活-PRE"


@kind("number_strings", operations=("carddata",))
def _number_strings(exchange: Exchange) -> bytes:
    """Usage as a string of digits."""
    return _with_data(exchange, used_bytes=str(_used_bytes(exchange)))


@kind("number_commas", operations=("carddata",))
def _number_commas(exchange: Exchange) -> bytes:
    """Usage as a string with thousands separators."""
    return _with_data(exchange, used_bytes=f"{_used_bytes(exchange) + 1_000:,}")


@kind("negative_usage", operations=("carddata",))
def _negative_usage(exchange: Exchange) -> bytes:
    """Usage of -1."""
    return _with_data(exchange, used_bytes=-1)


@kind("huge_number", operations=("carddata",))
def _huge_number(exchange: Exchange) -> bytes:
    """Usage of 5,000 digits."""
    text = _with_data(exchange, used_bytes="@").partition(http1.HEAD_END)[2]
    return http1.render_answer(200, text.replace(b'"@"', b"9" * 5_000))


@kind("usage_decrease", operations=("carddata",))
def _usage_decrease(exchange: Exchange) -> bytes:
    """Half the usage, in the same cycle."""
    return _with_data(exchange, used_bytes=_used_bytes(exchange) // 2)


@kind("unknown_status", operations=("card_status",))
def _unknown_status(exchange: Exchange) -> bytes:
    """A status word never seen before."""
    return _with_data(exchange, status=UNKNOWN_STATUS)


@kind("missing_times", operations=("card_status", "carddata", "realname"))
def _missing_times(exchange: Exchange) -> bytes:
    """A good answer without changed_at, as_of and verified_at."""
    envelope = exchange.make_envelope()
    data = envelope["data"] or {}
    kept = {name: value for name, value in data.items() if name not in OPTIONAL_TIMES}
    return envelopes.render(envelope | {"data": kept or None})


@kind("wrong_iccid")
def _wrong_iccid(exchange: Exchange) -> bytes:
    """An answer that names another card."""
    digit = "1" if exchange.iccid[-2:-1] == "0" else "0"
    return _with_data(exchange, iccid=exchange.iccid[:-2] + digit + exchange.iccid[-1:])


def _with_data(exchange: Exchange, **changes: Any) -> bytes:
    """The good answer with fields of its data replaced; an answer without data stays as it is."""
    envelope = exchange.make_envelope()
    if envelope["data"] is not None:
        envelope["data"] = envelope["data"] | changes
    return envelopes.render(envelope)


def _used_bytes(exchange: Exchange) -> int:
    data = exchange.make_envelope()["data"] or {}
    return int(data.get("used_bytes", 0))
