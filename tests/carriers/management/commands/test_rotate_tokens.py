"""``manage.py rotate_tokens``."""

import pytest
from cryptography.fernet import Fernet
from django.core.management import CommandError, call_command

from carriers.models import Carrier

OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.fixture(autouse=True)
def _accounts(settings, make_carrier):
    settings.FIELD_ENCRYPTION_KEYS = [OLD]
    make_carrier("with", gateway_token="first")
    make_carrier("without")


def test_tokens_are_readable_with_the_new_key_alone_afterwards(settings, capsys):
    settings.FIELD_ENCRYPTION_KEYS = [NEW, OLD]

    call_command("rotate_tokens")

    settings.FIELD_ENCRYPTION_KEYS = [NEW]
    assert Carrier.objects.get(code="with").gateway_token == "first"
    assert "1 token" in capsys.readouterr().out


def test_a_token_that_no_key_reads_is_named_and_kept(settings):
    settings.FIELD_ENCRYPTION_KEYS = [NEW]

    with pytest.raises(CommandError, match=r"with: .*FIELD_ENCRYPTION_KEYS"):
        call_command("rotate_tokens")

    settings.FIELD_ENCRYPTION_KEYS = [OLD]
    assert Carrier.objects.get(code="with").gateway_token == "first"
