"""The standard gateway protocol: one aggregating gateway in front of the carriers."""

import functools
import json
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import cardpolling
from carriers import iccid as iccids
from carriers.choices import Operation
from carriers.gateway import answers
from carriers.gateway.accounts import Account
from carriers.gateway.call import Call
from carriers.gateway.errors import Category, GatewayError
from carriers.gateway.exchange import HttpReply, HttpRequest

USER_AGENT = f"cardpolling/{cardpolling.__version__}"

_PAGES = {
    Operation.CARD_STATUS: ("GET", "status"),
    Operation.CARDDATA: ("GET", "usage"),
    Operation.REALNAME: ("GET", "realname"),
    Operation.SUSPEND: ("POST", "suspend"),
    Operation.RESUME: ("POST", "resume"),
}
_READERS: Mapping[str, Callable[[dict[str, Any]], Any]] = {
    Operation.CARDDATA: answers.read_usage,
    Operation.REALNAME: answers.read_realname,
    Operation.SUSPEND: answers.read_accepted,
    Operation.RESUME: answers.read_accepted,
}

# A blank, or what begins a password, a query or a fragment.
_FOREIGN_PARTS = re.compile(r"[\s\\@?#]")


class StandardAdapter:
    """Speaks ``standard``."""

    def build(self, account: Account, call: Call, reason: str) -> HttpRequest:
        """The request of a call."""
        _require_usable(account, call.iccid)
        method, page = _PAGES[Operation(call.operation)]
        headers = {
            "Authorization": f"Bearer {account.token}",
            "X-Carrier-Account": account.code,
            "Accept": "application/json",
            # The answers are small: packing costs more than it saves, and a packed one may be a bomb.
            "Accept-Encoding": "identity",
            "User-Agent": USER_AGENT,
            "X-Request-Id": call.request_id,
        }
        body = None
        if method == "POST":
            headers["Content-Type"] = "application/json"
            body = json.dumps({"reason": reason}).encode()
        url = f"{account.gateway_url}/v1/cards/{call.iccid}/{page}"
        return HttpRequest(method, url, headers, body)

    def read(self, account: Account, call: Call, reply: HttpReply) -> Any:
        """The typed answer of the call's operation."""
        data = answers.read_data(reply, iccid=call.iccid, secret=account.token)
        if call.operation == Operation.CARD_STATUS:
            # The one answer whose text is kept.
            return answers.read_status(data, secret=account.token)
        return _READERS[call.operation](data)


def _require_usable(account: Account, iccid: str) -> None:
    """Refuse what would make a broken request, or one that goes elsewhere: a header or a path with foreign parts in it."""
    fault = account.fault
    if not fault and not _is_header_value(account.code):
        fault = "the account's code cannot be sent in a header"
    if not fault and not _is_header_value(account.token):
        fault = "the gateway token is missing or cannot be sent in a header"
    if not fault and not _is_web_address(account.gateway_url):
        fault = "the gateway URL is no http or https address"
    if not fault and not iccids.is_valid(iccid):
        fault = "the card number is no ICCID"
    if fault:
        raise GatewayError(Category.CONFIG, fault, was_sent=False)


def _is_header_value(text: str) -> bool:
    return bool(text) and text.isascii() and text.isprintable() and " " not in text


@functools.lru_cache(1024)
def _is_web_address(url: str) -> bool:
    """Whether both transports take it for the same address, and a path can follow it."""
    try:
        parts = urlsplit(url)
        host = (parts.hostname or "").encode("idna")
        is_complete = bool(host) and parts.port != 0
    except ValueError:
        return False
    is_plain = url.isprintable() and not _FOREIGN_PARTS.search(url)
    return is_complete and parts.scheme in ("http", "https") and is_plain
