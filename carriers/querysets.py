"""Named queries of accounts, cards and usage; bulk changes of accounts and cards tell ``signals``."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from datetime import date
from functools import reduce
from itertools import islice
from operator import or_
from typing import TYPE_CHECKING, Any, NamedTuple

from django.db import connections, models, transaction
from django.db.models.functions import Length

from carriers import iccid as iccids
from carriers import signals
from carriers.signals import AccountChange, CardChange

if TYPE_CHECKING:
    from carriers.models import Card, Carrier, DailyUsage  # noqa: F401

# What may follow the digits of a number in sorting order. A range uses the ordinary index on PostgreSQL and SQLite alike, in any
# collation; LIKE would need an index of its own on each. (The F that ends some ICCIDs sorts below.)
_AFTER_PREFIX = "G"
_FEW = 1000
_POLLING_FIELDS = {"carrier", "carrier_id", "is_polled"}


def polled_under(carrier_id: int | None, *, is_polled: bool | None) -> int | None:
    """Give the account under which a card with these values is polled, None for a card that is not polled."""
    return carrier_id if is_polled else None


def account_change(*, was_enabled: bool, is_enabled: bool) -> AccountChange:
    """Name the change of an account that existed before."""
    if was_enabled == is_enabled:
        return AccountChange.CHANGED
    return AccountChange.ENABLED if is_enabled else AccountChange.DISABLED


def _batches(items: Iterable[Any], size: int = signals.BATCH) -> Iterator[list[Any]]:
    iterator = iter(items)
    while batch := list(islice(iterator, size)):
        yield batch


class CardDescription(NamedTuple):
    """What is known of a card before it has been checked."""

    iccid: str
    msisdn: str
    imsi: str
    package_id: int | None


class CarrierQuerySet(models.QuerySet["Carrier"]):
    """Queries of accounts."""

    def enabled(self) -> "CarrierQuerySet":
        """Accounts whose cards are to be polled."""
        return self.filter(is_enabled=True)

    def with_token(self) -> "CarrierQuerySet":
        """Accounts that have a gateway token; nothing is decrypted."""
        return self.annotate(token_length=Length("gateway_token")).filter(token_length__gt=0)

    def update(self, **kwargs: Any) -> int:
        """Change accounts, and tell which were changed, enabled or disabled."""
        with transaction.atomic(using=self.db):
            before = dict(self.order_by().values_list("pk", "is_enabled"))
            changed = super().update(**kwargs)
            now = self.model._base_manager.using(self.db).filter(pk__in=list(before))
            for carrier_id, is_enabled in now.values_list("pk", "is_enabled"):
                kind = account_change(was_enabled=before[carrier_id], is_enabled=is_enabled)
                signals.tell_account(self.model, carrier_id=carrier_id, kind=kind)
        return changed

    update.alters_data = True  # type: ignore[attr-defined]

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete accounts one by one, each with its cards."""
        deleted: Counter[str] = Counter()
        with transaction.atomic(using=self.db):
            for carrier in self:
                deleted.update(carrier.delete()[1])
        return deleted.total(), dict(deleted)

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]


class CardQuerySet(models.QuerySet["Card"]):
    """Queries of cards; ``update``, ``delete`` and ``bulk_create`` tell which cards came under polling, moved or left."""

    def under_polling(self) -> "CardQuerySet":
        """Cards that are to be polled: switched on, of an enabled account."""
        return self.filter(is_polled=True, carrier__is_enabled=True)

    def of_account(self, carrier_id: int) -> "CardQuerySet":
        """Cards of one account."""
        return self.filter(carrier_id=carrier_id)

    def with_number_prefix(self, text: str) -> "CardQuerySet":
        """Cards whose ICCID, MSISDN or IMSI begins so, separators tolerated; fast on any number of cards.

        A whole ICCID finds the card with its check digit, with a filler, and with neither. A few cards are looked up at once, by the index of each
        column: planners are bad at OR together with the order of a list.
        """
        prefix = iccids.normalised(text).lstrip("+")
        after = prefix + _AFTER_PREFIX
        ways = [
            models.Q(**{f"{name}__gte": prefix, f"{name}__lt": after})
            for name in ("iccid", "msisdn", "imsi")
        ]
        if iccids.is_valid(prefix):
            twins = iccids.twins(prefix)
            others = [o for twin in twins for o in iccids.twins(twin) if len(o) > len(twin)]
            ways.append(models.Q(iccid__in=[*twins, *others]))
        cards = CardQuerySet(self.model, using=self.db)
        ids: set[int] = set()
        for way in ways:
            ids.update(cards.filter(way).values_list("pk", flat=True)[: _FEW + 1])
            if len(ids) > _FEW:
                return self.filter(reduce(or_, ways))
        return self.filter(pk__in=ids)

    def _polled(self) -> Iterator[tuple[int, int | None]]:
        rows = self.order_by().values_list("pk", "carrier_id", "is_polled")
        for card_id, carrier_id, is_polled in rows.iterator(chunk_size=signals.BATCH):
            yield card_id, polled_under(carrier_id, is_polled=is_polled)

    def update(self, **kwargs: Any) -> int:
        """Change cards, and tell where that changed what is polled."""
        if not _POLLING_FIELDS & kwargs.keys():
            return super().update(**kwargs)
        with transaction.atomic(using=self.db):
            before = list(self._polled())
            changed = super().update(**kwargs)
            signals.tell_cards(self.model, self._differences(before))
        return changed

    update.alters_data = True  # type: ignore[attr-defined]

    def _differences(self, before: Iterable[tuple[int, int | None]]) -> Iterator[CardChange]:
        cards = CardQuerySet(self.model, using=self.db)
        for batch in _batches(before):
            after = dict(cards.filter(pk__in=[card_id for card_id, _old in batch])._polled())
            for card_id, old in batch:
                yield CardChange(card_id, old, after.get(card_id))

    def delete(self) -> tuple[int, dict[str, int]]:
        """Delete cards batch by batch, so that any number fits into memory, and tell."""
        deleted: Counter[str] = Counter()
        with transaction.atomic(using=self.db):
            for batch in _batches(list(self._polled())):
                ids = [card_id for card_id, _old in batch]
                part = CardQuerySet(self.model, using=self.db).filter(pk__in=ids)
                deleted.update(models.QuerySet.delete(part)[1])
                signals.tell_cards(self.model, (CardChange(c, old, None) for c, old in batch))
        return deleted.total(), dict(deleted)

    delete.alters_data = True  # type: ignore[attr-defined]
    delete.queryset_only = True  # type: ignore[attr-defined]

    def bulk_create(self, objs: Iterable["Card"], *args: Any, **kwargs: Any) -> list["Card"]:
        """Create cards, or with ``update_conflicts`` change those that exist, and tell."""
        cards = list(objs)
        may_exist = any(args[1:3]) or any(
            kwargs.get(flag) for flag in ("ignore_conflicts", "update_conflicts")
        )
        with transaction.atomic(using=self.db):
            before = self._polled_by_iccid(c.iccid for c in cards) if may_exist else {}
            created = super().bulk_create(cards, *args, **kwargs)
            after = (
                self._polled_by_iccid(c.iccid for c in cards) if may_exist else _polled_of(created)
            )
            changes = (CardChange(c, before.get(c), after[c]) for c in after)
            signals.tell_cards(self.model, changes)
        return created

    bulk_create.alters_data = True  # type: ignore[attr-defined]

    def create_many(self, carrier_id: int, cards: Sequence[CardDescription]) -> None:
        """Create cards of an account by the thousand, and tell; ``bulk_create`` costs five times as much.

        Raises ``IntegrityError`` where one exists.
        """
        with transaction.atomic(using=self.db):
            for batch in _batches(cards):
                self._insert_described(self.model(carrier_id=carrier_id), batch)
            after = self._polled_by_iccid(card.iccid for card in cards)
            signals.tell_cards(self.model, (CardChange(c, None, new) for c, new in after.items()))

    def _insert_described(self, blank: "Card", cards: Sequence[CardDescription]) -> None:
        """Insert cards that differ in their description only; the other columns come from a blank card."""
        connection = connections[self.db]
        quote = connection.ops.quote_name
        same = {
            quote(f.column or ""): f.get_db_prep_save(getattr(blank, f.attname), connection)
            for f in self.model._meta.concrete_fields
            if f.attname not in ("id", "created_at", *CardDescription._fields)
        }
        same = {column: value for column, value in same.items() if value is not None}
        marks = ", ".join(["%s"] * len(same))
        rows = ", ".join(["(%s, %s, %s, %s)"] * len(cards))
        with connection.cursor() as cursor:
            cursor.execute(
                f"INSERT INTO {quote(self.model._meta.db_table)} "  # noqa: S608 (own names)
                f"({', '.join(same)}, iccid, msisdn, imsi, package_id) "
                f"SELECT {marks}, column1, column2, column3, CAST(column4 AS bigint) "
                f"FROM (VALUES {rows}) AS described",
                [*same.values(), *(value for card in cards for value in card)],
            )

    create_many.alters_data = True  # type: ignore[attr-defined]

    def describe_many(self, carrier_id: int, cards: Sequence[CardDescription]) -> None:
        """Set what is known of existing cards of an account by the thousand; cards that have left it meanwhile stay as they are."""
        connection = connections[self.db]
        table = connection.ops.quote_name(self.model._meta.db_table)
        with connection.cursor() as cursor:
            cursor.executemany(
                f"UPDATE {table} SET msisdn = %s, imsi = %s, package_id = %s "  # noqa: S608 (own names)
                "WHERE iccid = %s AND carrier_id = %s",
                [(c.msisdn, c.imsi, c.package_id, c.iccid, carrier_id) for c in cards],
            )

    describe_many.alters_data = True  # type: ignore[attr-defined]

    def _polled_by_iccid(self, numbers: Iterable[str]) -> dict[int, int | None]:
        found: dict[int, int | None] = {}
        for batch in _batches(numbers):
            part = CardQuerySet(self.model, using=self.db).filter(iccid__in=batch)
            found.update(part._polled())
        return found


def _polled_of(cards: Iterable["Card"]) -> dict[int, int | None]:
    return {card.pk: polled_under(card.carrier_id, is_polled=card.is_polled) for card in cards}


class BookedUsage(NamedTuple):
    """Usage of one card to be added to one day."""

    card_id: int
    day: date
    used_bytes: int


class DailyUsageQuerySet(models.QuerySet["DailyUsage"]):
    """Queries of daily usage."""

    def book(self, bookings: Iterable[BookedUsage]) -> None:
        """Add usage to days, making rows where there are none; safe beside other bookings of the same card."""
        connection = connections[self.db]
        quote = connection.ops.quote_name
        table = quote(self.model._meta.db_table)
        summed: Counter[tuple[int, date]] = Counter()
        for booking in bookings:
            summed[booking.card_id, booking.day] += booking.used_bytes
        # Sorted, so that two writers lock rows in the same order.
        for batch in _batches(sorted(summed.items())):
            rows = ", ".join(["(%s, %s, %s)"] * len(batch))
            values = [value for (card_id, day), used in batch for value in (card_id, day, used)]
            with connection.cursor() as cursor:
                cursor.execute(
                    f"INSERT INTO {table} (card_id, day, used_bytes) VALUES {rows} "  # noqa: S608 (own names)
                    "ON CONFLICT (card_id, day) DO UPDATE "
                    f"SET used_bytes = {table}.used_bytes + excluded.used_bytes",
                    values,
                )
