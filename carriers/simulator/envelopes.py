"""The envelope of every answer that the gateway itself makes."""

import json
from collections.abc import Mapping
from typing import Any

from carriers.simulator import http1

_ENCODER = json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))


def business_error(code: int, message: str, data: Any = None) -> dict[str, Any]:
    """The envelope of a provider error."""
    return {"code": code, "message": message, "data": data}


def as_json(value: Any) -> bytes:
    """JSON as gateways write it: compact, Chinese as it is, in UTF-8."""
    return _ENCODER.encode(value).encode()


def render(envelope: Mapping[str, Any]) -> bytes:
    """The whole answer: HTTP 200 with the envelope as JSON."""
    return http1.render_answer(200, as_json(envelope))
