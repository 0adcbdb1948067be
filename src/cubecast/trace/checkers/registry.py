"""All checkers: which promises did this run keep?

A new checker is one file with `NAME`, `PROMISE`, `check` and `not_promised`, and one line here. Checkers of the user's
own are added by `add_checker`.
"""

from __future__ import annotations

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
from cubecast.trace.checkers.report import Checker, Report, Verdict
from cubecast.trace.files import Trace

CHECKERS: tuple[Checker, ...] = (
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
    """Judge every trace by this checker too; one that was added under this name before is replaced."""
    if any(one.NAME == checker.NAME for one in CHECKERS):
        raise LocalProtocolError(f"checker {checker.NAME!r}: there is one of that name, choose another")
    _OWN[checker.NAME] = checker


def all_checkers() -> tuple[Checker, ...]:
    """Ours, and those that were added."""
    return (*CHECKERS, *_OWN.values())


def check_all(trace: Trace) -> Report:
    """Run every checker on the trace; a promise that the scenario does not make is not checked."""
    return Report(events=len(trace.arrays()), verdicts=tuple(_judge(one, trace) for one in all_checkers()))


def _judge(checker: Checker, trace: Trace) -> Verdict:
    excuse = checker.not_promised(trace)
    violations = () if excuse is not None else tuple(checker.check(trace))
    return Verdict(checker=checker.NAME, promise=checker.PROMISE, not_promised=excuse, violations=violations)
