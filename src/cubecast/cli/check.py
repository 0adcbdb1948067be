"""`cubecast check`: check traces for broken promises."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cubecast.trace.checkers import Report
    from cubecast.trace.checkers.facts import Source

QUORUMS = ("majority", "any")


def _load(files: list[Path] | None) -> list[Path] | None:
    """Register the checkers of these files."""
    if files:
        from cubecast.lab.own_code import load_code_file

        for file in files:
            load_code_file(file)
    return files


CheckerFileOption = Annotated[
    list[Path] | None,
    typer.Option(
        "--checker-file",
        metavar="FILE",
        help="A Python file with custom checkers. Repeatable.",
        callback=_load,
        show_default=False,
    ),
]


def check(
    traces: Annotated[
        list[Path],
        typer.Argument(
            metavar="TRACE...",
            help="Traces of `cubecast simulate --trace`, traces of the members of a live group, or folders of traces.",
            show_default=False,
        ),
    ],
    crashed: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME", help="A member that was killed and did not restart. Repeatable."),
    ] = None,
    quorum: Annotated[
        str, typer.Option(help="Quorum of the live group: majority, or any (views may branch).")
    ] = "majority",
    unsettled: Annotated[
        bool, typer.Option("--unsettled", help="Messages of the live group were in transit when its traces ended.")
    ] = False,
    checker_file: CheckerFileOption = None,  # noqa: ARG001 (loaded by its callback)
    json: JsonOption = False,
) -> None:
    """Check traces: was a message declared stable too early, did every round end, do the views agree?

    The traces of the members of a live group are merged and checked together; --crashed, --quorum and --unsettled
    apply only to them. The exit code is 1 if a promise is broken; the output names the rows that break it.

    Examples:

      cubecast simulate coord --members 20 --loss 0.1 --trace run.parquet
      cubecast check run.parquet

      cubecast check traces/ --crashed 127.0.0.1:7003
    """
    from cubecast.trace.checkers import check_all

    if quorum not in QUORUMS:
        raise LocalProtocolError(f"--quorum {quorum}: choose one of {', '.join(QUORUMS)}")
    scenario = {"quorum": quorum, "settled": not unsettled}
    reports: dict[str, Report] = {}
    names: dict[str, list[list[Any]]] = {}
    unreadable: dict[str, LocalProtocolError] = {}
    with waiting(f"reading {', '.join(map(str, traces))}") as step:
        for title, trace in _open(traces, crashed or [], scenario, unreadable):
            step(0, 1, f"checking {title}")
            try:
                reports[title] = check_all(trace)
            except LocalProtocolError as error:
                unreadable[title] = LocalProtocolError(f"{title}: {error}")
            names[title] = trace.scenario.get("names") or []
    if not reports and len(unreadable) == 1:
        raise next(iter(unreadable.values()))
    _print(reports, names, unreadable, json=json)
    if unreadable or not all(report.ok for report in reports.values()):
        raise typer.Exit(1)


def _open(
    paths: list[Path], crashed: list[str], scenario: dict[str, Any], unreadable: dict[str, LocalProtocolError]
) -> Iterator[tuple[str, Source]]:
    """Yield every finished trace by its path, and one merged trace of all members' files; note the unreadable ones."""
    from cubecast.live.trace_writer import is_member_trace, merged_trace
    from cubecast.trace.files import StoredTrace

    files = [file for path in paths for file in _files(path)]
    members = [file for file in files if file.is_file() and is_member_trace(file)]
    for file in files:
        if file in members:
            continue
        try:
            trace = StoredTrace(file)
        except LocalProtocolError as error:
            unreadable[str(file)] = error
            continue
        with closing(trace):
            yield str(file), trace
    if members:
        later = (1 << 63) - 1  # means: at the end of the trace
        merged = merged_trace(members, crashes=[(name, later) for name in crashed], scenario=scenario)
        yield ", ".join(map(str, members)), merged


def _files(path: Path) -> list[Path]:
    """The file itself, or the finished traces and member traces of a folder."""
    from cubecast.live.trace_writer import is_member_trace

    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.iterdir() if file.is_file() and not file.name.startswith("."))
    found = [file for file in files if file.suffix == ".parquet" or is_member_trace(file)]
    if not found:
        raise LocalProtocolError(f"{path}: no traces in this folder: give a trace, or a folder with traces")
    return found


def _print(
    reports: dict[str, Report],
    names: dict[str, list[list[Any]]],
    unreadable: dict[str, LocalProtocolError],
    *,
    json: bool,
) -> None:
    """Print one trace without a name; several, each under its name."""
    count = len(reports) + len(unreadable)
    if json and count == 1:
        print_json(next(iter(reports.values())).to_dict())
    elif json:
        traces = [{"trace": title, **report.to_dict()} for title, report in reports.items()]
        traces += [{"trace": title, "ok": False, "error": str(error)} for title, error in unreadable.items()]
        print_json({"ok": all(trace["ok"] for trace in traces), "traces": traces})
    else:
        for title, report in reports.items():
            if count > 1:
                print(title)
            print_report(report)
            if not report.ok and names[title]:
                listed = (
                    f"{member} is {name} ({incarnation})" for member, (name, incarnation) in enumerate(names[title])
                )
                print(f"members by name (incarnation): {', '.join(listed)}")
        for error in unreadable.values():
            print(error, file=sys.stderr)


def print_report(report: Report) -> None:
    """Print one line per promise, then one per violation."""
    table = new_table("checker", "verdict", "promise, or why it is not made", left=3, title=f"{report.events:,} events")
    for verdict in report.verdicts:
        table.add_row(verdict.checker, verdict.status, verdict.not_promised or verdict.promise)
    print_table(table)
    for violation in report.violations:
        print(f"{violation.checker}: {violation.message}")
