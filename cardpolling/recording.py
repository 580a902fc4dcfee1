"""Brings what checks have found to SQL: facts, history and usage of many cards in one transaction."""

import logging
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from types import SimpleNamespace
from typing import Any, cast

from django.db import DataError, IntegrityError, connection, transaction
from django.db.models import Field
from django.utils import timezone

from cardpolling.errors import ResultRefused
from cardpolling.results import StepResult
from cardpolling.units import unit_of_work
from carriers import history
from carriers.models import Card, CardEvent, DailyUsage
from carriers.querysets import BookedUsage

logger = logging.getLogger(__name__)

FACT_FIELDS = (
    "pk",
    "carrier_id",
    "is_polled",
    "status",
    "raw_status",
    "is_online",
    "status_checked_at",
    "realname_verified",
    "realname_checked_at",
    "used_bytes",
    "cycle_start",
    "usage_checked_at",
    "usage_decreased_at",
    "package_state",
    "package_checked_at",
)


@dataclass(frozen=True, slots=True)
class Recording:
    """What one execution has found of a card of an account at ``at``: results that carry facts."""

    card_id: int
    carrier_id: int
    results: tuple[StepResult, ...]
    at: datetime


class _Row(SimpleNamespace):
    """The facts of a card as they stand: a model would cost three times the query's share of it."""


@dataclass(slots=True)
class _Batch:
    """What a transaction writes: rows per set of columns, history, usage."""

    rows: dict[tuple[str, ...], list[list[Any]]] = field(default_factory=lambda: defaultdict(list))
    events: list[CardEvent] = field(default_factory=list)
    usage: list[BookedUsage] = field(default_factory=list)

    def add(self, card: _Row, recording: Recording) -> None:
        for result in recording.results:
            found = history.changes(
                card, result.facts, recording.at, zone=timezone.get_default_timezone()
            )
            for name, value in found.updates.items():
                setattr(card, name, value)
            if found.updates:
                values = [*found.updates.values(), card.pk]
                self.rows[tuple(found.updates)].append(values)
            self.events += [
                CardEvent(
                    card_id=card.pk,
                    kind=event.kind,
                    old=event.old,
                    new=event.new,
                    at=event.at,
                    source=event.source,
                )
                for event in found.events
            ]
            if found.usage is not None:
                booked = BookedUsage(card.pk, found.usage.day, found.usage.used_bytes)
                self.usage.append(booked)


def save(recordings: Sequence[Recording]) -> list[Exception | None]:
    """Record the findings; None, or the exception of one that the database refuses, per recording and in order.

    The rows are read anew under a lock, so that an older result never overwrites a newer one, whoever wrote it; a card that was
    deleted, moved or taken out of polling meanwhile is passed over. Raises ``OperationalError`` and its like for the whole batch
    while the database is away: nothing has been written then.
    """
    with unit_of_work():
        try:
            _write(recordings)
        except (DataError, IntegrityError) as error:
            if len(recordings) == 1:
                logger.exception("result not recorded", extra={"card_id": recordings[0].card_id})
                return [ResultRefused(type(error).__name__)]
            return [answer for recording in recordings for answer in save([recording])]
    return [None] * len(recordings)


def _write(recordings: Sequence[Recording]) -> None:
    batch = _Batch()
    with transaction.atomic():
        rows = Card.objects.filter(pk__in={r.card_id for r in recordings})
        locked = rows.select_for_update().order_by("pk").values_list(*FACT_FIELDS)
        present = {row[0]: _Row(**dict(zip(FACT_FIELDS, row, strict=True))) for row in locked}
        for recording in recordings:
            card = present.get(recording.card_id)
            if card is not None and card.is_polled and card.carrier_id == recording.carrier_id:
                batch.add(card, recording)
        for columns, values in batch.rows.items():
            _update(columns, values)
        CardEvent.objects.bulk_create(batch.events, batch_size=500)
        DailyUsage.objects.book(batch.usage)


def _update(columns: tuple[str, ...], rows: list[list[Any]]) -> None:
    """One prepared statement for many rows: ``bulk_update`` builds a CASE per column and row, which costs ten times as much."""
    fields = [cast("Field[Any, Any]", Card._meta.get_field(name)) for name in columns]
    quote = connection.ops.quote_name
    settings = ", ".join(f"{quote(str(f.column))} = %s" for f in fields)
    statement = f"UPDATE {quote(Card._meta.db_table)} SET {settings} WHERE id = %s"  # noqa: S608  names from the model
    prepared = [
        [*(f.get_db_prep_save(v, connection) for f, v in zip(fields, row, strict=False)), row[-1]]
        for row in rows
    ]
    with connection.cursor() as cursor:
        cursor.executemany(statement, prepared)
