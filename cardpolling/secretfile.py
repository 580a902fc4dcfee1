"""Keeps a secret that was made up once in a file that only its owner may read."""

import os
import secrets
from pathlib import Path

SECRET_BYTES = 48


def read_or_make(path: Path) -> str:
    """The secret in the file; made at the first call, once even when several processes call at the same time."""
    try:
        return path.read_text()
    except FileNotFoundError:
        return _make(path)


def _make(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{os.getpid()}.{secrets.token_hex(4)}")
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with open(handle, "w") as file:
            file.write(secrets.token_urlsafe(SECRET_BYTES))
        # A link appears whole or not at all, and refuses where another process was first.
        os.link(draft, path)
    except FileExistsError:
        pass
    finally:
        draft.unlink()
    return path.read_text()
