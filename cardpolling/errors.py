"""Errors of the polling engine.

::

    PollingError(Exception)     something the engine refuses or cannot do; str() is one clear sentence for an operator
      ClaimLost                 the lease is gone: another execution may have begun, stop now
      ResultRefused             the database refuses a result for what it is; trying again would not help
      InvalidRequest            a check was requested in a way that has no meaning
      ConfigurationUnavailable  the polling configuration has never been read and SQL does not answer
"""

from django.utils.translation import gettext_lazy as _


class PollingError(Exception):
    """The polling engine cannot do what was asked."""

    default_message = _("The polling engine cannot do what was asked.")

    def __init__(self, message: str = "") -> None:
        super().__init__(message or str(self.default_message))


class ClaimLost(PollingError):
    """The claim or its exec right is no longer ours."""

    default_message = _(
        "The claim on this card was lost; the card is checked by another execution."
    )


class ResultRefused(PollingError):
    """The database refuses a result for what it is."""

    default_message = _("The database refuses the result of a check.")


class InvalidRequest(PollingError):
    """A check was requested in a way that has no meaning."""

    default_message = _("This check cannot be requested.")


class ConfigurationUnavailable(PollingError):
    """There is no polling configuration to go by."""

    default_message = _("The polling configuration cannot be read: the database does not answer.")
