"""Carries requests on the executor's event loop, with ``aiohttp``."""

import asyncio
import functools
import select
from typing import Any

import aiohttp
from aiohttp import http_exceptions
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from carriers.gateway import resolving, tls
from carriers.gateway.errors import Category, GatewayError
from carriers.gateway.exchange import MAX_BODY_BYTES, MAX_INTERIM_ANSWERS, HttpReply, HttpRequest

KEEP_ALIVE_S = 60.0
"""A little less than gateways commonly keep an idle connection (65 to 75 s): the side that closes first meets no surprise."""

READ_BUFFER_BYTES = 65_536


class _Handler(ResponseHandler):
    """A connection that is used again only where it is open and nothing has come over it unasked.

    The library would take an answer that came late, or twice, for the answer to the next request: another card's.
    """

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Watch the socket."""
        super().connection_made(transport)
        self._answers = 0
        self._poll = select.poll()
        self._poll.register(transport.get_extra_info("socket"), select.POLLIN)

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Take one answer, interim or not; a flood of them ends the connection, before it takes the loop from everybody else."""
        self._answers += 1
        if self._answers <= MAX_INTERIM_ANSWERS + 1:
            super().feed_data(data, size)
        elif self.transport is not None and not self.transport.is_closing():
            self.transport.close()
            self.set_exception(http_exceptions.BadHttpMessage("too many interim answers"))

    def is_connected(self) -> bool:
        """Whether a request may be sent; only asked of a connection that rests."""
        self._answers = 0
        return super().is_connected() and not self.should_close and not self._has_news()

    def _has_news(self) -> bool:
        """Whether bytes, or the end, have arrived that the loop has not read yet."""
        return bool(self._poll.poll(0))


class _Connector(aiohttp.TCPConnector):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        # There is no public way to say which class stands for a connection.
        self._factory: Any = functools.partial(_Handler, loop=self._loop)


class AiohttpTransport:
    """Carries any number of requests side by side; to be made on the loop it serves."""

    def __init__(self, concurrency: int) -> None:
        self._session = aiohttp.ClientSession(
            connector=_Connector(
                # A card waits for its slot and not for a connection: there are as many as cards at a time.
                limit=concurrency,
                keepalive_timeout=KEEP_ALIVE_S,
                ssl=tls.context(),
                ttl_dns_cache=60,
                resolver=resolving.Resolver(),
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
            auto_decompress=False,
            trust_env=False,
            read_bufsize=READ_BUFFER_BYTES,
        )
        # aiohttp sends a request again on its own where the connection broke; each of ours takes a slot.
        self._session._retry_connection = False  # there is no public way

    async def carry(self, request: HttpRequest, *, deadline_s: float) -> HttpReply:
        """Exchange a request for an answer before ``deadline_s`` of the loop's clock. Raises ``GatewayError``."""
        if deadline_s <= asyncio.get_running_loop().time():
            raise GatewayError(Category.TIMEOUT, "no time was left", was_sent=False)
        try:
            async with asyncio.timeout_at(deadline_s):
                return await self._carry(request)
        except TimeoutError:
            failure = GatewayError(Category.TIMEOUT, "the gateway did not answer in time")
        except (
            aiohttp.ClientError,
            http_exceptions.HttpProcessingError,
            OSError,
            ValueError,
        ) as error:
            failure = _error_of(error)
        # Outside the handler: the library's error holds the request with its token, and must not even be this one's context.
        raise failure

    async def close(self) -> None:
        """Close the connections."""
        await self._session.close()

    async def _carry(self, request: HttpRequest) -> HttpReply:
        async with self._session.request(
            request.method,
            URL(request.url, encoded=True),
            headers=request.headers,
            data=request.body,
            allow_redirects=False,
        ) as answer:
            body = bytearray()
            while chunk := await answer.content.readany():
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    break
            is_whole = len(body) <= MAX_BODY_BYTES
            if not is_whole:
                answer.close()
            return HttpReply(
                status=answer.status,
                body=bytes(body[:MAX_BODY_BYTES]),
                content_type=answer.headers.get("Content-Type", ""),
                retry_after=answer.headers.get("Retry-After", ""),
                is_whole=is_whole,
            )


def _error_of(error: Exception) -> GatewayError:
    """What the library's error means; its text is not taken over, since it may quote the request."""
    name = type(error).__name__
    if isinstance(error, aiohttp.InvalidURL):
        return GatewayError(Category.CONFIG, "the gateway URL cannot be used", was_sent=False)
    if isinstance(error, aiohttp.ClientConnectorError | aiohttp.ClientConnectorDNSError):
        return GatewayError(Category.NETWORK, f"no connection ({name})", was_sent=False)
    if isinstance(error, aiohttp.ClientResponseError | http_exceptions.HttpProcessingError):
        return GatewayError(Category.BAD_RESPONSE, "the answer is no HTTP")
    if isinstance(error, aiohttp.ClientError | OSError):
        return GatewayError(Category.NETWORK, f"connection broken ({name})")
    return GatewayError(Category.INTERNAL, f"unexpected {name}")
