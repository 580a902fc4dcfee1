"""The simulator in a thread of its own, with the log and the controls that tests and benchmarks need."""

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from carriers.simulator.api import CallRecord, Options, StandardApi
from carriers.simulator.faults import FaultSpec
from carriers.simulator.server import SimulatorServer

LOOPBACK = "127.0.0.1"


class RunningSimulator:
    """A simulator that serves now; everything here may be called from any thread.

    ``calls`` lists every call in the order of arrival. Attributes of ``api`` (latency_ms, jitter_ms, token) may be assigned.
    """

    def __init__(self, api: StandardApi, server: SimulatorServer, port: int) -> None:
        self.api = api
        self.server = server
        self.port = port
        self.url = f"http://{LOOPBACK}:{port}"
        self.calls: list[CallRecord] = []
        api.calls = self.calls

    def set_faults(self, *faults: str | FaultSpec) -> None:
        """Replace all faults (``KIND:SHARE[:CARRIER]``, or just ``KIND`` for every call); none given = none any more."""
        self.api.set_faults(_specs(faults))

    def set_card(self, iccid: str, **facts: Any) -> None:
        """Fix facts of a card: status, online, changed_at, used_bytes, cycle_start, verified, verified_at."""
        self.api.world.set_card(iccid, **facts)

    def remove_card(self, iccid: str) -> None:
        """Answer 1001 for a card from now on."""
        self.api.world.remove_card(iccid)

    def statistics(self) -> dict[str, Any]:
        """Counts per account code, as ``GET /simulator/stats`` shows them."""
        accounts: dict[str, Any] = self.api.statistics.as_json()["accounts"]
        return accounts


@contextmanager
def running_simulator(
    *, faults: Sequence[str | FaultSpec] = (), **options: Any
) -> Iterator[RunningSimulator]:
    """Serve on a free loopback port until the block ends; options are the fields of ``Options``."""
    api = StandardApi(Options(faults=_specs(faults), **options))
    server = SimulatorServer(api)
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="gateway-simulator", daemon=True)
    thread.start()
    try:
        port = asyncio.run_coroutine_threadsafe(server.start(LOOPBACK, 0), loop).result()
        try:
            yield RunningSimulator(api, server, port)
        finally:
            asyncio.run_coroutine_threadsafe(server.close(), loop).result()
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def _specs(faults: Sequence[str | FaultSpec]) -> list[FaultSpec]:
    return [_spec(fault) for fault in faults]


def _spec(fault: str | FaultSpec) -> FaultSpec:
    if isinstance(fault, FaultSpec):
        return fault
    return FaultSpec.parse(fault if ":" in fault else f"{fault}:1")
