"""The accounts as the engine sees them: at most a second old, and there while SQL is not."""

import asyncio
import threading
import time

import pytest
from cryptography.fernet import Fernet
from django.db import OperationalError, connection, connections

from carriers.gateway.accounts import Account, AccountDirectory, Group, account_of
from carriers.models import Card, Carrier, RateLimitGroup
from tests.carriers.gateway.outcomes import TOKEN

FRESH_WITHIN_S = 1.2


@pytest.fixture
def carrier(transactional_db):
    """An account with two groups."""
    row = Carrier.objects.create(
        name="Acme",
        code="acme",
        gateway_url="https://gateway.example.com/",
        gateway_token=TOKEN,
        max_in_flight=50,
        priority_ratio=0.25,
    )
    add = row.rate_limit_groups.create
    add(name="query", max_per_second=100, operations=["card_status", "realname"])
    add(name="usage", max_per_second=0.5, operations=["carddata"])
    return row


@pytest.fixture
def directory():
    """A directory of its own."""
    return AccountDirectory()


class Outage:
    """SQL that fails on this thread while the block lasts; counts who asks."""

    def __init__(self):
        self.asked = 0

    def __call__(self, execute, sql, params, many, context):
        self.asked += 1
        raise OperationalError("SQL is away")


def wait_until(is_so, within_s=5):
    ends_s = time.monotonic() + within_s
    while not (found := is_so()):
        assert time.monotonic() < ends_s
        time.sleep(0.02)
    return found


def test_account_is_the_row(carrier, directory):
    account = directory.get(carrier.pk)

    assert account == Account(
        carrier_id=carrier.pk,
        code="acme",
        provider="standard",
        gateway_url="https://gateway.example.com",
        token=TOKEN,
        is_enabled=True,
        max_in_flight=50,
        priority_ratio=0.25,
        groups=(
            Group("query", 100.0, ("card_status", "realname")),
            Group("usage", 0.5, ("carddata",)),
        ),
    )
    assert account == account_of(Carrier.objects.get(pk=carrier.pk))


def test_no_token_is_shown(carrier, directory):
    assert TOKEN not in f"{directory.enabled()!r} {directory.get(carrier.pk)}"


@pytest.mark.parametrize(
    ("operation", "group"),
    [("card_status", "query"), ("realname", "query"), ("carddata", "usage"), ("suspend", None)],
)
def test_group_of_an_operation(carrier, directory, operation, group):
    found = directory.get(carrier.pk).group_of(operation)

    assert (found.name if found else None) == group


def test_first_group_that_names_an_operation_holds_it(make_account):
    groups = (Group("a", 1, ("realname",)), Group("b", 9, ("realname",)))

    assert make_account(groups=groups).group_of("realname").name == "a"


def test_operations_that_are_no_list_of_names_are_none(carrier, directory):
    RateLimitGroup.objects.filter(name="query").update(operations={"realname": 1})
    RateLimitGroup.objects.filter(name="usage").update(operations=["carddata", 5, None])

    groups = {group.name: group.operations for group in directory.get(carrier.pk).groups}

    assert groups == {"query": (), "usage": ("carddata",)}


def test_unknown_account(carrier, directory):
    assert directory.get(carrier.pk + 1) is None


def test_disabled_account_is_known_and_not_enabled(carrier, directory):
    Carrier.objects.update(is_enabled=False)

    assert directory.enabled() == []
    assert directory.get(carrier.pk) is not None


def test_change_is_seen_within_a_second(carrier, directory):
    assert directory.get(carrier.pk).token == TOKEN
    carrier.gateway_token = "new-token"
    carrier.save()
    began_s = time.monotonic()

    wait_until(lambda: directory.get(carrier.pk).token == "new-token")

    assert time.monotonic() - began_s < FRESH_WITHIN_S


def test_sql_is_asked_at_most_once_a_second(carrier, directory, django_assert_num_queries):
    directory.get(carrier.pk)
    with django_assert_num_queries(0):
        for _ in range(100):
            directory.get(carrier.pk)
            directory.enabled()


def test_accounts_outlive_an_outage(carrier, directory):
    directory.get(carrier.pk)
    time.sleep(1.05)
    outage = Outage()
    with connection.execute_wrapper(outage):
        for _ in range(20):
            assert directory.get(carrier.pk).token == TOKEN
        assert directory.refresh() is True
        assert directory.refresh(force=True) is False

    # SQL that is away is asked once a second, not once a call.
    assert outage.asked == 2
    assert directory.refresh(force=True) is True


def test_no_account_is_known_without_a_first_reading(carrier, directory):
    with connection.execute_wrapper(Outage()):
        assert directory.get(carrier.pk) is None
        assert directory.enabled() == []
    assert directory.get(carrier.pk) is not None


def test_card_is_resolved_to_its_account(carrier, directory):
    Card.objects.create(carrier=carrier, iccid="898600000000000000")

    assert directory.resolve("898600000000000000") == carrier.pk
    assert directory.resolve("898600000000000001") is None
    with connection.execute_wrapper(Outage()):
        assert directory.resolve("898600000000000000") is None


def test_token_that_no_key_opens_is_the_fault_of_its_account_alone(carrier, directory, settings):
    other = Carrier.objects.create(name="b", code="b", gateway_url="http://b", gateway_token="")
    settings.FIELD_ENCRYPTION_KEYS = [Fernet.generate_key().decode()]

    broken, good = directory.get(carrier.pk), directory.get(other.pk)

    assert (broken.token, good.fault) == ("", "")
    assert "cannot be read" in broken.fault
    assert TOKEN not in broken.fault


def test_while_one_reads_the_others_are_not_kept_waiting(carrier, directory):
    directory.get(carrier.pk)
    time.sleep(1.05)
    go_on, reading = threading.Event(), threading.Event()

    def read_slowly():
        def hang(execute, *arguments):
            reading.set()
            go_on.wait(5)
            return execute(*arguments)

        with connection.execute_wrapper(hang):
            directory.refresh()
        connections.close_all()

    reader = threading.Thread(target=read_slowly)
    reader.start()
    assert reading.wait(5)
    began_s = time.monotonic()
    assert directory.get(carrier.pk).token == TOKEN
    elapsed_s = time.monotonic() - began_s
    go_on.set()
    reader.join()

    assert elapsed_s < 0.1


def test_first_reading_on_a_loop_is_waited_for(carrier, directory):
    async def body():
        return directory.get(carrier.pk), directory.enabled()

    account, enabled = asyncio.run(body())

    assert account.token == TOKEN
    assert enabled == [account]
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == "accounts"])


def test_on_a_loop_nobody_waits_for_sql(carrier, directory):
    async def body():
        first = directory.get(carrier.pk)
        carrier.gateway_token = "new-token"
        await asyncio.to_thread(_save, carrier)
        await asyncio.sleep(1.05)
        threads = threading.active_count()
        began_s = time.monotonic()
        for _ in range(200):
            directory.get(carrier.pk)
        assert time.monotonic() - began_s < 0.5
        # One reads for all of them.
        assert threading.active_count() <= threads + 1
        deadline_s = time.monotonic() + 2
        while directory.get(carrier.pk).token != "new-token":
            assert time.monotonic() < deadline_s
            await asyncio.sleep(0.01)
        return first

    assert asyncio.run(body()).token == TOKEN
    wait_until(lambda: not [t for t in threading.enumerate() if t.name == "accounts"])


def _save(row):
    row.save()
    connections.close_all()


def test_directory_forgets_on_demand(carrier, directory):
    directory.get(carrier.pk)
    Carrier.objects.update(code="other")
    directory.forget()

    assert directory.get(carrier.pk).code == "other"
