"""`cubecast study check` and `cubecast study follow`: traces on Spark, finished and growing."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.check import CheckerFileOption
from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting
from cubecast.extras import named

if TYPE_CHECKING:
    from rich.table import Table

MasterOption = Annotated[
    str | None,
    typer.Option(
        "--master",
        help="Spark master: local[2], spark://HOST:PORT, yarn, k8s://…, sc://HOST (Connect)",
        show_default="spark.master of Spark's configuration, else local[*]",
    ),
]
ConfOption = Annotated[
    list[str] | None,
    typer.Option("--conf", metavar="KEY=VALUE", help="A Spark setting. Repeatable.", show_default=False),
]
SHOWN = 20
_COLUMNS = ("window_s", "view", "members", "lag_messages", "lag_s", "slowest", "behind", "buffer_mean", "buffer_max")


def check(
    traces: Annotated[
        Path,
        typer.Argument(metavar="TRACES", help="A trace, a folder of traces, or an object-store address (s3a://…)."),
    ],
    master: MasterOption = None,
    conf: ConfOption = None,
    metrics: Annotated[bool, typer.Option(help="Also recompute the metrics.")] = True,
    checker_file: CheckerFileOption = None,  # noqa: ARG001 (loaded by its callback)
    json: JsonOption = False,
) -> None:
    """Check any number of traces on Spark: are promises broken, do the metrics agree with the events?

    The promises are those of `cubecast check`. The exit code is 1 if one is broken or a metric differs.

    Examples:

      cubecast study check traces/ --master 'local[2]'
    """
    _require_spark()
    from cubecast.lab.spark.metrics import recompute
    from cubecast.lab.spark.session import one_line, session
    from cubecast.lab.spark.settings import parse_conf
    from cubecast.lab.spark.tracefiles import find_traces
    from cubecast.lab.spark.traces import READABLE, check_traces

    found = find_traces(traces)
    how = parse_conf(conf or ())
    with waiting("starting Spark") as step, session(master, heavy=True, conf=how) as spark, one_line("the check"):
        step(0, 2, f"checking {sum(trace.events for trace in found):,} events")
        violations = check_traces(spark, found)
        step(1, 2, "recomputing the metrics")
        unreadable = {row["trace"] for row in violations if row["checker"] == READABLE}
        counted = recompute(spark, [one for one in found if one.name not in unreadable]) if metrics else []
    wrong = [row for row in counted if not row["agree"]]
    if json:
        events = {trace.name: trace.events for trace in found}
        print_json({"events": events, "violations": violations, "metrics": counted})
    else:
        print_table(_verdicts([trace.name for trace in found], [trace.events for trace in found], violations, counted))
        for row in violations[:SHOWN]:
            print(f"{row['trace']}: {row['checker']}: {row['message']}")
        for row in wrong[:SHOWN]:
            print(f"{row['trace']}: {row['metric']} is {row['said']} in the run, {row['found']:g} in its events")
    if violations or wrong:
        raise typer.Exit(1)


def _verdicts(names: list[str], events: list[int], violations: list[Any], counted: list[Any]) -> Table:
    from cubecast.lab.remote import path_of

    broken = Counter(row["trace"] for row in violations)
    agree = Counter(row["trace"] for row in counted if row["agree"])
    differ = Counter(row["trace"] for row in counted if not row["agree"])
    table = new_table("trace", "events", "violations", "metrics that agree", "metrics that differ")
    for name, count in zip(names, events, strict=True):
        table.add_row(path_of(name).name, f"{count:,}", str(broken[name]), str(agree[name]), str(differ[name]))
    return table


def follow(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder in which live members write their traces.")],
    window: Annotated[float, typer.Option(metavar="SECONDS", help="Length of a window.")] = 1.0,
    seconds: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Stop after this time.", show_default="at Ctrl-C")
    ] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Folder for the checkpoint of the stream.", show_default="no checkpoint")
    ] = None,
    master: MasterOption = None,
    conf: ConfOption = None,
    json: JsonOption = False,
) -> None:
    """Follow the traces of a live group while they grow: stability lag, slowest member and buffers per window.

    Members may start, stop, crash and restart. With --json they are named NAME (INCARNATION).

    Examples:

      cubecast node chat --listen 127.0.0.1:7001 --peer 127.0.0.1:7002 --plaintext --trace traces/1.trace

      cubecast study follow traces/ --window 1
    """
    _require_spark()
    from rich.console import Console
    from rich.live import Live

    from cubecast.lab.spark.follow import follow as follow_traces
    from cubecast.lab.spark.session import session
    from cubecast.lab.spark.settings import parse_conf
    from cubecast.lab.whole_file import check_folder

    if checkpoint is not None:
        check_folder(checkpoint)
    console = Console(stderr=True, markup=False, highlight=False)
    how = parse_conf(conf or ())
    with tempfile.TemporaryDirectory() as kept, session(master, conf=how) as spark, Live(console=console) as live:
        rows = follow_traces(
            spark,
            folder,
            window_s=window,
            seconds=seconds,
            show=lambda table: live.update(_windows(table)),
            checkpoint=checkpoint or Path(kept),
        )
    if json:
        print_json(rows)
    else:
        print_table(_windows(rows))


def _windows(rows: list[dict[str, Any]]) -> Table:
    table = new_table(*(name.replace("_", " ") for name in _COLUMNS))
    for row in rows[-SHOWN:]:
        table.add_row(*(_cell(row[name]) for name in _COLUMNS))
    # A narrow terminal must not cut off names.
    table.padding = (0, 0, 0, 0)
    table.columns[_COLUMNS.index("slowest")].overflow = "fold"
    return table


def _cell(value: float | str | None) -> str:
    if value is None:
        return "–"
    # A view has one incarnation of a name, so its long number is left out.
    return value.rpartition(" (")[0] if isinstance(value, str) else f"{value:g}"


def _require_spark() -> None:
    with named("this command"):
        import cubecast.lab.spark.session  # noqa: F401
