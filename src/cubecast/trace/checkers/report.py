"""The output of a checker: violations, one verdict per promise, one report per trace."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol

from cubecast.trace.checkers.views import Described
from cubecast.trace.files import Trace

if TYPE_CHECKING:
    from cubecast.trace.checkers.facts import Facts
    from cubecast.trace.checkers.fold import Scan


@dataclass(frozen=True, kw_only=True)
class Violation:
    """One broken promise: which events broke it (row numbers of the trace), and when."""

    checker: str
    message: str
    rows: tuple[int, ...]
    time_ns: int


class Checker(Protocol):
    """The interface of a checker that judges a trace as a whole: a custom one."""

    NAME: str
    PROMISE: str

    def check(self, trace: Trace, /) -> list[Violation]:
        """Find where the trace breaks the promise."""
        ...

    def not_promised(self, trace: Trace, /) -> str | None:
        """Return why the scenario does not make the promise, or None when it does."""
        ...


class PartwiseChecker(Protocol):
    """The interface of a checker module, which judges a trace part by part (`fold`)."""

    NAME: str
    PROMISE: str

    def not_promised(self, trace: Described, /) -> str | None:
        """Return why the scenario does not make the promise, or None when it does."""
        ...

    def scan(self, facts: Facts, /) -> Scan:
        """Take the parts of the trace, and return where they break the promise."""
        ...


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on one promise: kept, broken, or not promised by the scenario."""

    checker: str
    promise: str
    not_promised: str | None
    violations: tuple[Violation, ...]

    @property
    def status(self) -> str:
        """Return the verdict in one or two words."""
        if self.not_promised is not None:
            return "not promised"
        return "broken" if self.violations else "kept"


@dataclass(frozen=True, kw_only=True)
class Report:
    """The verdicts on one trace."""

    events: int
    verdicts: tuple[Verdict, ...]

    @property
    def ok(self) -> bool:
        """Return whether no promise was broken."""
        return not self.violations

    @property
    def violations(self) -> tuple[Violation, ...]:
        """Return all violations, in the order of the checkers."""
        return tuple(violation for verdict in self.verdicts for violation in verdict.violations)

    def lines(self) -> list[str]:
        """Return the report in plain text, one line per promise and one per violation."""
        lines = []
        for verdict in self.verdicts:
            reason = f" ({verdict.not_promised})" if verdict.not_promised else ""
            lines.append(f"{verdict.checker}: {verdict.status}{reason}")
            lines += [f"  {violation.message}" for violation in verdict.violations]
        return lines

    def to_dict(self) -> dict[str, Any]:
        """Return the report as plain data, for JSON."""
        verdicts = [{**asdict(verdict), "status": verdict.status} for verdict in self.verdicts]
        return {"ok": self.ok, "events": self.events, "verdicts": verdicts}
