"""A text column that is encrypted at rest and never shown."""

import threading

import pytest
from cryptography.fernet import Fernet
from django.core import serializers
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.db import connection
from django.forms import modelform_factory

from carriers.fields import SecretUnreadable
from carriers.models import Carrier

TOKEN = "s3cret-token"
OLD, NEW = Fernet.generate_key().decode(), Fernet.generate_key().decode()


@pytest.fixture(autouse=True)
def _keys(settings):
    settings.FIELD_ENCRYPTION_KEYS = [OLD]


@pytest.fixture
def stored(make_carrier):
    """An account with a token, as read from the database."""
    return Carrier.objects.get(pk=make_carrier(gateway_token=TOKEN).pk)


def column(carrier):
    """What really stands in SQL."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT gateway_token FROM tb_carrier WHERE id = %s", [carrier.pk])
        return cursor.fetchone()[0]


def test_the_token_is_encrypted_at_rest_and_read_back(stored):
    assert TOKEN not in column(stored)
    assert stored.gateway_token == TOKEN


def test_an_empty_token_stays_empty(carrier):
    assert (column(carrier), Carrier.objects.get().gateway_token) == ("", "")


def test_a_new_first_key_still_reads_the_old_token(stored, settings):
    settings.FIELD_ENCRYPTION_KEYS = [NEW, OLD]

    assert Carrier.objects.get().gateway_token == TOKEN


def test_a_wrong_key_names_the_setting_and_shows_nothing(stored, settings):
    settings.FIELD_ENCRYPTION_KEYS = [NEW]

    with pytest.raises(SecretUnreadable, match="FIELD_ENCRYPTION_KEYS") as raised:
        _ = Carrier.objects.get().gateway_token

    assert TOKEN not in str(raised.value)
    assert column(stored) not in str(raised.value)
    assert raised.value.__suppress_context__


@pytest.mark.parametrize("keys", [[], ["short"], [None]])
def test_an_unusable_key_names_the_setting(stored, settings, keys):
    settings.FIELD_ENCRYPTION_KEYS = keys

    with pytest.raises(ImproperlyConfigured, match="FIELD_ENCRYPTION_KEYS"):
        _ = stored.gateway_token


def test_an_account_can_be_saved_with_a_wrong_key(stored, settings):
    before = column(stored)
    settings.FIELD_ENCRYPTION_KEYS = [NEW]
    carrier = Carrier.objects.get()
    carrier.name = "renamed"

    carrier.save()

    assert column(stored) == before


def test_the_token_is_not_in_representations(stored):
    held = [repr(stored), str(stored), repr(Carrier.objects.values()), repr(stored.__dict__)]

    assert TOKEN not in "".join(held)


def test_the_token_cannot_be_searched(stored):
    with pytest.raises(FieldError):
        Carrier.objects.filter(gateway_token=TOKEN).exists()


def test_a_dump_holds_the_token_encrypted_and_can_be_loaded(stored):
    dump = serializers.serialize("json", [stored])
    Carrier.objects.all().delete()

    for loaded in serializers.deserialize("json", dump):
        loaded.save()

    assert TOKEN not in dump
    assert Carrier.objects.get().gateway_token == TOKEN


def test_a_form_never_shows_the_token_and_keeps_it_when_empty(stored):
    form_class = modelform_factory(Carrier, fields=["name", "gateway_token"])
    form = form_class({"name": "renamed", "gateway_token": ""}, instance=stored)

    form.save()

    assert TOKEN not in form_class(instance=stored).as_p() + form.as_p()
    assert Carrier.objects.get().gateway_token == TOKEN


def test_a_form_replaces_the_token(stored):
    form_class = modelform_factory(Carrier, fields=["gateway_token"])

    form_class({"gateway_token": "another"}, instance=stored).save()

    assert Carrier.objects.get().gateway_token == "another"


def test_a_deferred_token_is_read_when_asked_for(stored):
    assert Carrier.objects.defer("gateway_token").get().gateway_token == TOKEN


def test_threads_that_read_and_write_do_not_disturb_each_other(settings):
    field = Carrier._meta.get_field("gateway_token")
    wrong = []

    def work(number):
        for i in range(200):
            carrier = Carrier(gateway_token=f"{number}-{i}")
            carrier.gateway_token = field.from_db_value(
                field.get_prep_value(field.pre_save(carrier, add=True)), None, None
            )
            if carrier.gateway_token != f"{number}-{i}":
                wrong.append(carrier)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
