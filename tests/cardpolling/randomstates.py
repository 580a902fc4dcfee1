"""Random polling states and calls: what may stand in Redis, garbage included, and what the scripts may be asked."""

from collections.abc import Callable
from random import Random

from cardpolling.checktypes import CheckType
from cardpolling.keys import AccountKeys
from tests.cardpolling.reference import Hash, List, Space, Value, ZSet

NOW_MS = 1_764_547_200_000
LEASE_MS = 60_000
KEYS = AccountKeys(7)
IDS = ("1", "2", "10", "007", "9007199254740993", "1e3", "-", "a:b", "{c8}", "卡 7", "%d", "'\\n")
EXECUTORS = ("me", "another")
TYPES = tuple(str(check_type) for check_type in CheckType)
GARBAGE = (
    "",
    "abc",
    "-5",
    "1e3",
    "1.5",
    " 7",
    "0x10",
    "nan",
    "inf",
    "１２",
    "9" * 20,
    "9" * 400,
    "5|0|",
)
TIMES = (
    "0",
    "1",
    *(str(NOW_MS + d) for d in (-90_000, -1, 0, 1, 90_000)),
    str(2**53 - 1),
    str(2**53),
)
COUNTS = ("0", "1", "2", "3", str(2**53 - 2), str(2**53 - 1))
SCORES = (
    0,
    NOW_MS - 90_000,
    NOW_MS - 1,
    NOW_MS,
    NOW_MS + 1,
    NOW_MS + LEASE_MS,
    float("inf"),
    float("-inf"),
)
EXPIRIES_MS = (20_000, 45_000)

Call = tuple[list[str], list[str]]


def token(owner: str, card_id: str) -> str:
    """The token of a claim."""
    return f"{owner}:{card_id}"


def _chance(random: Random, percent: int) -> bool:
    return random.randrange(100) < percent


def account(random: Random, card_ids: tuple[str, ...]) -> Space:
    """The state of an account with some or none of the cards."""
    space = Space()
    for card_id in card_ids:
        _place(random, space, card_id)
        _hold(random, space, card_id)
        if _chance(random, 90):
            space.keys[KEYS.due(card_id)] = due_hash(random)
    for n in range(random.choice((0, 0, 1, 3))):
        space.set_score(KEYS.inflight, f"gone:{n}", random.choice(SCORES))
    return space


def _place(random: Random, space: Space, card_id: str) -> None:
    where = random.choice(("priority", "queue", "queue", "both", "nowhere"))
    if where in ("priority", "both"):
        space.set_score(KEYS.priority, card_id, random.choice(SCORES))
    if where in ("queue", "both"):
        space.set_score(KEYS.queue, card_id, random.choice(SCORES))


def _hold(random: Random, space: Space, card_id: str) -> None:
    claim = random.choice((None, "mine", "mine", "other", "bad"))
    if claim:
        held = token(claim, card_id)
        _key(random, space, KEYS.claim(card_id), List(["x"]) if claim == "bad" else held)
        if _chance(random, 80):
            space.set_score(KEYS.inflight, held, NOW_MS + random.choice((-1, 0, 30_000)))
    executor = random.choice((None, None, *EXECUTORS, "bad"))
    if executor:
        _key(
            random, space, KEYS.exec_right(card_id), List(["x"]) if executor == "bad" else executor
        )


def _key(random: Random, space: Space, key: str, value: Value) -> None:
    space.keys[key] = value
    if _chance(random, 80):
        space.ttls_ms[key] = random.choice(EXPIRIES_MS)


def due_hash(random: Random) -> Value:
    """The due hash of a card, or what stands in its place."""
    if _chance(random, 5):
        return random.choice(("text", List(["x"]), ZSet(x=1)))
    fields = Hash(carrier="7")
    for check_type in random.sample(TYPES, random.randrange(len(TYPES) + 1)):
        fields[f"due:{check_type}"] = _time(random)
        for name, values in (("ok", TIMES), ("req", COUNTS), ("fail", COUNTS), ("cfm", ("30,60",))):
            if _chance(random, 50):
                fields[f"{name}:{check_type}"] = _or_garbage(random, values)
        if _chance(random, 30):
            fields[f"exp:{check_type}"] = "active"
    if _chance(random, 30):
        fields["prio"] = random.choice(("1", "1", "0", "yes"))
    if _chance(random, 10):
        fields["due:unknown"] = _time(random)
    return fields


def _time(random: Random) -> str:
    return _or_garbage(random, TIMES)


def _or_garbage(random: Random, values: tuple[str, ...]) -> str:
    return random.choice(GARBAGE if _chance(random, 15) else values)


def claim(random: Random, _space: Space, _card_id: str) -> Call:
    """A call of claim.lua."""
    groups = dict(
        zip(TYPES, random.choice((("q", "u", "q"), ("q", "q", "q"), ("a", "b", "c"))), strict=False)
    )
    budgets = {
        group: random.choice(("", "0", "0", "1", "1", "2", "3", "-1", "5"))
        for group in sorted(set(groups.values()))
        if _chance(random, 80)
    }
    arguments = [
        NOW_MS,
        LEASE_MS,
        random.choice((0, -1, 1, 2, 3, 5, 8, 20)),
        random.choice(("0", "0.1", "0.5", "0.67", "1")),
        "prefix",
        ";".join(f"{group}={n}" for group, n in budgets.items()),
        ";".join(f"{check_type}={group}" for check_type, group in groups.items()),
        random.choice((0, 1)),
        KEYS.card_prefix,
        *random.choice(([], [1], [2], [3], [4], [2000])),
    ]
    return [KEYS.priority, KEYS.queue, KEYS.inflight], [str(argument) for argument in arguments]


def acquire_exec(random: Random, _space: Space, card_id: str) -> Call:
    """A call of acquire_exec.lua."""
    keys = [KEYS.claim(card_id), KEYS.exec_right(card_id)]
    return keys, [token("mine", card_id), random.choice(EXECUTORS), str(LEASE_MS)]


def renew(random: Random, _space: Space, card_id: str) -> Call:
    """A call of renew.lua."""
    keys = [KEYS.claim(card_id), KEYS.exec_right(card_id), KEYS.inflight, KEYS.priority, KEYS.queue]
    executor = random.choice(EXECUTORS)
    return keys, [token("mine", card_id), executor, str(LEASE_MS), "70000", str(NOW_MS), card_id]


def finish(random: Random, space: Space, card_id: str) -> Call:
    """A call of finish.lua; half of the guards hold what stands in the due hash."""
    pairs = {}
    fields = space.fields(KEYS.due(card_id))
    for check_type in random.sample(TYPES, random.randrange(len(TYPES) + 1)):
        pairs[f"due:{check_type}"] = _new_due(random, fields, check_type)
        for name, value in (
            ("ok", str(NOW_MS)),
            ("err", "timeout||a|b"),
            ("cfm", "60"),
            ("exp", "gone"),
        ):
            if _chance(random, 40):
                pairs[f"{name}:{check_type}"] = value
    if _chance(random, 30):
        pairs["prio"] = random.choice(("1", "1", "0"))
    names = [f"{name}:{t}" for t in TYPES for name in ("due", "fail", "ffail", "err", "cfm", "exp")]
    deletions = random.sample([*names, "prio"], random.choice((0, 1, 4)))
    keys = [KEYS.due(card_id), KEYS.claim(card_id), KEYS.exec_right(card_id)]
    flat = [text for pair in pairs.items() for text in pair]
    arguments = [
        token("mine", card_id),
        random.choice(EXECUTORS),
        card_id,
        str(NOW_MS),
        str(len(pairs)),
    ]
    return [*keys, KEYS.inflight, KEYS.priority, KEYS.queue], [*arguments, *flat, *deletions]


def _new_due(random: Random, fields: Hash, check_type: str) -> str:
    new = _time(random)
    if _chance(random, 25):
        return new
    seen_req = fields.get(f"req:{check_type}", "0")
    seen_due = fields.get(f"due:{check_type}", "")
    if _chance(random, 30):
        seen_req = random.choice(COUNTS + GARBAGE[:3])
    if _chance(random, 30):
        seen_due = _time(random)
    return f"{new}|{seen_req.replace('|', '')}|{seen_due}"


def request_check(random: Random, _space: Space, card_id: str) -> Call:
    """A call of request_check.lua."""
    arguments = [
        NOW_MS,
        card_id,
        random.choice((0, 1, 2, 90_000, 90_001, 2 * NOW_MS)),
        random.choice(("", "", "", "30,60")),
        random.choice(("", "", "suspended")),
        random.choice((0, 1)),
        *random.sample(TYPES, random.choice((1, 1, 2, 4))),
    ]
    keys = [KEYS.due(card_id), KEYS.priority, KEYS.queue, KEYS.claim(card_id)]
    return keys, [str(argument) for argument in arguments]


def remove(_random: Random, _space: Space, card_id: str) -> Call:
    """A call of remove.lua."""
    return [KEYS.priority, KEYS.queue, KEYS.due(card_id)], [card_id]


def release(_random: Random, _space: Space, card_id: str) -> Call:
    """A call of release.lua."""
    keys = [KEYS.claim(card_id), KEYS.inflight, KEYS.priority, KEYS.queue]
    return keys, [token("mine", card_id), card_id, str(NOW_MS)]


def enroll(random: Random, _space: Space, card_id: str) -> Call:
    """A call of enroll.lua."""
    dues: list[str] = []
    for check_type in random.sample(TYPES, random.randrange(len(TYPES) + 1)):
        dues += [check_type, _time(random)]
    return [KEYS.due(card_id), KEYS.priority, KEYS.queue], [card_id, "7", *dues]


CALLS: dict[str, Callable[[Random, Space, str], Call]] = {
    call.__name__: call
    for call in (claim, acquire_exec, renew, finish, request_check, remove, release, enroll)
}
