"""RQ entry points; their dotted names are on the wire and are never changed without an alias."""

from cardpolling import connection, publishing
from cardpolling.counting import Counts
from cardpolling.engine import Engine
from cardpolling.ledger import Ledger
from carriers.gateway import directory


def execute_claims(carrier_id: int, claims: list[list[str | int]]) -> None:
    """Execute the claims of one account to their end.

    ``PollingWorker`` hands the claims to its running engine and never calls this. Under RQ's own worker classes it works too,
    slowly: with an engine that lives for this job only.
    """
    decoded = publishing.decode(carrier_id, claims)
    ledger = Ledger()
    engine = Engine(connection.polling_redis(), directory, ledger=ledger, counts=Counts())
    engine.start()
    try:
        ledger.hold(carrier_id, len(decoded))
        engine.submit(decoded).result()
    finally:
        engine.stop(grace_s=0)
