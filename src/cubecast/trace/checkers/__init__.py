"""Checkers of the promises of a run. They read the trace, and share no code with the protocols they check."""

from cubecast.trace.checkers.registry import CHECKERS, check_all
from cubecast.trace.checkers.report import (
    Checker,
    Report,
    Verdict,
    Violation,
)

__all__ = ["CHECKERS", "Checker", "Report", "Verdict", "Violation", "check_all"]
