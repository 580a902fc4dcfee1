"""A server that does on the wire whatever a test says, for what the simulator cannot do."""

import json
import socket
import ssl
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

GOOD_STATUS = {"status": "active", "online": True, "changed_at": None}


def answer(
    data: object = GOOD_STATUS,
    *,
    headers: str = "",
    status: str = "200 OK",
    body: bytes | None = None,
) -> bytes:
    """A whole answer of the protocol, by default a good one to ``card_status``."""
    if body is None:
        body = json.dumps({"code": 0, "message": "success", "data": data}).encode()
    head = f"HTTP/1.1 {status}\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    return (head + headers + "\r\n").encode("latin-1") + body


class Peer:
    """The server's end of one connection; ``number`` counts connections from 0."""

    def __init__(self, server: "RawServer", sock: socket.socket, number: int) -> None:
        self.server = server
        self.sock = sock
        self.number = number

    def read_request(self) -> bytes:
        """The next request, head and body, which the server keeps in its list; empty at the end."""
        raw = b""
        while b"\r\n\r\n" not in raw:
            piece = self.sock.recv(65_536)
            if not piece:
                return b""
            raw += piece
        head, _, body = raw.partition(b"\r\n\r\n")
        for line in head.lower().split(b"\r\n"):
            if line.startswith(b"content-length:"):
                while len(body) < int(line.partition(b":")[2]):
                    body += self.sock.recv(65_536)
        self.server.requests.append(head + b"\r\n\r\n" + body)
        return head

    def send(self, data: bytes) -> None:
        """Send all of it."""
        self.sock.sendall(data)

    def drip(self, data: bytes, *, pause_s: float = 0.1) -> None:
        """Send this now and then, over and over, until the client goes away."""
        while not self.server.is_stopping.wait(pause_s):
            self.send(data)

    def flood(self, data: bytes) -> None:
        """Send without a pause until the client goes away."""
        while not self.server.is_stopping.is_set():
            self.send(data)

    def reset(self) -> None:
        """End the connection by a reset."""
        self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.sock.close()

    def linger(self) -> None:
        """Keep the connection open and say nothing."""
        self.server.is_stopping.wait(30)

    def wait_for_end(self) -> bool:
        """Whether the client ends the connection."""
        self.sock.settimeout(5)
        try:
            while self.sock.recv(65_536):
                pass
        except ConnectionResetError:
            return True
        except TimeoutError:
            return False
        return True


Script = Callable[[Peer], None]


class RawServer:
    """Plays the script on every connection, each on a thread of its own."""

    def __init__(self, script: Script, tls: ssl.SSLContext | None) -> None:
        self.requests: list[bytes] = []
        self.connections = 0
        self.is_stopping = threading.Event()
        self._script = script
        self._tls = tls
        self._socks: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://127.0.0.1:{self.port}"
        self._start(self._accept)

    def stop(self) -> None:
        """End all connections and threads."""
        self.is_stopping.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for sock in self._socks:
            with suppress(OSError):
                sock.shutdown(socket.SHUT_RDWR)
            sock.close()
        for thread in self._threads:
            thread.join(5)

    def _start(self, target: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._listener.accept()
                self._socks.append(sock)
                self.connections += 1
                self._start(self._serve, sock, self.connections - 1)

    def _serve(self, sock: socket.socket, number: int) -> None:
        with suppress(OSError):
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._socks.append(sock)
            self._script(Peer(self, sock, number))
        sock.close()


@contextmanager
def raw_server(script: Script, *, tls: ssl.SSLContext | None = None) -> Iterator[RawServer]:
    """Serve on a free loopback port until the block ends."""
    server = RawServer(script, tls)
    try:
        yield server
    finally:
        server.stop()
