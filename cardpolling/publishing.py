"""Puts claims onto RQ: a pipe for ids and tokens, nothing is concluded from its state.

A job carries many claims, because a job costs about 65 Redis commands and 2.5 ms of CPU whatever it does.
"""

import logging
import math
from collections.abc import Mapping, Sequence

import django_rq
from redis import Redis, RedisError
from rq import Queue
from rq.serializers import JSONSerializer

from cardpolling import conf, keys
from cardpolling.state import Claim

logger = logging.getLogger(__name__)

EXECUTE_CLAIMS = "cardpolling.jobs.execute_claims"
FAILURE_TTL_S = 300
JOB_TIMEOUT_S = 3_600
"""Not a deadline (the executor has its own), but what RQ's own worker classes use as one; never unlimited."""


def rq_connection() -> Redis:
    """RQ's own client: raw replies, which RQ needs; the polling state has another one."""
    return django_rq.get_connection("polling")


def queue_of(carrier_id: int, connection: Redis) -> Queue:
    """The RQ queue of one account."""
    name = keys.rq_queue_name(carrier_id)
    return Queue(name, connection=connection, serializer=JSONSerializer)


def publish(claims: Sequence[Claim], connection: Redis) -> list[Claim]:
    """Put the claims of one account onto its queue, in one pipeline; give those whose publication failed.

    A failure whose reply was lost counts as failed too: a job that arrives for a released claim finds its token gone.
    """
    if not claims:
        return []
    size = conf.cards_per_job()
    queue = queue_of(claims[0].carrier_id, connection)
    jobs = [
        Queue.prepare_data(
            EXECUTE_CLAIMS,
            args=encode(claims[start : start + size]),
            timeout=JOB_TIMEOUT_S,
            result_ttl=0,
            ttl=math.ceil(conf.lease_ms() / 1000),
            failure_ttl=FAILURE_TTL_S,
            description=EXECUTE_CLAIMS,
        )
        for start in range(0, len(claims), size)
    ]
    try:
        queue.enqueue_many(jobs)
    except RedisError as error:
        logger.error(
            "claims not published: %s",
            type(error).__name__,
            extra={"carrier_id": claims[0].carrier_id, "claims": len(claims)},
        )
        return list(claims)
    return []


def waiting_jobs(carrier_ids: Sequence[int], connection: Redis) -> Mapping[int, int]:
    """Jobs that wait in the RQ queue of each account, in one round trip; none where a queue cannot be read."""
    if not carrier_ids:
        return {}
    pipe = connection.pipeline(transaction=False)
    for carrier_id in carrier_ids:
        pipe.llen(Queue.redis_queue_namespace_prefix + keys.rq_queue_name(carrier_id))
    lengths = pipe.execute(raise_on_error=False)
    return {c: n if isinstance(n, int) else 0 for c, n in zip(carrier_ids, lengths, strict=True)}


def encode(claims: Sequence[Claim]) -> tuple[int, list[list[str | int]]]:
    """The job's JSON arguments: the account id, and ``[card id, token, from priority]`` per claim."""
    return claims[0].carrier_id, [[c.card_id, c.token, int(c.from_priority)] for c in claims]


def decode(carrier_id: object, claims: object) -> list[Claim]:
    """The claims of a job's arguments; raises ``ValueError`` for anything that :func:`encode` does not write."""
    if not isinstance(carrier_id, int) or not isinstance(claims, list):
        raise ValueError(  # noqa: TRY004  what a job carries is a value
            "arguments of a job that carries claims: an account id and a list of claims"
        )
    decoded = []
    for claim in claims:
        if not (isinstance(claim, list) and len(claim) == 3):  # noqa: PLR2004  id, token, flag
            raise ValueError("a claim is a list of card id, token and 0 or 1")
        card_id, token, from_priority = claim
        decoded.append(Claim(carrier_id, str(card_id), str(token), bool(from_priority)))
    return decoded
