"""The simulator as a listening server on an event loop."""

import asyncio

from carriers.simulator.api import StandardApi
from carriers.simulator.connection import HttpConnection

BACKLOG = 4_096
CLOSING_TURNS = 8


class SimulatorServer:
    """Serves one ``StandardApi`` on one address."""

    def __init__(self, api: StandardApi) -> None:
        self.api = api
        self._connections: set[HttpConnection] = set()

    @property
    def open_connections(self) -> int:
        """How many connections clients hold now."""
        return len(self._connections)

    async def start(self, host: str, port: int) -> int:
        """Listen, and say on which port (``port`` 0 = any free one); OSError where that cannot be."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: HttpConnection(self.api.respond, self._connections),
            host,
            port,
            backlog=BACKLOG,
        )
        return int(self._server.sockets[0].getsockname()[1])

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        loop = asyncio.get_running_loop()
        # Accepting ends some turns of the loop before the server is closed: asyncio loses, unclosed, a connection that
        # was accepted at the very moment of closing.
        for sock in self._server.sockets:
            loop.remove_reader(sock.fileno())
        for _ in range(CLOSING_TURNS):
            await asyncio.sleep(0)
        self._server.close()
        for connection in tuple(self._connections):
            connection.abort()
        await asyncio.sleep(0)
        await self._server.wait_closed()
