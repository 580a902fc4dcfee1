"""A walk over all keys of the polling state: what belongs to no queue member is found nowhere else."""

import re
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from redis import Redis

from cardpolling import conf, enrolment
from cardpolling.keys import AccountKeys
from cardpolling.mending import Summary
from cardpolling.paging import pages
from carriers.models import Carrier

PAGE = 1000
NO_EXPIRY = -1
_ACCOUNT_KEY = re.compile(r"polling:\{c(\d+)\}:(?:card:(.+):(due|claim|exec)$)?")


class KeySweep:
    """The walk over all keys: what belongs to no queue member is only found here."""

    def __init__(self, client: Redis, accounts: Collection[int], *, is_dry: bool) -> None:
        self._client = client
        self._accounts = set(accounts)
        self._is_dry = is_dry
        self._summary = Summary()

    def run(self) -> Summary:
        """Walk over all keys of all accounts and mend."""
        for names in pages(self._client.scan_iter(match="polling:{c*}:*", count=PAGE), PAGE):
            self._check_names(names)
        return self._summary

    def _check_names(self, names: Sequence[str]) -> None:
        cards: dict[int, list[str]] = defaultdict(list)
        dead: dict[int, list[str]] = defaultdict(list)
        expiring: list[str] = []
        for name in names:
            if (match := _ACCOUNT_KEY.match(name)) is None:
                continue
            carrier_id, card_id, kind = int(match[1]), match[2], match[3]
            if carrier_id not in self._accounts:
                dead[carrier_id].append(name)
            elif kind == "due":
                cards[carrier_id].append(card_id)
            elif kind is not None:
                expiring.append(name)
        self._drop_dead(dead)
        self._give_expiry(expiring)
        for carrier_id, card_ids in cards.items():
            self._drop_orphans(AccountKeys(carrier_id), card_ids)

    def _drop_dead(self, dead: Mapping[int, Sequence[str]]) -> None:
        if not dead:
            return
        # An account made since the pass began is not dead.
        self._accounts |= set(Carrier.objects.filter(pk__in=dead).values_list("pk", flat=True))
        names = [n for c, names in dead.items() if c not in self._accounts for n in names]
        self._summary.dead_keys += len(names)
        if names and not self._is_dry:
            self._client.unlink(*names)

    def _give_expiry(self, names: Sequence[str]) -> None:
        pipe = self._client.pipeline(transaction=False)
        for name in names:
            pipe.pttl(name)
        endless = [
            n for n, ttl_ms in zip(names, pipe.execute(), strict=True) if ttl_ms == NO_EXPIRY
        ]
        self._summary.without_expiry += len(endless)
        if endless and not self._is_dry:
            for name in endless:
                pipe.pexpire(name, conf.lease_ms(), nx=True)
            pipe.execute()

    def _drop_orphans(self, keys: AccountKeys, card_ids: Sequence[str]) -> None:
        """Due hashes of cards that stand in no queue, and that SQL does not want polled at this account."""
        stand = enrolment.standing(self._client, keys, card_ids)
        orphans = [card_id for card_id in card_ids if card_id not in stand]
        wanted = enrolment.members_to_poll(keys.carrier_id, orphans)
        # Asked again after SQL: a card that has been enrolled meanwhile stands in a queue now.
        stand = enrolment.standing(self._client, keys, orphans)
        orphans = [c for c in orphans if c not in wanted and c not in stand]
        self._summary.orphans += len(orphans)
        if orphans and not self._is_dry:
            self._client.unlink(*(keys.due(card_id) for card_id in orphans))
