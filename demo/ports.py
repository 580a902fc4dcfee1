"""Ports of this host."""

import socket

from demo.notready import NotReady

HOST = "127.0.0.1"
CONNECT_TIMEOUT_S = 0.5


def usable(port: int, *, purpose: str, option: str) -> int:
    """The port, or a free one for 0; raises ``NotReady`` where it is taken."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((HOST, port))
            listener.listen()
        except OSError as error:
            raise NotReady(
                f"port {port} for {purpose} cannot be used ({error.strerror}); choose another one: {option} PORT"
            ) from None
        return int(listener.getsockname()[1])


def is_served(port: int) -> bool:
    """Whether somebody accepts connections there."""
    try:
        socket.create_connection((HOST, port), CONNECT_TIMEOUT_S).close()
    except OSError:
        return False
    return True
