"""The options of ``./run demo``."""

import argparse
from pathlib import Path

WEB_PORT, GATEWAY_PORT = 8000, 8100
MAX_PORT = 65_535


def read(arguments: list[str]) -> argparse.Namespace:
    """Parse the options; ends the process with a usage message where they are wrong."""
    parser = argparse.ArgumentParser(
        prog="./run demo",
        description="Polls 3,000 cards of three simulated carrier accounts and shows what is going on. "
        "Ctrl-C stops all of it; a second start goes on where it stopped.",
    )
    add = parser.add_argument
    add("--headless", action="store_true", help="no table; ends with the status as JSON")
    add("--seconds", type=_seconds, metavar="N", help="end by itself N seconds after all runs")
    add("--var", type=Path, metavar="DIR", help="folder of all data (default: VAR_DIR, or var)")
    add(
        "--web-port",
        type=_port,
        default=WEB_PORT,
        metavar="P",
        help="port of the admin; 0 = any free one (default: %(default)s)",
    )
    add(
        "--gateway-port",
        type=_port,
        default=GATEWAY_PORT,
        metavar="P",
        help="port of the simulated carriers; 0 = any free one (default: %(default)s)",
    )
    options = parser.parse_args(arguments)
    if options.headless and options.seconds is None:
        parser.error("--headless needs --seconds N")
    return options


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= MAX_PORT:
        raise argparse.ArgumentTypeError(f"{text} is no port (0 to {MAX_PORT})")
    return port


def _seconds(text: str) -> float:
    seconds = float(text)
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("a number above 0 is wanted")
    return seconds
