"""Why the demonstration cannot run."""


class NotReady(Exception):
    """A reason in one line, with what to do about it."""
