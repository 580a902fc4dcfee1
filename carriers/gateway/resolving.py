"""Looks up hosts, for both transports, without anybody having to wait for a resolver that hangs.

``getaddrinfo`` takes no timeout and cannot be interrupted, so each lookup has a thread of its own: whoever asked leaves when its
time is over, and the hanging lookups of one gateway take no thread away from the others. Lookups are rare, connections are kept.
"""

import asyncio
import socket
import threading
from concurrent.futures import Future
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

_Address = tuple[Any, ...]
_Found = tuple[socket.AddressFamily, _Address]


def look_up(host: str, port: int, family: int = socket.AF_UNSPEC) -> "Future[list[_Found]]":
    """Addresses of a host in the order in which they are to be tried; the future may fail with ``OSError`` or ``UnicodeError``."""
    future: Future[list[_Found]] = Future()
    future.set_running_or_notify_cancel()
    threading.Thread(
        target=_resolve, args=(future, host, port, family), name="gateway-dns", daemon=True
    ).start()
    return future


def _resolve(future: "Future[list[_Found]]", host: str, port: int, family: int) -> None:
    try:
        found = socket.getaddrinfo(host, port, family, socket.SOCK_STREAM)
    except Exception as error:  # noqa: BLE001  whoever asked is told
        future.set_exception(error)
    else:
        future.set_result([(entry[0], entry[4]) for entry in found])


class Resolver(AbstractResolver):
    """The same for ``aiohttp``."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Addresses of a host; raises ``OSError``."""
        found = await asyncio.wrap_future(look_up(host, port, family))
        return [
            ResolveResult(
                hostname=host,
                host=_text(address),
                port=address[1],
                family=found_family,
                proto=0,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for found_family, address in found
        ]

    async def close(self) -> None:
        """Nothing is kept."""


def _text(address: _Address) -> str:
    """The address with its zone, which a link-local one needs."""
    is_zoned = len(address) > 3 and address[3] and "%" not in address[0]  # noqa: PLR2004  IPv6
    return f"{address[0]}%{address[3]}" if is_zoned else str(address[0])
