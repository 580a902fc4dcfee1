"""Carries a key space of :mod:`tests.cardpolling.reference` to a Redis server and back."""

from redis import Redis

from tests.cardpolling.reference import Hash, List, Space, Value, ZSet

DUMP = """
local all = {}
for i, key in ipairs(redis.call('KEYS', '*')) do
  local kind, value = redis.call('TYPE', key).ok, nil
  if kind == 'zset' then value = redis.call('ZRANGE', key, 0, -1, 'WITHSCORES')
  elseif kind == 'hash' then value = redis.call('HGETALL', key)
  elseif kind == 'list' then value = redis.call('LRANGE', key, 0, -1)
  else value = redis.call('GET', key) end
  all[i] = {key, kind, redis.call('PTTL', key), value}
end
return all
"""


def load(client: Redis, space: Space) -> None:
    """Make the server hold exactly this key space."""
    pipe = client.pipeline(transaction=True)
    pipe.flushdb()
    for key, value in space.keys.items():
        if isinstance(value, ZSet):
            pipe.zadd(key, value)
        elif isinstance(value, Hash):
            pipe.hset(key, mapping=value)
        elif isinstance(value, List):
            pipe.rpush(key, *value)
        else:
            pipe.set(key, value)
        if key in space.ttls_ms:
            pipe.pexpire(key, space.ttls_ms[key])
    pipe.execute()


def dump(client: Redis) -> Space:
    """Everything that the server holds."""
    space = Space()
    for key, kind, ttl_ms, value in client.eval(DUMP, 0):
        space.keys[key] = _value(kind, value)
        if ttl_ms >= 0:
            space.ttls_ms[key] = ttl_ms
    return space


def _value(kind: str, value: list[str] | str) -> Value:
    if kind == "zset":
        return ZSet(zip(value[::2], map(float, value[1::2]), strict=True))
    if kind == "hash":
        return Hash(zip(value[::2], value[1::2], strict=True))
    return List(value) if kind == "list" else str(value)


def differences(real: Space, expected: Space, *, took_ms: float) -> list[str]:
    """What differs; of expiries, and of scores read from one, up to ``took_ms`` may have gone by."""
    found = []
    for key in sorted(real.keys.keys() | expected.keys.keys()):
        value, wanted = real.keys.get(key), expected.keys.get(key)
        if isinstance(value, ZSet) and isinstance(wanted, ZSet):
            value = _near(value, wanted, key, expected, took_ms)
        if value != wanted or type(value) is not type(wanted):
            found.append(f"{key}: {value!r}, expected {wanted!r}")
        ttl_ms, wanted_ms = real.ttls_ms.get(key, -1), expected.ttls_ms.get(key, -1)
        if not _is_near(ttl_ms, wanted_ms, took_ms if wanted_ms >= 0 else 0):
            found.append(f"{key}: expires in {ttl_ms}, expected {wanted_ms}")
    return found


def _is_near(number: float, wanted: float, took_ms: float) -> bool:
    return number == wanted or wanted - took_ms - 2 <= number <= wanted + 2


def _near(real: ZSet, wanted: ZSet, key: str, expected: Space, took_ms: float) -> ZSet:
    """The members, an inexact score replaced by the wanted one where it is near it."""
    return ZSet(
        (
            member,
            wanted[member]
            if (key, member) in expected.inexact and _is_near(score, wanted[member], took_ms)
            else score,
        )
        for member, score in real.items()
    )
