"""Carries requests for synchronous callers (admin, commands, the rest of the platform), with ``requests``.

``requests`` bounds each read of a socket, not an exchange: a gateway that sends a byte now and then keeps it for ever. So connections
are made within what is left of the time, and a timer shuts the socket down when the deadline has come.
"""

import concurrent.futures
import http.client
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http import HTTPStatus
from http.client import HTTPException, ImproperConnectionState, IncompleteRead, RemoteDisconnected
from http.cookiejar import DefaultCookiePolicy
from typing import Any

import requests
import urllib3
from requests.adapters import HTTPAdapter
from urllib3.connection import HTTPConnection, HTTPSConnection

from cardpolling import clock
from carriers.gateway import resolving, tls
from carriers.gateway.errors import Category, GatewayError
from carriers.gateway.exchange import MAX_BODY_BYTES, MAX_INTERIM_ANSWERS, HttpReply, HttpRequest

KEPT_CONNECTIONS = 32
"""Connections kept per gateway: more threads than that seldom call at once."""

CHUNK_BYTES = 65_536


class _Exchange:
    """One exchange: until when it may last (seconds of the monotonic clock), and the socket that ends it."""

    def __init__(self, deadline_s: float) -> None:
        self.is_late = False
        self.was_sent = False
        self._deadline_s = deadline_s
        self._sock: socket.socket | None = None
        self._lock = threading.Lock()
        self._is_over = False

    def left_s(self) -> float:
        """Seconds that are left; raises ``TimeoutError`` when none are."""
        left_s = self._deadline_s - clock.monotonic()
        if left_s <= 0:
            raise TimeoutError
        return left_s

    def use(self, sock: socket.socket) -> None:
        """The request is about to leave through this socket; raises ``TimeoutError`` where that is too late."""
        self.left_s()
        self._sock, self.was_sent = sock, True

    def shut_down(self) -> None:
        """The deadline has come."""
        with self._lock:
            self.is_late = not self._is_over
            if self._is_over or self._sock is None:
                return
            try:
                # A socket under TLS is shut down below it: its own shutdown would talk to the other side.
                socket.socket.shutdown(self._sock, socket.SHUT_RDWR)
            except OSError:
                return

    def end(self) -> None:
        """From now on the socket may belong to another exchange."""
        with self._lock:
            self._is_over = True


class _Current(threading.local):
    """The exchange that this thread carries."""

    exchange: _Exchange


_current = _Current()


class _Answer(http.client.HTTPResponse):
    """Skips every interim answer: the library takes 103 for the answer itself, and then the answer for that of the next request."""

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(MAX_INTERIM_ANSWERS + 1):
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if not status < HTTPStatus.OK or status == HTTPStatus.SWITCHING_PROTOCOLS:
                return version, status, reason
            http.client.parse_headers(self.fp)
        raise http.client.HTTPException("too many interim answers")


class _InTime:
    """A connection that is made within the time of its exchange, and tells it when a request begins to leave."""

    response_class: Any = _Answer

    def _new_conn(self) -> socket.socket:
        exchange = _current.exchange
        lookup = resolving.look_up(self._dns_host, self.port)  # type: ignore[attr-defined]
        try:
            found = lookup.result(exchange.left_s())
        except concurrent.futures.TimeoutError:
            raise TimeoutError from None
        failure: OSError = OSError("the host has no address")
        for family, address in found:
            try:
                return _connect(family, address, exchange.left_s(), self.socket_options)  # type: ignore[attr-defined]
            except OSError as error:
                failure = error
        raise failure

    def request(self, *args: Any, **kwargs: Any) -> None:
        if getattr(self, "sock", None) is None:
            self.connect()  # type: ignore[attr-defined]
        _current.exchange.use(self.sock)  # type: ignore[attr-defined]
        super().request(*args, **kwargs)  # type: ignore[misc]


def _connect(
    family: socket.AddressFamily, address: Any, timeout_s: float, options: Any
) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        for option in options or ():
            sock.setsockopt(*option)
        # Bounds the handshake of TLS too, which follows.
        sock.settimeout(timeout_s)
        sock.connect(address)
    except BaseException:
        sock.close()
        raise
    return sock


class _Connection(_InTime, HTTPConnection):
    pass


class _SecureConnection(_InTime, HTTPSConnection):
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

    def cert_verify(self, conn: Any, url: str, verify: Any, cert: Any) -> None:
        """Verify by ``tls.context()``, which would else read its authorities anew for each connection."""
        conn.cert_reqs = "CERT_REQUIRED"


class RequestsTransport:
    """Carries one request at a time per thread; may be shared by threads, and a forked child gets connections of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._session: requests.Session | None = None
        self._owner_pid = 0

    def carry(self, request: HttpRequest, *, deadline_s: float) -> HttpReply:
        """Exchange a request for an answer before ``deadline_s`` of the monotonic clock. Raises ``GatewayError``."""
        if deadline_s <= clock.monotonic():
            raise GatewayError(Category.TIMEOUT, "no time was left", was_sent=False)
        reply, failure = None, None
        with _bounded(deadline_s) as exchange:
            try:
                reply = self._carry(request)
            except Exception as error:  # noqa: BLE001  whatever the library raises has a category
                failure = _error_of(error, exchange)
        if exchange.is_late and failure is None:
            # What is cut off by the shutdown may count as complete for the library.
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

    def _carry(self, request: HttpRequest) -> HttpReply:
        prepared = requests.Request(
            request.method, request.url, headers=request.headers, data=request.body
        ).prepare()
        answer = self._open_session().send(
            prepared, stream=True, timeout=_current.exchange.left_s(), allow_redirects=False
        )
        with answer:
            body = bytearray()
            while chunk := answer.raw.read1(CHUNK_BYTES, decode_content=False):
                body += chunk
                if len(body) > MAX_BODY_BYTES:
                    break
            if not body and answer.raw.length_remaining is None and not answer.raw.chunked:
                # A header that breaks off counts as complete for the library.
                raise RemoteDisconnected("the header broke off")
            is_whole = len(body) <= MAX_BODY_BYTES
            if not is_whole or answer.status_code < HTTPStatus.OK:
                # What may still come over this connection must not be taken for the next answer.
                answer.raw.close()
            return HttpReply(
                status=answer.status_code,
                body=bytes(body[:MAX_BODY_BYTES]),
                content_type=answer.headers.get("Content-Type", ""),
                retry_after=answer.headers.get("Retry-After", ""),
                is_whole=is_whole,
            )

    def _open_session(self) -> requests.Session:
        with self._lock:
            if self._session is None or self._owner_pid != os.getpid():
                self._session, self._owner_pid = _open_session(), os.getpid()
            return self._session


def _open_session() -> requests.Session:
    session = requests.Session()
    # Else proxies and .netrc are looked up in the environment for each call, and the latter may replace the token.
    session.trust_env = False
    # One account's cookies are nothing to another's calls.
    session.cookies.set_policy(DefaultCookiePolicy(allowed_domains=[]))
    adapter = _Adapter(pool_connections=KEPT_CONNECTIONS, pool_maxsize=KEPT_CONNECTIONS)
    session.mount("http://", adapter)
    session.mount("https://", adapter)
    return session


@contextmanager
def _bounded(deadline_s: float) -> Iterator[_Exchange]:
    """Make an exchange this thread's, and shut it down when its time is over."""
    exchange = _Exchange(deadline_s)
    timer = threading.Timer(deadline_s - clock.monotonic(), exchange.shut_down)
    timer.daemon = True
    timer.start()
    _current.exchange = exchange
    try:
        yield exchange
    finally:
        exchange.end()
        timer.cancel()
        del _current.exchange


def _error_of(error: Exception, exchange: _Exchange) -> GatewayError:
    """What the library's error means; its text is not taken over, since it may quote the request."""
    was_sent = exchange.was_sent
    if exchange.is_late or any(isinstance(cause, TimeoutError) for cause in _causes(error)):
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
    # A connection that was reset while the request was being sent can also end as "not ready for a response".
    broken = IncompleteRead | RemoteDisconnected | ImproperConnectionState
    if any(isinstance(cause, broken) for cause in causes):
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
