"""All checkers: which promises did a run keep?

A new checker is one file with `NAME`, `PROMISE`, `scan` and `not_promised`, and one line here. `add_checker` adds
custom checkers; they have `check` instead of `scan`, and judge a trace as a whole.
"""

from __future__ import annotations

from collections.abc import Sequence

from cubecast.errors import LocalProtocolError
from cubecast.trace.checkers import (
    agreement,
    causal_order,
    causal_stability,
    counts,
    exactly_once,
    fifo,
    in_order_delivery,
    premature_stability,
    restart_replay,
    returned_is_returned,
    rounds_end,
    same_state,
    sending_view,
    stable_never_decreases,
    view_agreement,
    virtual_synchrony,
)
from cubecast.trace.checkers.facts import Facts, Source, facts_of
from cubecast.trace.checkers.fold import judge
from cubecast.trace.checkers.report import Checker, PartwiseChecker, Report, Verdict
from cubecast.trace.files import Trace

CHECKERS: tuple[PartwiseChecker, ...] = (
    premature_stability,
    stable_never_decreases,
    rounds_end,
    in_order_delivery,
    fifo,
    causal_order,
    causal_stability,
    agreement,
    view_agreement,
    virtual_synchrony,
    same_state,
    sending_view,
    exactly_once,
    restart_replay,
    returned_is_returned,
    counts,
)


_OWN: dict[str, Checker] = {}


def add_checker(checker: Checker) -> None:
    """Judge every trace by this checker too; it replaces a checker that was added under this name before."""
    if any(one.NAME == checker.NAME for one in CHECKERS):
        raise LocalProtocolError(f"checker {checker.NAME!r}: there is one of that name, choose another")
    _OWN[checker.NAME] = checker


def own_checkers() -> tuple[Checker, ...]:
    """The checkers that were added."""
    return tuple(_OWN.values())


def check_all(trace: Source) -> Report:
    """Run every checker on the trace; a promise that the scenario does not make is not checked."""
    facts = facts_of(trace)
    return Report(events=facts.rows, verdicts=(*judge_parts(facts, CHECKERS), *judge_whole(trace, own_checkers())))


def judge_parts(facts: Facts, checkers: Sequence[PartwiseChecker]) -> list[Verdict]:
    """Judge a trace part by part."""
    excuses = {checker.NAME: checker.not_promised(facts) for checker in checkers}
    judging = [checker for checker in checkers if excuses[checker.NAME] is None]
    found = judge(facts, [checker.scan(facts) for checker in judging])
    violations = {checker.NAME: tuple(of_checker) for checker, of_checker in zip(judging, found, strict=True)}
    return [
        Verdict(
            checker=checker.NAME,
            promise=checker.PROMISE,
            not_promised=excuses[checker.NAME],
            violations=violations.get(checker.NAME, ()),
        )
        for checker in checkers
    ]


def judge_whole(trace: Source, checkers: Sequence[Checker]) -> list[Verdict]:
    """Judge a trace by added checkers, for which it is read as a whole."""
    return [_judge(checker, trace.whole()) for checker in checkers]


def _judge(checker: Checker, trace: Trace) -> Verdict:
    excuse = checker.not_promised(trace)
    violations = () if excuse is not None else tuple(checker.check(trace))
    return Verdict(checker=checker.NAME, promise=checker.PROMISE, not_promised=excuse, violations=violations)
