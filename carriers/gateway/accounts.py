"""The accounts as the engine sees them: a snapshot of SQL, at most a second old, that outlives an outage of SQL.

So a changed token, URL or limit is in use everywhere within two seconds, and nobody asks SQL per call.
"""

import asyncio
import logging
import os
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from django.db import DatabaseError, InterfaceError, close_old_connections, connection

from cardpolling import clock
from carriers.fields import SecretUnreadable
from carriers.models import Card, Carrier

logger = logging.getLogger(__name__)

FRESH_FOR_S = 1.0
FIRST_READING_TIMEOUT_S = 5.0


@dataclass(frozen=True, slots=True)
class Group:
    """A rate-limit group: operations that share one limit."""

    name: str
    max_per_second: float
    operations: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Account:
    """A carrier account as it stood when the snapshot was taken; the token is in no repr."""

    carrier_id: int
    code: str
    provider: str
    gateway_url: str
    token: str = field(repr=False)
    is_enabled: bool
    max_in_flight: int
    priority_ratio: float
    groups: tuple[Group, ...]
    fault: str = ""
    """Why no call can be made for this account, for example a token that no key opens."""

    _group_by_operation: dict[str, Group] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        # The first group that names an operation holds it.
        by_operation = {o: group for group in reversed(self.groups) for o in group.operations}
        object.__setattr__(self, "_group_by_operation", by_operation)

    def group_of(self, operation: str) -> Group | None:
        """The group whose limit the operation is under; None = not limited."""
        return self._group_by_operation.get(operation)


class AccountDirectory:
    """All accounts, read from SQL at most once a second; safe for threads and for an event loop.

    On a loop nobody waits for SQL: an old snapshot is given at once and a thread reads the next one. Only the very first
    reading is waited for.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._accounts: Mapping[int, Account] | None = None
        self._read_at_s = 0.0
        self._reading: threading.Thread | None = None

    def enabled(self) -> list[Account]:
        """The enabled accounts, by id."""
        return [account for account in self._snapshot().values() if account.is_enabled]

    def get(self, carrier_id: int) -> Account | None:
        """One account, disabled or not; None where there is none."""
        return self._snapshot().get(carrier_id)

    def resolve(self, iccid: str) -> int | None:
        """Id of the account that a card belongs to; None where the card is unknown or SQL is away."""
        try:
            return Card.objects.filter(iccid=iccid).values_list("carrier_id", flat=True).first()
        except (DatabaseError, InterfaceError):
            logger.warning("account of a card not looked up: the database does not answer")
            return None

    def refresh(self, *, force: bool = False) -> bool:
        """Read SQL where the snapshot is older than a second; False where SQL was away and the last one stays in force."""
        with self._lock:
            if not force and self._is_fresh():
                return True
            try:
                accounts = _read()
            except (DatabaseError, InterfaceError) as error:
                logger.warning("accounts not read, the last ones stay: %s", type(error).__name__)
                is_read = False
            else:
                self._accounts, is_read = accounts, True
            # Also after a failure: SQL that is away is asked once a second, not once a call.
            self._read_at_s = clock.monotonic()
            return is_read

    def forget(self) -> None:
        """Read anew at the next question: for tests."""
        with self._lock:
            self._accounts = None

    def begin_anew(self) -> None:
        """In the child of a fork: the lock may have been held by a thread that it has not."""
        self._lock = threading.Lock()
        self._reading = None

    def _snapshot(self) -> Mapping[int, Account]:
        if not self._is_fresh():
            self._renew()
        return self._accounts or {}

    def _is_fresh(self) -> bool:
        age_s = clock.monotonic() - self._read_at_s
        return self._accounts is not None and age_s < FRESH_FOR_S

    def _renew(self) -> None:
        """Refresh here, unless somebody is at it; on an event loop, where SQL may not be waited for, on a thread."""
        if self._accounts is not None and self._lock.locked():
            return
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            self.refresh()
            return
        if self._reading is None or not self._reading.is_alive():
            self._reading = threading.Thread(
                target=self._refresh_apart, name="accounts", daemon=True
            )
            self._reading.start()
        if self._accounts is None:
            self._reading.join(FIRST_READING_TIMEOUT_S)

    def _refresh_apart(self) -> None:
        close_old_connections()
        try:
            self.refresh()
        finally:
            connection.close()


def account_of(carrier: Carrier) -> Account:
    """The value that stands for a row; its rate-limit groups should be prefetched."""
    token, fault = "", ""
    try:
        token = carrier.gateway_token
    except SecretUnreadable:
        # One account's lost key must not take the others with it.
        fault = "the gateway token cannot be read with the present keys"
    return Account(
        carrier_id=carrier.pk,
        code=carrier.code,
        provider=carrier.provider,
        gateway_url=carrier.gateway_url.rstrip("/"),
        token=token,
        is_enabled=carrier.is_enabled,
        max_in_flight=carrier.max_in_flight,
        priority_ratio=carrier.priority_ratio,
        groups=tuple(
            Group(group.name, group.max_per_second, _operations(group.operations))
            for group in carrier.rate_limit_groups.all()
        ),
        fault=fault,
    )


def _operations(names: Any) -> tuple[str, ...]:
    return tuple(name for name in names if isinstance(name, str)) if isinstance(names, list) else ()


def _read() -> dict[int, Account]:
    rows = Carrier.objects.prefetch_related("rate_limit_groups").order_by("pk")
    return {row.pk: account_of(row) for row in rows}


directory = AccountDirectory()
"""The directory that all of a process shares."""

os.register_at_fork(after_in_child=directory.begin_anew)
