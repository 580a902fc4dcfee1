"""Carries requests for synchronous callers (admin, commands, the rest of the platform), with ``requests``.

``requests`` bounds each read of a socket, not an exchange: a gateway that sends a byte now and then keeps it for ever. So a timer
shuts the connection down when the deadline has come.
"""

import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPException, IncompleteRead, RemoteDisconnected
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from cardpolling import clock
from carriers.gateway import tls
from carriers.gateway.errors import Category, GatewayError
from carriers.gateway.exchange import MAX_BODY_BYTES, HttpReply, HttpRequest

KEPT_CONNECTIONS = 32
"""Connections kept per gateway: more threads than that seldom call at once."""

CHUNK_BYTES = 65_536


class _Exchange(threading.local):
    """The exchange that this thread carries; connections tell it which socket it uses."""

    connection: HTTPConnection | None = None
    was_sent = False


_current = _Exchange()


class _Reporting:
    """A connection that says that it is in use, and when a request begins to leave."""

    def connect(self) -> None:
        _current.connection = self  # type: ignore[assignment]
        super().connect()  # type: ignore[misc]

    def request(self, *args: Any, **kwargs: Any) -> None:
        _current.connection = self  # type: ignore[assignment]
        if getattr(self, "sock", None) is None:
            self.connect()
        _current.was_sent = True
        super().request(*args, **kwargs)  # type: ignore[misc]


class _Connection(_Reporting, HTTPConnection):
    pass


class _SecureConnection(_Reporting, HTTPSConnection):
    pass


class _Pool(urllib3.HTTPConnectionPool):
    ConnectionCls = _Connection


class _SecurePool(urllib3.HTTPSConnectionPool):
    ConnectionCls = _SecureConnection


class _Adapter(HTTPAdapter):
    """Keeps connections, and never tries again on its own: each attempt takes a slot."""

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=tls.context(), **kwargs)
        self.poolmanager.pool_classes_by_scheme = {"http": _Pool, "https": _SecurePool}


class RequestsTransport:
    """Carries one request at a time per thread; may be shared by threads, and a forked child gets connections of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: requests.Session | None = None
        self._owner_pid = 0

    def carry(self, request: HttpRequest, *, deadline_s: float) -> HttpReply:
        """Exchange a request for an answer before ``deadline_s`` of the monotonic clock. Raises ``GatewayError``."""
        left_s = deadline_s - clock.monotonic()
        if left_s <= 0:
            raise GatewayError(Category.TIMEOUT, "no time was left", was_sent=False)
        _current.connection, _current.was_sent = None, False
        reply, failure = None, None
        with _shut_down_after(left_s) as watch:
            try:
                reply = self._carry(request, left_s)
            except Exception as error:  # noqa: BLE001  whatever the library raises has a category
                failure = _error_of(error, is_late=watch.is_late, was_sent=_current.was_sent)
            finally:
                _current.connection = None
        if watch.is_late and failure is None:
            # A header that is cut off by the shutdown counts as complete for the library.
            failure = GatewayError(Category.TIMEOUT, "the gateway did not answer in time")
        if reply is None or failure is not None:
            # Outside the handler: the library's error holds the request with its token, and must not even be this one's context.
            raise failure or GatewayError(Category.INTERNAL)
        return reply

    def close(self) -> None:
        """Close the kept connections."""
        with self._lock:
            if self._session is not None and self._owner_pid == os.getpid():
                self._session.close()
            self._session = None

    def _carry(self, request: HttpRequest, left_s: float) -> HttpReply:
        prepared = requests.Request(
            request.method, request.url, headers=request.headers, data=request.body
        ).prepare()
        answer = self._open_session().send(
            prepared, stream=True, timeout=left_s, allow_redirects=False
        )
        try:
            body = b""
            while chunk := answer.raw.read1(CHUNK_BYTES, decode_content=False):
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    break
            is_whole = len(body) <= MAX_BODY_BYTES
            if not is_whole:
                answer.raw.close()
            return HttpReply(
                status=answer.status_code,
                body=body[:MAX_BODY_BYTES],
                content_type=answer.headers.get("Content-Type", ""),
                retry_after=answer.headers.get("Retry-After", ""),
                is_whole=is_whole,
            )
        finally:
            answer.close()

    def _open_session(self) -> requests.Session:
        with self._lock:
            if self._session is None or self._owner_pid != os.getpid():
                self._session, self._owner_pid = _open_session(), os.getpid()
            return self._session


def _open_session() -> requests.Session:
    session = requests.Session()
    # Else proxies and .netrc are looked up in the environment for each call, and the latter may replace the token.
    session.trust_env = False
    adapter = _Adapter(pool_connections=KEPT_CONNECTIONS, pool_maxsize=KEPT_CONNECTIONS)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


class _Watch:
    """Shuts the exchange's connection down when its time is over."""

    def __init__(self, exchange: dict[str, Any]) -> None:
        self.is_late = False
        self._exchange = exchange

    def shut_down(self) -> None:
        """The deadline has come."""
        self.is_late = True
        sock = getattr(self._exchange.get("connection"), "sock", None)
        if sock is None:
            return
        try:
            # A socket under TLS is shut down below it: its own shutdown would talk to the other side.
            socket.socket.shutdown(sock, socket.SHUT_RDWR)
        except OSError:
            return


@contextmanager
def _shut_down_after(left_s: float) -> Iterator[_Watch]:
    watch = _Watch(_current.__dict__)
    timer = threading.Timer(left_s, watch.shut_down)
    timer.daemon = True
    timer.start()
    try:
        yield watch
    finally:
        timer.cancel()


def _error_of(error: Exception, *, is_late: bool, was_sent: bool) -> GatewayError:
    """What the library's error means; its text is not taken over, since it may quote the request."""
    if isinstance(error, GatewayError):
        return error
    if is_late or isinstance(error, requests.Timeout | urllib3.exceptions.TimeoutError | TimeoutError):
        return GatewayError(
            Category.TIMEOUT, "the gateway did not answer in time", was_sent=was_sent
        )
    if isinstance(error, requests.exceptions.InvalidURL | UnicodeError) and not was_sent:
        return GatewayError(Category.CONFIG, "the gateway URL cannot be used", was_sent=False)
    if _is_not_http(error):
        return GatewayError(Category.BAD_RESPONSE, "the answer is no HTTP")
    if isinstance(error, requests.RequestException | urllib3.exceptions.HTTPError | OSError):
        done = "connection broken" if was_sent else "no connection"
        return GatewayError(Category.NETWORK, f"{done} ({_root(error)})", was_sent=was_sent)
    return GatewayError(Category.INTERNAL, f"unexpected {type(error).__name__}", was_sent=was_sent)


def _is_not_http(error: BaseException) -> bool:
    """Whether the connection held and what came over it was not HTTP."""
    causes = list(_causes(error))
    # A chunk whose length is no number is told as an incomplete read that came from a ValueError.
    if any(type(cause) is ValueError for cause in causes):
        return True
    if any(isinstance(cause, IncompleteRead | RemoteDisconnected) for cause in causes):
        return False
    return any(isinstance(cause, HTTPException) for cause in causes)


def _root(error: BaseException) -> str:
    return type(list(_causes(error))[-1]).__name__


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """The error and what lies beneath it, by whichever of its ways the libraries wrap one in another."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        beneath = getattr(error, "reason", None)
        if not isinstance(beneath, BaseException):
            beneath = next((a for a in reversed(error.args) if isinstance(a, BaseException)), None)
        error = beneath or error.__cause__ or error.__context__
