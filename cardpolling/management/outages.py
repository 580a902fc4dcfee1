"""What a command says when something that it needs is away."""

from collections.abc import Iterator
from contextlib import contextmanager

from django.core.management.base import CommandError
from django.db import DatabaseError, InterfaceError
from django.utils.translation import gettext as _
from redis import RedisError

from cardpolling.errors import InvalidRequest, PollingError

UNUSABLE = 2
"""Exit code of a command whose arguments cannot be used, as argparse has it; everything else that fails is 1."""


@contextmanager
def told_clearly() -> Iterator[None]:
    """Turn refusals and outages into one clear line each; what the servers said is not repeated, it may name secrets."""
    try:
        yield
    except InvalidRequest as error:
        raise CommandError(str(error), returncode=UNUSABLE) from error
    except PollingError as error:
        raise CommandError(str(error)) from error
    except RedisError as error:
        message = _(
            "Redis does not answer (%(kind)s). Is POLLING_REDIS_URL right, is the server up?"
        )
        raise CommandError(message % {"kind": type(error).__name__}) from error
    except (DatabaseError, InterfaceError) as error:
        message = _(
            "The database does not answer (%(kind)s). Is DATABASE_URL right, are migrations applied?"
        )
        raise CommandError(message % {"kind": type(error).__name__}) from error
