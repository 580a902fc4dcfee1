"""Serves the standard gateway protocol, well or badly, for trying the product without a carrier."""

import argparse
import asyncio
import gc
import os
import resource
import signal
import socket
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.utils.translation import gettext as _

from carriers.simulator.api import Options, StandardApi
from carriers.simulator.faults import FaultPlan, FaultSpec, FaultSpecError
from carriers.simulator.kinds import KINDS
from carriers.simulator.server import SimulatorServer

MAX_PORT = 65_535
WANTED_OPEN_FILES = 65_536
CONTROL_HELP = """while it runs:
  GET /simulator/stats    calls, most calls in a sliding second, violations per account, as JSON
  PUT /simulator/faults   replaces all faults by a JSON list of KIND:SHARE[:CARRIER]"""


class Command(BaseCommand):
    """``manage.py simulate_gateway --port 8100 --latency-ms 50 --fault http502_html:0.01``."""

    help = "Serve the standard gateway protocol for any number of accounts, with faults on request."
    requires_system_checks = ()
    requires_migrations_checks = False

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Help that lists the faults, a line each."""
        kwargs |= {
            "formatter_class": argparse.RawDescriptionHelpFormatter,
            "epilog": _faults_help(),
        }
        return super().create_parser(prog_name, subcommand, **kwargs)

    def add_arguments(self, parser: CommandParser) -> None:
        add = parser.add_argument
        add("--port", type=int, required=True, help="port to listen on; 0 takes any free one")
        add("--host", default="127.0.0.1", help="address to listen on (default %(default)s)")
        add("--latency-ms", type=float, default=0, metavar="N", help="every answer takes N ms")
        add("--jitter-ms", type=float, default=0, metavar="N", help="and up to N ms more")
        add(
            "--fault",
            action="append",
            default=[],
            metavar="KIND:SHARE[:CARRIER]",
            help="a share (0 to 1) of the calls (of one account code) goes wrong; may be repeated",
        )
        add(
            "--limit",
            action="append",
            default=[],
            metavar="CARRIER:N",
            help="answer 1004 to an account that passes N calls in a sliding second; may be repeated",
        )
        add("--token", default="", help="accept only this token (default: any)")
        add(
            "--effect-delay-ms",
            type=int,
            default=5_000,
            metavar="N",
            help="suspend and resume take effect after N ms (default %(default)s)",
        )
        add("--seed", type=int, default=0, help="another seed, other calls that go wrong")

    def handle(self, *args: Any, **options: Any) -> None:
        if not 0 <= options["port"] <= MAX_PORT:
            raise CommandError(_("--port must be between 0 and 65535."))
        api = StandardApi(_read_options(options))
        _allow_many_connections()
        # What is loaded stays; going through it again and again would hold up answers by 50 ms each time.
        gc.collect()
        gc.freeze()
        asyncio.run(self._serve(api, options["host"], options["port"]))

    async def _serve(self, api: StandardApi, host: str, port: int) -> None:
        server = SimulatorServer(api)
        try:
            port = await server.start(host, port)
        except OSError as error:
            reason = _reason(error)
            message = _("Cannot listen on %(host)s port %(port)s: %(reason)s")
            raise CommandError(message % {"host": host, "port": port, "reason": reason}) from None
        stop = asyncio.Event()
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        self.stdout.write(_("Simulated gateway on http://%s:%s, Ctrl-C stops it.") % (host, port))
        self.stdout.flush()
        await stop.wait()
        await server.close()


def _reason(error: OSError) -> str:
    """Why listening failed, in few words: asyncio wraps the system's words, a resolver's error has its own."""
    if isinstance(error, socket.gaierror) or error.errno is None:
        return str(error.strerror or error)
    return os.strerror(error.errno)


def _read_options(options: dict[str, Any]) -> Options:
    for name in ("latency_ms", "jitter_ms", "effect_delay_ms"):
        if not options[name] >= 0:
            flag = "--" + name.replace("_", "-")
            raise CommandError(_("%s must not be negative.") % flag)
    try:
        faults = [FaultSpec.parse(text) for text in options["fault"]]
        FaultPlan(faults)
    except FaultSpecError as error:
        raise CommandError(f"--fault: {error}") from None
    return Options(
        latency_ms=options["latency_ms"],
        jitter_ms=options["jitter_ms"],
        faults=faults,
        limits=dict(_read_limit(text) for text in options["limit"]),
        token=options["token"],
        effect_delay_ms=options["effect_delay_ms"],
        seed=options["seed"],
    )


def _read_limit(text: str) -> tuple[str, float]:
    carrier, colon, number = text.rpartition(":")
    try:
        most = float(number)
    except ValueError:
        most = 0
    if not (carrier and colon and 0 < most < float("inf")):
        raise CommandError(_("--limit: %r is not of the form CARRIER:N with N above 0.") % text)
    return carrier, most


def _allow_many_connections() -> None:
    """Raise this process's limit of open files: a thousand clients need more than the usual 1,024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = WANTED_OPEN_FILES if hard == resource.RLIM_INFINITY else min(WANTED_OPEN_FILES, hard)
    if soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _faults_help() -> str:
    width = max(map(len, KINDS))
    lines = [f"  {kind.name:<{width}}  {kind.meaning}" for kind in KINDS.values()]
    return "\n".join(["kinds of fault:", *lines, "", CONTROL_HELP])
