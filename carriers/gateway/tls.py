"""Whom both transports believe over TLS: the system's authorities, and those that come with ``certifi``."""

import functools
import ssl

import certifi


@functools.cache
def context() -> ssl.SSLContext:
    """The one context of this process; making it takes tens of milliseconds, and it is never changed afterwards."""
    made = ssl.create_default_context()
    made.load_verify_locations(certifi.where())
    return made
