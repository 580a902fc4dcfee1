"""The polling state's scripts once more, in plain Python on a dict: what the scripts of ``cardpolling/lua`` are held against.

Written from the contract of the scripts alone. A function takes the key space, KEYS and ARGV exactly as the script of the same
name, changes the key space and gives the answer. Nothing here is quick, clever or shared with the product.
"""

import copy
import re
from dataclasses import dataclass, field
from math import floor

LARGEST = 2**53
HOUR_MS = 3_600_000
GUARDED = re.compile(r"([^|]*)\|([^|]*)\|(.*)", re.DOTALL)


class ZSet(dict[str, float]):
    """A sorted set: member -> score."""


class Hash(dict[str, str]):
    """A hash: field -> value."""


class List(list[str]):
    """A list; none of the scripts has a use for one."""


Value = ZSet | Hash | List | str


@dataclass
class Space:
    """A key space. Expiries are what is left of them, in ms; time stands still.

    ``inexact`` holds key and member of scores that were read from an expiry: a server's clock runs while the script waits.
    """

    keys: dict[str, Value] = field(default_factory=dict)
    ttls_ms: dict[str, int] = field(default_factory=dict)
    inexact: set[tuple[str, str]] = field(default_factory=set)

    def copy(self) -> "Space":
        """The same, to be changed apart."""
        return copy.deepcopy(self)

    def zset(self, key: str) -> ZSet:
        """The members of a sorted set, empty where there is none; for reading."""
        value = self.keys.get(key, ZSet())
        if not isinstance(value, ZSet):
            raise TypeError(f"{key} is no sorted set")
        return value

    def fields(self, key: str) -> Hash:
        """The fields of a hash, empty where there is none or something else; for reading."""
        value = self.keys.get(key)
        return value if isinstance(value, Hash) else Hash()

    def text(self, key: str) -> str | None:
        """A string, None where there is none; what is no string equals no token."""
        value = self.keys.get(key)
        return "" if isinstance(value, ZSet | Hash | List) else value

    def set_score(self, key: str, member: str, score: float, *, is_exact: bool = True) -> None:
        """ZADD."""
        value = self.keys.setdefault(key, ZSet())
        if not isinstance(value, ZSet):
            raise TypeError(f"{key} is no sorted set")
        value[member] = score
        self.inexact.discard((key, member))
        if not is_exact:
            self.inexact.add((key, member))

    def move(self, queues: list[str], member: str, score: float, *, is_exact: bool = True) -> None:
        """ZADD XX on each of the queues."""
        for key in queues:
            if member in self.zset(key):
                self.set_score(key, member, score, is_exact=is_exact)

    def drop_member(self, key: str, member: str) -> None:
        """ZREM."""
        self.zset(key).pop(member, None)
        self._drop_if_empty(key)

    def set_field(self, key: str, name: str, value: str) -> None:
        """HSET; what stood there and is no hash gives way."""
        self.drop_unless_hash(key)
        hash_ = self.keys.setdefault(key, Hash())
        assert isinstance(hash_, Hash)
        hash_[name] = value

    def drop_unless_hash(self, key: str) -> None:
        """DEL of what can be read by nobody."""
        if not isinstance(self.keys.get(key), Hash):
            self.delete(key)

    def drop_field(self, key: str, name: str) -> None:
        """HDEL."""
        self.fields(key).pop(name, None)
        self._drop_if_empty(key)

    def set_text(self, key: str, value: str, ttl_ms: int) -> None:
        """SET PX."""
        self.keys[key] = value
        self.ttls_ms[key] = ttl_ms

    def delete(self, key: str) -> None:
        """DEL."""
        self.keys.pop(key, None)
        self.ttls_ms.pop(key, None)

    def _drop_if_empty(self, key: str) -> None:
        if self.keys.get(key) in (ZSet(), Hash()):
            self.delete(key)


def _integer(text: str | None) -> int | None:
    if text is None or not re.fullmatch(r"[0-9]+", text, re.ASCII) or int(text) >= LARGEST:
        return None
    return int(text)


def _table(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split(";") if part)


# claim


class _Budgets:
    """Calls left per group, as one claim uses them up."""

    def __init__(self, text: str) -> None:
        self.left = {group: int(n) for group, n in _table(text).items() if n != ""}
        self.began: set[str] = set()

    def fits(self, need: dict[str, int]) -> bool:
        for group, calls in need.items():
            if group not in self.left:
                continue
            if self.left[group] <= 0:
                return False
            if group in self.began and calls > self.left[group]:
                return False
        return True

    def use(self, need: dict[str, int]) -> None:
        for group, calls in need.items():
            self.began.add(group)
            if group in self.left:
                self.left[group] -= calls


def claim(space: Space, keys: list[str], argv: list[str]) -> list[int | str]:
    """Take due cards of an account."""
    return _Claiming(space, keys, argv).run()


class _Claiming:
    """One call of claim."""

    def __init__(self, space: Space, keys: list[str], argv: list[str]) -> None:
        self.space = space
        self.priority, self.queue, self.inflight = keys
        self.now, self.lease, self.limit = int(argv[0]), int(argv[1]), int(argv[2])
        self.ratio, self.prefix = float(argv[3]), argv[4]
        self.budgets, self.groups = _Budgets(argv[5]), _table(argv[6])
        if argv[7] == "0":
            self.groups.pop("realname", None)
        self.card_prefix = argv[8]
        self.looks_left = int(argv[9]) if len(argv) > 9 else 2000
        self.seen: set[tuple[str, str]] = set()
        self.answer: list[int | str] = []

    def run(self) -> list[int | str]:
        self.answer = [self.drop_expired()]
        capacity = self.limit - len(self.space.zset(self.inflight))
        if capacity <= 0:
            return self.answer
        quota = max(1, floor(capacity * self.ratio)) if self.ratio else capacity
        # While the normal queue has cards due, blocked priority cards use up half of the look at most.
        is_normal_due = self.next_of(self.queue) is not None
        first_look = (self.looks_left + 1) // 2 if is_normal_due else self.looks_left
        capacity -= self.sweep(self.priority, quota, first_look)
        capacity -= self.sweep(self.queue, capacity, self.looks_left)
        self.sweep(self.priority, capacity, self.looks_left)
        return self.answer

    def drop_expired(self) -> int:
        inflight = self.space.zset(self.inflight)
        expired = [token for token, expiry in inflight.items() if expiry <= self.now]
        for token in expired:
            self.space.drop_member(self.inflight, token)
        return len(expired)

    def sweep(self, key: str, wanted: int, most_in_vain: int) -> int:
        taken = in_vain = 0
        while taken < wanted and in_vain < most_in_vain and self.looks_left > 0:
            card_id = self.next_of(key)
            if card_id is None:
                break
            self.seen.add((key, card_id))
            self.looks_left -= 1
            is_taken = self.take(card_id, key)
            taken += is_taken
            in_vain += not is_taken
        return taken

    def next_of(self, key: str) -> str | None:
        ready = [
            (score, member.encode())
            for member, score in self.space.zset(key).items()
            if score <= self.now and (key, member) not in self.seen
        ]
        return min(ready)[1].decode() if ready else None

    def take(self, card_id: str, key: str) -> bool:
        due_key = f"{self.card_prefix}{card_id}:due"
        need = self.need_of(due_key)
        if not self.budgets.fits(need):
            return False
        claim_key = f"{self.card_prefix}{card_id}:claim"
        if claim_key in self.space.keys:
            self.wait_for(claim_key, card_id)
            return False
        token, ends = f"{self.prefix}:{card_id}", self.now + self.lease
        self.space.set_text(claim_key, token, self.lease)
        self.space.set_score(self.inflight, token, ends)
        self.space.move([self.priority, self.queue], card_id, ends)
        if key == self.priority:
            self.space.drop_field(due_key, "prio")
        self.budgets.use(need)
        self.answer += [card_id, token, int(key == self.priority)]
        return True

    def wait_for(self, claim_key: str, card_id: str) -> None:
        is_exact = claim_key not in self.space.ttls_ms
        ends_in = self.space.ttls_ms.setdefault(claim_key, self.lease)
        queues = [self.priority, self.queue]
        self.space.move(queues, card_id, self.now + ends_in, is_exact=is_exact)

    def need_of(self, due_key: str) -> dict[str, int]:
        need: dict[str, int] = {}
        is_readable = isinstance(self.space.keys.get(due_key, Hash()), Hash)
        for check_type, group in self.groups.items():
            due = self.space.fields(due_key).get(f"due:{check_type}")
            if not is_readable or (due is not None and self.is_due(due)):
                need[group] = need.get(group, 0) + 1
        return need

    def is_due(self, due: str) -> bool:
        number = _integer(due)
        return number is None or number <= self.now


# one card


def acquire_exec(space: Space, keys: list[str], argv: list[str]) -> int:
    """Take the right to execute a claim."""
    claim_key, exec_key = keys
    token, executor, ttl = argv
    if space.text(claim_key) != token:
        return 0
    if space.text(exec_key) not in (None, executor):
        space.ttls_ms.setdefault(exec_key, int(ttl))
        return -1
    space.set_text(exec_key, executor, int(ttl))
    return 1


def renew(space: Space, keys: list[str], argv: list[str]) -> int:
    """Extend a lease and the exec right."""
    claim_key, exec_key, inflight, priority, queue = keys
    token, executor, lease, ttl, now, card_id = argv
    if space.text(claim_key) != token or space.text(exec_key) != executor:
        return 0
    ends = int(now) + int(lease)
    space.ttls_ms[claim_key] = int(lease)
    space.ttls_ms[exec_key] = int(ttl)
    space.set_score(inflight, token, ends)
    space.move([priority, queue], card_id, ends)
    return 1


def finish(space: Space, keys: list[str], argv: list[str]) -> int:
    """Write a result and end its claim."""
    due_key, claim_key, exec_key, inflight, priority, queue = keys
    token, executor, card_id, now, n = argv[:5]
    numbered = argv[5 : 5 + 2 * int(n)]
    pairs = list(zip(numbered[::2], numbered[1::2], strict=True))
    deletions = argv[5 + 2 * int(n) :]

    is_ours = space.text(claim_key) == token
    in_time = is_ours and space.text(exec_key) in (None, executor)
    is_polled = card_id in space.zset(priority) or card_id in space.zset(queue)
    if space.text(exec_key) == executor:
        space.delete(exec_key)
    if in_time:
        space.delete(claim_key)
        space.drop_member(inflight, token)
    if not is_polled:
        space.delete(due_key)
        return int(in_time)

    _write_result(space, due_key, pairs, deletions, is_late=not in_time)
    if not in_time:
        return 0
    fields = space.fields(due_key)
    dues = [_integer(value) for name, value in fields.items() if name.startswith("due:")]
    score = min((due for due in dues if due is not None), default=int(now) + HOUR_MS)
    goes_to, leaves = (priority, queue) if fields.get("prio") == "1" else (queue, priority)
    space.drop_member(leaves, card_id)
    space.set_score(goes_to, card_id, score)
    return 1


def _write_result(
    space: Space,
    due_key: str,
    pairs: list[tuple[str, str]],
    deletions: list[str],
    *,
    is_late: bool,
) -> None:
    space.drop_unless_hash(due_key)
    skipped = _skipped(Hash(space.fields(due_key)), pairs, is_late=is_late)
    for name, value in pairs:
        guarded = GUARDED.fullmatch(value) if name.startswith("due:") else None
        new = guarded[1] if guarded else value
        is_bad = name.startswith("due:") and _integer(new) is None
        if name not in skipped and not is_bad:
            space.set_field(due_key, name, new)
    for name in deletions:
        if name not in skipped:
            space.drop_field(due_key, name)


def _skipped(before: Hash, pairs: list[tuple[str, str]], *, is_late: bool) -> set[str]:
    """Names of the fields that are left as they are; the mark for the priority queue is no business of a late result."""
    skipped = {"prio"} if is_late else set()
    for name, value in pairs:
        guarded = GUARDED.fullmatch(value) if name.startswith("due:") else None
        if not guarded:
            continue
        check_type = name.removeprefix("due:")
        if (_integer(before.get(f"req:{check_type}")) or 0) != (_integer(guarded[2]) or 0):
            skipped |= {f"{what}:{check_type}" for what in ("due", "cfm", "exp")}
        if is_late and before.get(name, "") != guarded[3]:
            whats = ("due", "ok", "fail", "ffail", "err", "cfm", "exp")
            skipped |= {f"{what}:{check_type}" for what in whats}
    return skipped


def request_check(space: Space, keys: list[str], argv: list[str]) -> int:
    """Ask for checks of a card."""
    due_key, priority, queue, claim_key = keys
    now, card_id, cooldown, delays, expected, to_priority = argv[:6]
    if card_id not in space.zset(priority) and card_id not in space.zset(queue):
        return -1
    space.drop_unless_hash(due_key)
    confirmation = {"cfm": delays, "exp": expected} if delays or expected else {}
    requested = [
        check_type
        for check_type in argv[6:]
        if confirmation
        or not _is_fresh(space.fields(due_key).get(f"ok:{check_type}"), int(now), int(cooldown))
    ]
    for check_type in requested:
        _request(space, due_key, check_type, now, confirmation)
    if requested and to_priority == "1":
        space.set_field(due_key, "prio", "1")
    if requested and claim_key not in space.keys:
        _make_due(space, [priority, queue], card_id, int(now), to_priority=to_priority == "1")
    return len(requested)


def _is_fresh(ok: str | None, now: int, cooldown: int) -> bool:
    succeeded = _integer(ok)
    return succeeded is not None and 0 <= now - succeeded < cooldown


def _request(
    space: Space, due_key: str, check_type: str, now: str, confirmation: dict[str, str]
) -> None:
    requests = _integer(space.fields(due_key).get(f"req:{check_type}")) or 0
    space.set_field(due_key, f"due:{check_type}", now)
    space.set_field(due_key, f"req:{check_type}", str((requests + 1) % LARGEST))
    for name, value in confirmation.items():
        if value:
            space.set_field(due_key, f"{name}:{check_type}", value)
        else:
            space.drop_field(due_key, f"{name}:{check_type}")


def _make_due(
    space: Space, queues: list[str], card_id: str, now: int, *, to_priority: bool
) -> None:
    if to_priority:
        priority, queue = queues
        space.set_score(priority, card_id, min(now, space.zset(priority).get(card_id, now)))
        space.drop_member(queue, card_id)
        return
    for key in queues:
        space.move([key], card_id, min(now, space.zset(key).get(card_id, now)))


def remove(space: Space, keys: list[str], argv: list[str]) -> int:
    """Take a card out of polling."""
    priority, queue, due_key = keys
    (card_id,) = argv
    was_polled = card_id in space.zset(priority) or card_id in space.zset(queue)
    space.drop_member(priority, card_id)
    space.drop_member(queue, card_id)
    space.delete(due_key)
    return int(was_polled)


def release(space: Space, keys: list[str], argv: list[str]) -> int:
    """Give back a claim that was never published."""
    claim_key, inflight, priority, queue = keys
    token, card_id, now = argv
    if space.text(claim_key) != token:
        return 0
    space.delete(claim_key)
    space.drop_member(inflight, token)
    space.move([priority, queue], card_id, int(now))
    return 1


def enroll(space: Space, keys: list[str], argv: list[str]) -> int:
    """Put a card under polling."""
    due_key, priority, queue = keys
    card_id, carrier = argv[:2]
    if card_id in space.zset(priority) or card_id in space.zset(queue):
        return 0
    given = dict(zip(argv[2::2], argv[3::2], strict=True))
    dues = {f"due:{check_type}": _integer(due) for check_type, due in given.items()}
    for name, value in space.fields(due_key).items():
        if name.startswith("due:"):
            dues[name] = _integer(value) if _integer(value) is not None else dues.get(name)
    valid = [due for due in dues.values() if due is not None]
    if not valid:
        return 0
    for check_type, due in given.items():
        is_absent = f"due:{check_type}" not in space.fields(due_key)
        if is_absent and _integer(due) is not None:
            space.set_field(due_key, f"due:{check_type}", due)
    space.set_field(due_key, "carrier", carrier)
    space.set_score(queue, card_id, min(valid))
    return 1
