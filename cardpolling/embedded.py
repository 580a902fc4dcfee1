"""Embedded Redis-compatible server (being written)."""

from pathlib import Path


def url(folder: Path) -> str:
    """Address of the server."""
    del folder
    return "redis://127.0.0.1:6379/0"
