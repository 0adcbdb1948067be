"""One checker alone."""

from __future__ import annotations

from cubecast.trace.checkers.facts import Source, facts_of
from cubecast.trace.checkers.fold import judge
from cubecast.trace.checkers.report import PartwiseChecker, Violation


def check_by(checker: PartwiseChecker, trace: Source) -> list[Violation]:
    """Judge a trace by one promise alone."""
    facts = facts_of(trace)
    return judge(facts, [checker.scan(facts)])[0]
