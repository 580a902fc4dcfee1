"""``./run test``: every check, then the tests. Ends with pytest's summary line when all is well."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
CHECKS = (
    ("ruff", "check", "--quiet", "--output-format", "concise", "."),
    ("ruff", "format", "--check", "--quiet", "."),
    ("mypy",),
    ("lint-imports", "--no-logo"),
    ("luacheck", "--quiet", "cardpolling/lua", "carriers/gateway/lua"),
)


def main() -> None:
    """Run all of it; exit code 0 when nothing failed."""
    failed = [" ".join(check) for check in CHECKS if not _passes(check)]
    for check in failed:
        _say(f"failed: {check}")
    pytest: list[str | Path] = [BIN / "python", "-m", "pytest", "-q", "-n", "auto", *sys.argv[1:]]
    status = subprocess.run(pytest, cwd=ROOT, check=False).returncode
    if failed:
        _say("failed: " + ", ".join(failed))
    sys.exit(status or (1 if failed else 0))


def _passes(check: tuple[str, ...]) -> bool:
    """Run one check and show what it finds; one whose program is not on this host passes."""
    program = shutil.which(check[0], path=f"{BIN}{os.pathsep}{os.environ.get('PATH', '')}")
    if program is None:
        _say(f"left out, not installed: {check[0]}")
        return True
    done = subprocess.run(
        [program, *check[1:]],
        cwd=ROOT,
        # mypy reads the settings: with an address they start no Redis of their own.
        env={"REDIS_URL": "redis://127.0.0.1:6379/0", **os.environ},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.stderr.write(done.stdout)
    return done.returncode == 0


def _say(text: str) -> None:
    print(f"run: {text}", file=sys.stderr, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
