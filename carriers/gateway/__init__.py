"""The door to the carriers' gateways: clients, guard, limiter, provider adapters.

    from carriers.gateway import GatewayError, directory, gateway

    answer = gateway.client(timeout_s=10).card_status("89860000000000000015")

What is not named here is this package's own.
"""

from carriers.gateway import limiter
from carriers.gateway.accounts import Account, AccountDirectory, directory
from carriers.gateway.call import (
    Call,
    with_carrier,
    with_rate_limit_exempt,
    with_rate_limit_wait,
)
from carriers.gateway.client import (
    AsyncGateway,
    AsyncGatewayClient,
    AttemptObserver,
    GatewayClient,
    SyncGateway,
    gateway,
)
from carriers.gateway.errors import ApplicationError, Category, GatewayError

__all__ = [
    "Account",
    "AccountDirectory",
    "ApplicationError",
    "AsyncGateway",
    "AsyncGatewayClient",
    "AttemptObserver",
    "Call",
    "Category",
    "GatewayClient",
    "GatewayError",
    "SyncGateway",
    "directory",
    "gateway",
    "limiter",
    "with_carrier",
    "with_rate_limit_exempt",
    "with_rate_limit_wait",
]
