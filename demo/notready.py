"""Why the demonstration cannot run."""


class NotReady(Exception):  # noqa: N818  it is said, not raised by a fault
    """A reason in one line, with what to do about it."""
