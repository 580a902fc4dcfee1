"""The provider adapters by the name that stands in an account; a new provider is one module and one line here."""

from carriers.choices import Provider
from carriers.gateway.adapters.base import Adapter
from carriers.gateway.adapters.standard import StandardAdapter
from carriers.gateway.errors import Category, GatewayError

_ADAPTERS: dict[str, Adapter] = {Provider.STANDARD.value: StandardAdapter()}


def adapter_of(provider: str) -> Adapter:
    """The adapter that speaks to this provider; raises ``GatewayError`` (``config``) for an unknown one."""
    try:
        return _ADAPTERS[provider]
    except KeyError:
        raise GatewayError(
            Category.CONFIG, "the account's provider is unknown", was_sent=False
        ) from None
