"""Cards for the tests of commands."""

import pytest
from django.core.management import call_command

from cardpolling import connection, enrolment
from cardpolling.enrolment import PolledCard
from carriers.models import Card


@pytest.fixture
def cards(client, config, make_carrier, make_cards):
    """Two cards under polling."""
    made = make_cards(make_carrier("acme"), 2)
    enrolment.enroll(client, [PolledCard(c.pk, c.carrier_id, c.status, None) for c in made])
    return list(Card.objects.order_by("pk"))


@pytest.fixture
def run(capsys):
    """Run a command as from the shell, and give what it printed."""

    def run_command(name, *arguments):
        call_command(name, *(str(argument) for argument in arguments))
        return capsys.readouterr().out

    return run_command


@pytest.fixture
def redis_away(client, settings):
    """A Redis that does not answer, behind a URL with a password."""
    settings.POLLING_REDIS_URL = "redis://:hidden-word@127.0.0.1:1/0"
    connection.reset()
    yield
    connection.reset()
