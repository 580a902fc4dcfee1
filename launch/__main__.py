"""``./run demo`` and ``./run test``: prepare the virtual environment, then become the command in it."""

import os
import sys

from launch import environment

USAGE = """\
usage: ./run demo [options]           the product at work, with simulated carriers (./run demo --help)
       ./run test [pytest options]    all checks and tests
"""
COMMANDS = {
    "demo": ("requirements.txt", "demo"),
    "test": ("requirements-dev.txt", "launch.checks"),
}


def main() -> None:
    """Run one of the two commands."""
    command, *arguments = sys.argv[1:] or [""]
    if command not in COMMANDS:
        is_question = command in ("", "-h", "--help")
        (sys.stdout if is_question else sys.stderr).write(USAGE)
        sys.exit(0 if is_question else 2)
    requirements, module = COMMANDS[command]
    try:
        python = environment.ready(environment.ROOT / requirements)
    except environment.NotReady as error:
        sys.exit(f"run: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
    os.execv(python, [str(python), "-m", module, *arguments])  # noqa: S606


if __name__ == "__main__":
    main()
