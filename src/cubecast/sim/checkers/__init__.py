"""Checkers of the promises a run makes. They read the trace, and share no code with the protocols they judge."""

from cubecast.sim.checkers.registry import CHECKERS, check_all
from cubecast.sim.checkers.report import Checker, Report, Verdict, Violation

__all__ = ["CHECKERS", "Checker", "Report", "Verdict", "Violation", "check_all"]
