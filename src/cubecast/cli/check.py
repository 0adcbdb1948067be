"""`cubecast check`: did a run keep its promises?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting

if TYPE_CHECKING:
    from cubecast.sim.checkers import Report


def check(
    trace: Annotated[
        Path,
        typer.Argument(metavar="TRACE", help="A trace that `cubecast simulate --trace` wrote.", show_default=False),
    ],
    json: JsonOption = False,
) -> None:
    """Judge a trace: was anything called stable too early, did every round end, do the counts agree?

    Exit code 1 when a promise is broken; the rows of the trace that break it are named.

    Examples:

      cubecast simulate coord --members 20 --loss 0.1 --trace run.parquet
      cubecast check run.parquet
    """
    from cubecast.sim.checkers import check_all
    from cubecast.trace import read_trace

    with waiting(f"reading {trace}") as step:
        read = read_trace(trace)
        step(0, 1, "checking")
        report = check_all(read)
    if json:
        print_json(report.to_dict())
    else:
        print_report(report)
    if not report.ok:
        raise typer.Exit(1)


def print_report(report: Report) -> None:
    """One line a promise, then every event that broke one."""
    table = new_table("checker", "verdict", "promise, or why there is none", left=3, title=f"{report.events:,} events")
    for verdict in report.verdicts:
        table.add_row(verdict.checker, verdict.status, verdict.not_promised or verdict.promise)
    print_table(table)
    for violation in report.violations:
        print(f"{violation.checker}: {violation.message}")
