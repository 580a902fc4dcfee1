"""The standard gateway protocol: from a request to the answer that the simulated carrier gives."""

import json
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, NamedTuple

from carriers.simulator import http1, ownclock
from carriers.simulator.connection import Reply
from carriers.simulator.envelopes import business_error
from carriers.simulator.faults import FaultPlan, FaultSpec
from carriers.simulator.http1 import Request
from carriers.simulator.kinds import Exchange
from carriers.simulator.statistics import Limit, Statistics
from carriers.simulator.world import SWITCHABLE_STATUSES, CardFacts, World

ROUTE = re.compile(r"/v1/cards/([^/]+)/(status|usage|realname|suspend|resume)")
ICCID = re.compile(r"\d{17,19}[\dF]")
OPERATIONS = {
    "status": ("GET", "card_status"),
    "usage": ("GET", "carddata"),
    "realname": ("GET", "realname"),
    "suspend": ("POST", "suspend"),
    "resume": ("POST", "resume"),
}
SWITCH_STATUS = {"suspend": "suspended", "resume": "active"}
STATISTICS_PATH = "/simulator/stats"
FAULTS_PATH = "/simulator/faults"

NOT_FOUND = business_error(1001, "card not found")
LOCKED = business_error(1002, "card is locked by another operation")
BAD_TOKEN = business_error(1003, "token invalid or expired")
NO_ACCOUNT = business_error(2001, "X-Carrier-Account is missing")
BAD_BODY = business_error(2002, "the body must be a JSON object with a reason")
NOT_SWITCHABLE = business_error(2003, "卡片当前状态不允许停复机")


class CallRecord(NamedTuple):
    """One call as it arrived."""

    arrived_s: float
    operation: str
    iccid: str
    carrier: str
    request_id: str
    has_authorization: bool
    fault: str


@dataclass(frozen=True, slots=True)
class Options:
    """How the simulated carriers behave; ``token`` empty = any token is good."""

    latency_ms: float = 0
    jitter_ms: float = 0
    faults: Sequence[FaultSpec] = ()
    limits: Mapping[str, float] = field(default_factory=dict)
    token: str = field(default="", repr=False)
    effect_delay_ms: int = 5_000
    seed: int = 0


class StandardApi:
    """Answers requests; all of its settings may be changed while it runs."""

    def __init__(
        self, options: Options, *, monotonic_s: Callable[[], float] = ownclock.monotonic_s
    ) -> None:
        self.latency_ms = options.latency_ms
        self.jitter_ms = options.jitter_ms
        self.token = options.token
        self.seed = options.seed
        self.plan = FaultPlan(options.faults, options.seed)
        self.limits = {code: Limit(most) for code, most in options.limits.items()}
        self.statistics = Statistics(self.limits)
        self.world = World(effect_delay_ms=options.effect_delay_ms)
        self.calls: list[CallRecord] | None = None
        self._monotonic_s = monotonic_s
        self._dice = random.Random(options.seed)  # noqa: S311 - no secret

    def respond(self, request: Request) -> Reply:
        """The reply to one request, which may be meant to go wrong on the wire."""
        match = ROUTE.fullmatch(request.path)
        if match is None:
            return Reply(self._respond_elsewhere(request))
        iccid, page = match.groups()
        method, operation = OPERATIONS[page]
        if request.method != method:
            return Reply(_refusal(405, "method not allowed", (("Allow", method),)))
        return self._respond_to_call(request, operation, iccid)

    def set_faults(self, specs: Sequence[FaultSpec]) -> None:
        """Replace all faults."""
        self.plan = FaultPlan(specs, self.seed)

    def _respond_to_call(self, request: Request, operation: str, iccid: str) -> Reply:
        now_s = self._monotonic_s()
        carrier = request.header(b"x-carrier-account")
        account = self.statistics.begin(carrier, operation, iccid, now_s)
        refusal = self._refuse_caller(request, carrier, now_s)
        kind = self.plan.choose(carrier, operation) if refusal is None else None
        fault = kind.name if kind is not None else ""
        if fault:
            account.faults[fault] += 1
        if self.calls is not None:
            self.calls.append(_record(request, operation, iccid, now_s, fault))
        exchange = Exchange(
            operation=operation,
            iccid=iccid,
            path=request.path,
            host=request.header(b"host"),
            make_envelope=lambda: refusal or self._envelope(request, operation, iccid),
        )
        moves = exchange.answer() if kind is None else kind.play(exchange)
        return Reply(moves, self._delay_s(), lambda: self.statistics.end(account, iccid))

    def _refuse_caller(self, request: Request, carrier: str, now_s: float) -> dict[str, Any] | None:
        """The error for a caller without account or token, or faster than its account's limit."""
        if not carrier:
            return NO_ACCOUNT
        scheme, _, token = request.header(b"authorization").partition(" ")
        if scheme != "Bearer" or not token or (self.token and token != self.token):
            return BAD_TOKEN
        limit = self.limits.get(carrier)
        if limit is not None and not limit.admit(now_s):
            data = {"retry_after_ms": limit.retry_after_ms(now_s)}
            return business_error(1004, "rate limit exceeded", data)
        return None

    def _envelope(self, request: Request, operation: str, iccid: str) -> dict[str, Any]:
        facts = self.world.facts(iccid) if ICCID.fullmatch(iccid) else None
        if facts is None:
            return NOT_FOUND
        if operation in SWITCH_STATUS:
            return self._switch(request, operation, iccid, facts)
        data = READERS[operation](facts, self.world.now_s())
        return {"code": 0, "message": "success", "data": data}

    def _switch(
        self, request: Request, operation: str, iccid: str, facts: CardFacts
    ) -> dict[str, Any]:
        if not _has_reason(request.body):
            return BAD_BODY
        if facts.status not in SWITCHABLE_STATUSES:
            return NOT_SWITCHABLE
        if not self.world.switch(iccid, SWITCH_STATUS[operation]):
            return LOCKED
        return {"code": 0, "message": "success", "data": {"accepted": True}}

    def _delay_s(self) -> float:
        if not self.jitter_ms:
            return self.latency_ms / 1000
        return (self.latency_ms + self.jitter_ms * self._dice.random()) / 1000

    def _respond_elsewhere(self, request: Request) -> bytes:
        if request.path == STATISTICS_PATH and request.method == "GET":
            return http1.render_answer(200, json.dumps(self.statistics.as_json()).encode())
        if request.path == FAULTS_PATH and request.method == "PUT":
            return self._put_faults(request.body)
        if self.calls is not None and request.path.startswith("/redirected/"):
            now_s = self._monotonic_s()
            self.calls.append(_record(request, "redirected", "", now_s, ""))
        return _refusal(404, "no such page")

    def _put_faults(self, body: bytes) -> bytes:
        """Replace the faults by a JSON list of ``KIND:SHARE[:CARRIER]``."""
        try:
            self.set_faults([FaultSpec.parse(str(text)) for text in json.loads(body)])
        except (ValueError, TypeError) as error:
            return _refusal(400, str(error))
        return http1.render_answer(200, b'{"code": 0}')


def _status_data(facts: CardFacts, _now_s: float) -> dict[str, Any]:
    return {
        "status": facts.status,
        "online": facts.online,
        "changed_at": _iso(facts.changed_at),
    }


def _usage_data(facts: CardFacts, now_s: float) -> dict[str, Any]:
    return {
        "used_bytes": facts.used_bytes,
        "cycle_start": facts.cycle_start.isoformat(),
        "as_of": _iso(datetime.fromtimestamp(int(now_s), UTC)),
    }


def _realname_data(facts: CardFacts, _now_s: float) -> dict[str, Any]:
    return {"verified": facts.verified, "verified_at": _iso(facts.verified_at)}


READERS: Mapping[str, Callable[[CardFacts, float], dict[str, Any]]] = {
    "card_status": _status_data,
    "carddata": _usage_data,
    "realname": _realname_data,
}


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else f"{moment.isoformat()[:19]}Z"


def _has_reason(body: bytes) -> bool:
    try:
        value = json.loads(body)
    except ValueError:
        return False
    return isinstance(value, dict) and isinstance(value.get("reason"), str)


def _record(request: Request, operation: str, iccid: str, now_s: float, fault: str) -> CallRecord:
    return CallRecord(
        arrived_s=now_s,
        operation=operation,
        iccid=iccid,
        carrier=request.header(b"x-carrier-account"),
        request_id=request.header(b"x-request-id"),
        has_authorization=bool(request.header(b"authorization")),
        fault=fault,
    )


def _refusal(status: int, message: str, headers: Sequence[tuple[str, str]] = ()) -> bytes:
    body = json.dumps(business_error(status, message)).encode()
    return http1.render_answer(status, body, headers=headers)
