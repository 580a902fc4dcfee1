"""When a card is next checked: what the results of an execution change in its due hash. Pure.

The rows of the table, per result of a check type T:

=====================  ===========================================  ===============================================
result                 next ``due:T``                               other fields
=====================  ===========================================  ===============================================
success                now + interval, or the next confirmation     ``ok:T`` = now; ``fail ffail err`` deleted
                       delay while the expected result is unseen
failed                 back-off                                     ``fail:T`` + 1, ``ffail:T`` kept, ``err:T``
rate_limited           in a second or two                           none
provider_rate_limited  what the gateway asked for, else back-off    ``err:T``
skipped                now + interval                               none
gone                   none: deleted                                none
not polled             none: deleted, with its confirmation         none
never reached          as it was                                    none
=====================  ===========================================  ===============================================

Jitter only ever makes a regular check later, so that no card is checked twice within its interval.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from cardpolling import confirmation, due
from cardpolling.checktypes import CheckType
from cardpolling.due import DueEntry, FieldChanges, Guarded, TypeState
from cardpolling.results import Outcome, StepResult
from cardpolling.rules import Rules
from carriers.gateway.errors import Category

INTERVAL_JITTER = 0.05
BACKOFF_JITTER = 0.1
SHORTLY_MS = 1_000
LONGEST_RETRY_AFTER_MS = 24 * 3_600_000
CRASH_BACKOFF_MS = 3_600_000
CRASH_BACKOFF_CAP_MS = 24 * 3_600_000
CRASHES_BEFORE_BACKOFF = 3
_LARGEST_EXPONENT = 40
_LARGEST_COUNT = 2**53 - 1
_GOLDEN_RATIO_64 = 0x9E3779B97F4A7C15
_TWO_64 = 2**64

Jitter = Callable[[], float]


class EventKind(StrEnum):
    """What an operator may have to hear of."""

    CONFIRMATION_FAILED = "confirmation_failed"
    ALERT_DUE = "alert_due"
    RECOVERED = "recovered"
    CRASHING_CARD = "crashing_card"


@dataclass(frozen=True, slots=True)
class PlanEvent:
    """One such thing; ``failures`` counts failures in a row (crashes, for a crashing card)."""

    kind: EventKind
    check_type: CheckType | None = None
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Plan:
    """What to write at the finish, and what to tell.

    ``leaves_polling`` says that no check type is polled any more: the card is to be taken out of the queues.
    """

    changes: FieldChanges
    events: tuple[PlanEvent, ...] = ()
    leaves_polling: bool = False


@dataclass(slots=True)
class _Draft:
    """Changes while they are being gathered."""

    pairs: dict[str, str | int | Guarded] = field(default_factory=dict)
    deletions: list[str] = field(default_factory=list)
    events: list[PlanEvent] = field(default_factory=list)
    unserved: bool = False
    confirming: set[CheckType] = field(default_factory=set)

    def set_due(self, check_type: CheckType, state: TypeState, due_ms: int) -> None:
        """Make the type due, unless somebody has requested it since the execution began."""
        self.pairs[due.due_field(check_type)] = Guarded(due_ms, state.requests, state.due or "")

    def plan(self, *, leaves_polling: bool) -> Plan:
        """Close the draft."""
        changes = FieldChanges(self.pairs, tuple(self.deletions))
        return Plan(changes, tuple(self.events), leaves_polling)


@dataclass(frozen=True, slots=True)
class _Moment:
    """What holds for all results of one execution."""

    rules: Rules
    now_ms: int
    jitter: Jitter

    def next_regular_ms(self, check_type: CheckType) -> int:
        """Now + interval, a little later by jitter."""
        interval_ms = self.rules.intervals_s[check_type] * 1000
        return self.now_ms + round(interval_ms * (1 + INTERVAL_JITTER * self.jitter()))

    def next_attempt_ms(self, failures: int) -> int:
        """Now + back-off after so many failures in a row."""
        return self.now_ms + backoff_ms(self.rules, failures, jitter=self.jitter)


def plan(
    results: Sequence[StepResult],
    entry: DueEntry,
    rules: Rules | None,
    *,
    now_ms: int,
    from_priority: bool,
    jitter: Jitter,
) -> Plan:
    """Turn the results of an execution into the changes that its finish writes.

    ``entry`` is the due hash as read when the execution began. ``jitter`` gives numbers in [0, 1).
    """
    draft = _Draft()
    polled = rules.intervals_s if rules else {}
    _drop_unpolled(draft, entry, polled)
    if rules is None or not polled:
        return draft.plan(leaves_polling=True)
    moment = _Moment(rules, now_ms, jitter)
    judged = {r.check_type: r for r in _with_evaluated_package(results, entry, now_ms)}
    for check_type in polled:
        state = entry.types.get(check_type, TypeState())
        if confirmation.is_pending(state.confirmations, state.expected):
            draft.confirming.add(check_type)
        if result := judged.get(check_type):
            _ROWS[result.outcome](draft, moment, result, state)
        else:
            _leave(draft, moment, check_type, state)
    if from_priority and (draft.unserved or draft.confirming):
        draft.pairs["prio"] = 1
    return draft.plan(leaves_polling=False)


def _drop_unpolled(draft: _Draft, entry: DueEntry, polled: Mapping[CheckType, int]) -> None:
    """A type that is not polled is never left due, nor does anything wait for it."""
    for check_type in entry.types:
        if check_type not in polled:
            draft.deletions += [
                due.due_field(check_type),
                *_confirmation_fields(check_type),
            ]


def _with_evaluated_package(
    results: Sequence[StepResult], entry: DueEntry, now_ms: int
) -> Iterable[StepResult]:
    """Results, with the due package check counted as done where the usage check judged the package along with it."""
    yield from results
    usage = next((r for r in results if r.package_evaluated), None)
    if usage is None or CheckType.PACKAGE not in entry.due_types(now_ms):
        return
    if not any(
        r.check_type is CheckType.PACKAGE and r.outcome is not Outcome.SKIPPED for r in results
    ):
        state = str(usage.facts.get("package_state", ""))
        yield StepResult(CheckType.PACKAGE, Outcome.SUCCESS, seen=state)


def _success(draft: _Draft, moment: _Moment, result: StepResult, state: TypeState) -> None:
    check_type = result.check_type
    draft.pairs[due.ok_field(check_type)] = moment.now_ms
    draft.deletions += [
        due.fail_field(check_type),
        due.ffail_field(check_type),
        due.err_field(check_type),
    ]
    if state.failures > 0:
        draft.events.append(PlanEvent(EventKind.RECOVERED, check_type, state.failures))
    step = confirmation.progress(state.confirmations, state.expected, seen=result.seen)
    if step.verdict is confirmation.Verdict.WAITING:
        draft.set_due(check_type, state, moment.now_ms + step.next_delay_s * 1000)
        _keep_confirming(draft, check_type, step.remaining_s, state.expected)
        return
    draft.set_due(check_type, state, moment.next_regular_ms(check_type))
    if step.verdict is not confirmation.Verdict.NONE:
        draft.deletions += _confirmation_fields(check_type)
    if step.verdict is confirmation.Verdict.FAILED:
        draft.events.append(PlanEvent(EventKind.CONFIRMATION_FAILED, check_type))
    draft.confirming.discard(check_type)


def _keep_confirming(
    draft: _Draft, check_type: CheckType, remaining_s: tuple[int, ...], expected: str
) -> None:
    """Write down the delays that are left; after the last one the expected result alone keeps the confirmation alive."""
    if remaining_s:
        draft.pairs[due.cfm_field(check_type)] = confirmation.delays_text(remaining_s)
    else:
        draft.deletions.append(due.cfm_field(check_type))


def _failed(draft: _Draft, moment: _Moment, result: StepResult, state: TypeState) -> None:
    check_type = result.check_type
    failures = state.failures
    if _counts_against_card(result.category):
        failures = min(failures + 1, _LARGEST_COUNT)
        draft.pairs[due.fail_field(check_type)] = failures
        draft.pairs[due.ffail_field(check_type)] = _first_failure_ms(state, moment.now_ms)
        if failures >= moment.rules.alert_after_failures:
            draft.events.append(PlanEvent(EventKind.ALERT_DUE, check_type, failures))
    _write_error(draft, result)
    draft.set_due(check_type, state, moment.next_attempt_ms(failures))


def _rate_limited(draft: _Draft, moment: _Moment, result: StepResult, state: TypeState) -> None:
    draft.unserved = True
    due_ms = moment.now_ms + SHORTLY_MS + round(SHORTLY_MS * moment.jitter())
    draft.set_due(result.check_type, state, due_ms)


def _provider_rate_limited(
    draft: _Draft, moment: _Moment, result: StepResult, state: TypeState
) -> None:
    draft.unserved = True
    _write_error(draft, result)
    if result.retry_after_ms is None:
        due_ms = moment.next_attempt_ms(state.failures + 1)
    else:
        # Jitter, so that the cards which one throttling turned away do not come back in one moment.
        wait_ms = min(max(result.retry_after_ms, SHORTLY_MS), LONGEST_RETRY_AFTER_MS)
        due_ms = moment.now_ms + wait_ms + round(SHORTLY_MS * moment.jitter())
    draft.set_due(result.check_type, state, due_ms)


def _skipped(draft: _Draft, moment: _Moment, result: StepResult, state: TypeState) -> None:
    draft.set_due(result.check_type, state, moment.next_regular_ms(result.check_type))


def _gone(draft: _Draft, moment: _Moment, result: StepResult, state: TypeState) -> None:
    draft.deletions.append(due.due_field(result.check_type))
    draft.confirming.discard(result.check_type)


_ROWS: Mapping[Outcome, Callable[[_Draft, _Moment, StepResult, TypeState], None]] = {
    Outcome.SUCCESS: _success,
    Outcome.FAILED: _failed,
    Outcome.RATE_LIMITED: _rate_limited,
    Outcome.PROVIDER_RATE_LIMITED: _provider_rate_limited,
    Outcome.SKIPPED: _skipped,
    Outcome.GONE: _gone,
}


def _leave(draft: _Draft, moment: _Moment, check_type: CheckType, state: TypeState) -> None:
    """A polled type without a result: its due stays, but one that is missing or unreadable is given a new one."""
    if state.due is None:
        # Newly polled, for example because the card's status changed: somewhere within its interval, no storm.
        wait_ms = moment.rules.intervals_s[check_type] * 1000 * moment.jitter()
        draft.set_due(check_type, state, moment.now_ms + round(wait_ms))
        return
    if state.due_ms is None:
        draft.set_due(check_type, state, moment.now_ms)
    if state.due_ms is None or state.due_ms <= moment.now_ms:
        draft.unserved = True


def _counts_against_card(category: str) -> bool:
    try:
        return Category(category).counts_against_card
    except ValueError:
        return True


def _first_failure_ms(state: TypeState, now_ms: int) -> int:
    first_ms = state.first_failure_ms
    if state.failures <= 0 or first_ms is None or not 0 <= first_ms <= now_ms:
        return now_ms
    return first_ms


def _write_error(draft: _Draft, result: StepResult) -> None:
    value = due.error_value(result.category, result.provider_code, result.message)
    draft.pairs[due.err_field(result.check_type)] = value


def _confirmation_fields(check_type: CheckType) -> tuple[str, str]:
    return due.cfm_field(check_type), due.exp_field(check_type)


def backoff_ms(rules: Rules, failures: int, *, jitter: Jitter) -> int:
    """Back-off after so many failures in a row: base x 2^(failures - 1), never longer than the cap.

    Jitter lengthens it by up to a tenth; where that would pass the cap it shortens the cap instead, so that the cards of an account
    that failed for long do not come back in one moment.
    """
    exponent = min(max(failures, 1) - 1, _LARGEST_EXPONENT)
    longest_s = rules.backoff_cap_s / (1 + BACKOFF_JITTER)
    shortest_s = min(rules.backoff_base_s << exponent, longest_s)
    return round(shortest_s * 1000 * (1 + BACKOFF_JITTER * jitter()))


def plan_crashing(entry: DueEntry, rules: Rules | None, *, now_ms: int, crashes: int) -> Plan:
    """Back off a card that has crashed its executor ``crashes`` times within an hour: an hour, doubled each time, at most a day."""
    draft = _Draft()
    polled = rules.intervals_s if rules else {}
    _drop_unpolled(draft, entry, polled)
    if not polled:
        return draft.plan(leaves_polling=True)
    exponent = min(max(crashes - CRASHES_BEFORE_BACKOFF, 0), _LARGEST_EXPONENT)
    due_ms = now_ms + min(CRASH_BACKOFF_MS << exponent, CRASH_BACKOFF_CAP_MS)
    for check_type in entry.due_types(now_ms):
        if check_type in polled:
            _back_off_crashed(draft, check_type, entry.types[check_type], now_ms, due_ms)
    draft.events.append(PlanEvent(EventKind.CRASHING_CARD, failures=crashes))
    return draft.plan(leaves_polling=False)


def _back_off_crashed(
    draft: _Draft, check_type: CheckType, state: TypeState, now_ms: int, due_ms: int
) -> None:
    draft.set_due(check_type, state, due_ms)
    draft.pairs[due.fail_field(check_type)] = min(state.failures + 1, _LARGEST_COUNT)
    draft.pairs[due.ffail_field(check_type)] = _first_failure_ms(state, now_ms)
    error = due.error_value(Category.INTERNAL, "crash", "the check ended its worker process")
    draft.pairs[due.err_field(check_type)] = error


def enrolment(rules: Rules, card_id: int | str, now_ms: int) -> FieldChanges:
    """Changes that put a claimed card without any due field back under polling; a request made meanwhile stands."""
    dues = first_dues(rules, card_id, now_ms)
    return FieldChanges(
        {due.due_field(t): Guarded(due_ms, 0, "") for t, due_ms in dues.items()}, ()
    )


def first_dues(rules: Rules, card_id: int | str, now_ms: int) -> dict[CheckType, int]:
    """First due times of a card that comes under polling, spread over the interval by its id.

    The same for the same card and moment. Fibonacci hashing (a multiple of the golden ratio, modulo one) places ids that follow
    one another more evenly than chance would; one phase serves all types of a card, so that what is due together is claimed together.
    """
    phase = (int(card_id) * _GOLDEN_RATIO_64 % _TWO_64) / _TWO_64
    return {
        check_type: now_ms + int(interval_s * 1000 * phase)
        for check_type, interval_s in rules.intervals_s.items()
    }
