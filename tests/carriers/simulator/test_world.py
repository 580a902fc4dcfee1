"""The simulated cards."""

from collections import Counter
from datetime import UTC, date, datetime

import pytest

from carriers.simulator.world import World

NOON = datetime(2026, 12, 1, 12, tzinfo=UTC).timestamp()
DAY_S = 86_400
ICCIDS = [f"8986{n:016}" for n in range(2_000)]


class Clock:
    """A clock that tests set."""

    def __init__(self, at_s=NOON):
        self.at_s = at_s

    def __call__(self):
        return self.at_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def world(clock):
    return World(effect_delay_ms=5_000, now_s=clock)


def find(world, status):
    """A card that is so by nature."""
    return next(i for i in ICCIDS if world.facts(i).status == status)


def test_two_worlds_tell_the_same_of_every_card(clock):
    worlds = World(now_s=clock), World(now_s=clock)

    assert all(worlds[0].facts(i) == worlds[1].facts(i) for i in ICCIDS)


def test_cards_differ_and_most_are_active(world):
    facts = [world.facts(i) for i in ICCIDS]

    statuses = Counter(f.status for f in facts)
    assert statuses.keys() == {"active", "suspended", "testing", "inventory", "deactivated"}
    assert 0.8 < statuses["active"] / len(facts) < 0.9
    assert 0.85 < sum(f.verified for f in facts) / len(facts) < 0.95
    assert len({f.used_bytes for f in facts}) > 1_500


def test_usage_only_grows_within_a_cycle_and_starts_anew_with_the_next(world, clock):
    iccid, last = find(world, "active"), None

    for hour in range(24 * 70):
        clock.at_s = NOON + hour * 3_600
        facts = world.facts(iccid)
        if last is not None and facts.cycle_start == last.cycle_start:
            assert facts.used_bytes >= last.used_bytes
        elif last is not None:
            assert facts.used_bytes < last.used_bytes
        last = facts


@pytest.mark.parametrize("day", range(1, 32))
def test_a_cycle_has_begun_and_is_no_older_than_a_month(clock, day):
    clock.at_s = datetime(2027, 3, day, 0, 0, 1, tzinfo=UTC).timestamp()
    world = World(now_s=clock)

    ages = {date(2027, 3, day) - world.facts(i).cycle_start for i in ICCIDS[:200]}

    assert min(ages).days >= 0
    assert max(ages).days < 31


def test_a_suspend_takes_effect_after_its_delay_and_not_before(world, clock):
    iccid = find(world, "active")
    world.switch(iccid, "suspended")

    clock.at_s = NOON + 4.999
    assert world.facts(iccid).status == "active"

    clock.at_s = NOON + 5
    assert world.facts(iccid).status == "suspended"
    assert not world.facts(iccid).online
    assert world.facts(iccid).changed_at == datetime.fromtimestamp(NOON + 5, UTC)


def test_a_suspended_card_uses_nothing_and_goes_on_where_it_stopped(world, clock):
    iccid = find(world, "active")
    world.switch(iccid, "suspended")
    clock.at_s = NOON + 5
    used = world.facts(iccid).used_bytes

    clock.at_s = NOON + 3_600
    assert world.facts(iccid).used_bytes == used
    world.switch(iccid, "active")
    clock.at_s = NOON + 3_605
    assert (world.facts(iccid).status, world.facts(iccid).used_bytes) == ("active", used)

    clock.at_s = NOON + 7_200
    assert world.facts(iccid).used_bytes > used


def test_the_same_order_again_is_accepted_and_delays_nothing(world, clock):
    iccid = find(world, "active")
    world.switch(iccid, "suspended")
    clock.at_s = NOON + 3

    assert world.switch(iccid, "suspended")
    clock.at_s = NOON + 5
    assert world.facts(iccid).status == "suspended"


def test_the_opposite_order_is_refused_while_one_is_pending(world):
    iccid = find(world, "active")
    world.switch(iccid, "suspended")

    assert not world.switch(iccid, "active")


def test_set_facts_are_told_until_they_are_set_anew(world, clock):
    world.set_card(ICCIDS[0], status="active", used_bytes=5, verified=False)
    world.set_card(ICCIDS[0], used_bytes=6)

    facts = world.facts(ICCIDS[0])

    assert (facts.status, facts.used_bytes, facts.verified) == ("active", 6, False)


def test_a_set_status_ends_with_a_switch(world, clock):
    world.set_card(ICCIDS[0], status="active")
    world.switch(ICCIDS[0], "suspended")

    clock.at_s += 5

    assert world.facts(ICCIDS[0]).status == "suspended"


def test_a_removed_card_is_unknown_until_a_fact_of_it_is_set(world):
    world.remove_card(ICCIDS[0])
    assert world.facts(ICCIDS[0]) is None

    world.set_card(ICCIDS[0], verified=True)
    assert world.facts(ICCIDS[0]).verified


def test_a_fact_that_does_not_exist_is_refused(world):
    with pytest.raises(ValueError, match="colour"):
        world.set_card(ICCIDS[0], colour="red")
