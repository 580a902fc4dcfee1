"""Cards and accounts come, move and go: what ``carriers`` tells becomes the polling state, after the commit.

What is written follows from SQL as it is after the commit, not from the order in which changes were told. Redis that does not
answer breaks nobody's save: the change is logged, and the reconciler brings the polling state in line later.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from django.db import InterfaceError, OperationalError, transaction
from django.db.models.signals import post_delete, post_save
from redis import ConnectionError as RedisConnectionError
from redis import TimeoutError as RedisTimeoutError

from cardpolling import configuration, connection, enrolment, state
from cardpolling.enrolment import PolledCard
from cardpolling.errors import ConfigurationUnavailable
from cardpolling.keys import AccountKeys
from cardpolling.models import PollingConfig
from cardpolling.paging import pages
from carriers.signals import AccountChange, CardChange, account_changed, cards_changed

logger = logging.getLogger(__name__)

SCAN_COUNT = 1000
_OUTAGES = (
    RedisConnectionError,
    RedisTimeoutError,
    OperationalError,
    InterfaceError,
    ConfigurationUnavailable,
)


def connect() -> None:
    """Listen; called once, when the application is ready."""
    cards_changed.connect(_on_cards_changed, dispatch_uid="cardpolling.lifecycle.cards")
    account_changed.connect(_on_account_changed, dispatch_uid="cardpolling.lifecycle.accounts")
    for signal in (post_save, post_delete):
        signal.connect(
            _on_configuration_changed,
            sender=PollingConfig,
            dispatch_uid="cardpolling.lifecycle.configuration",
        )


def _on_cards_changed(changes: Sequence[CardChange], **_: Any) -> None:
    _after_commit(partial(follow_cards, tuple(changes)))


def _on_account_changed(carrier_id: int, kind: AccountChange, **_: Any) -> None:
    if kind is AccountChange.DELETED:
        _after_commit(partial(forget_account, carrier_id))
    elif kind is AccountChange.ENABLED:
        _after_commit(partial(follow_account, carrier_id))


def _on_configuration_changed(**_: Any) -> None:
    transaction.on_commit(configuration.forget)


def _after_commit(follow: Callable[[], None]) -> None:
    transaction.on_commit(partial(_follow, follow))


def _follow(follow: Callable[[], None]) -> None:
    try:
        follow()
    except _OUTAGES as error:
        logger.warning(
            "polling state not changed, the reconciler will mend it: %s", type(error).__name__
        )
    except Exception:  # whatever went wrong, the save itself has succeeded
        logger.exception("polling state not changed, the reconciler will mend it")


def follow_cards(changes: Sequence[CardChange]) -> None:
    """Bring cards to where SQL has them now: out of accounts they have left, into the one that polls them.

    A new card is first checked somewhere within its interval; one that moved here from another account is due at once.
    """
    client = connection.polling_redis()
    polled = {card.card_id: card for card in enrolment.cards_to_poll({c.card_id for c in changes})}
    left: dict[int, list[str]] = defaultdict(list)
    new: list[PolledCard] = []
    moved: list[PolledCard] = []
    for change in changes:
        card = polled.get(change.card_id)
        old_id = change.old_carrier_id
        if old_id is not None and (card is None or card.carrier_id != old_id):
            left[old_id].append(str(change.card_id))
        if card is not None:
            (new if old_id is None else moved).append(card)
    for carrier_id, card_ids in left.items():
        for part in pages(card_ids, enrolment.PIPELINE):
            enrolment.answered(state.remove_many(client, carrier_id, part))
    enrolment.enroll(client, moved, is_due_now=True)
    enrolment.enroll(client, new)


def follow_account(carrier_id: int) -> None:
    """Enrol the cards of an account that was switched on and that are not under polling yet."""
    enrolment.enroll_missing(connection.polling_redis(), carrier_id)


def forget_account(carrier_id: int) -> None:
    """Delete all that Redis holds of an account that is no more."""
    client = connection.polling_redis()
    names = client.scan_iter(match=AccountKeys(carrier_id).prefix + "*", count=SCAN_COUNT)
    for page in pages(names, SCAN_COUNT):
        client.unlink(*page)
