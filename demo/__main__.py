"""``./run demo``, in the virtual environment."""

import argparse
import os
import sys
from pathlib import Path

from demo import alone, options, ports, processes
from demo.notready import NotReady
from demo.signals import StopSignals

INTERRUPTED = 130


def main() -> None:
    """Run the demonstration; ends with 0 when it was stopped or its time was over, with one line and 1 when it cannot run."""
    asked = options.read(sys.argv[1:])
    stop_signals = StopSignals()
    try:
        sys.exit(_run(asked, stop_signals))
    except NotReady as error:
        sys.exit(f"demo: {error}")
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


def _run(asked: argparse.Namespace, stop_signals: StopSignals) -> int:
    folder = _folder(asked.var)
    with alone.alone_in(folder) as inherited_fd:
        asked.web_port = ports.usable(asked.web_port, purpose="the admin", option="--web-port")
        asked.gateway_port = ports.usable(
            asked.gateway_port, purpose="the simulated carriers", option="--gateway-port"
        )
        _start_django()
        # Only now can be imported what needs settings.
        from demo.show import Show

        programs = processes.programs(web_port=asked.web_port, gateway_port=asked.gateway_port)
        return Show(asked, folder, programs, inherited_fd, stop_signals).run()


def _folder(var: Path | None) -> Path:
    """The demonstration's own folder; all processes have their data in the one above it."""
    if var is not None:
        os.environ["VAR_DIR"] = str(var.resolve())
    os.environ.setdefault("POLLING_GRACE_S", "3")
    folder = Path(os.environ.get("VAR_DIR") or processes.ROOT / "var").resolve() / "demo"
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise NotReady(
            f"{folder} cannot be made ({error.strerror}); choose another folder with --var DIR"
        ) from None
    return folder


def _start_django() -> None:
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "cardpolling.settings")
    import django
    from django.core.exceptions import ImproperlyConfigured

    try:
        django.setup()
    except ImproperlyConfigured as error:
        raise NotReady(str(error)) from None


if __name__ == "__main__":
    main()
