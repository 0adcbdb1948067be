"""`cubecast compare`: compare protocols side by side."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.options import GROUP, whole_number, with_scenario
from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cubecast.lab.compare import Comparison, Metric
    from cubecast.lab.stats import Estimate


def _compare(
    members: Annotated[
        list[str],
        typer.Option("--members", "-n", rich_help_panel=GROUP, help="One or more group sizes: 100, or 50,100,200."),
    ],
    settings: dict[str, Any],
    protocols: Annotated[
        str | None, typer.Option(help="Names of protocols: coord,full_dist.", show_default="all of the family")
    ] = None,
    family: Annotated[str, typer.Option(help="Compare the protocols of this family.")] = "stability",
    repeat: Annotated[
        int,
        typer.Option(
            parser=whole_number, metavar="INTEGER", help="Runs per protocol and group size, with consecutive seeds."
        ),
    ] = 1,
    plot: Annotated[Path | None, typer.Option(help="Write a plot to this .html, .png, .svg or .pdf file.")] = None,
    out: Annotated[Path | None, typer.Option(help="Write tables (CSV) and plots to this folder.")] = None,
    json: JsonOption = False,
) -> None:
    """Compare protocols on the same groups, networks and seeds.

    Several seeds (--repeat) give means with 95 % confidence intervals;
    several group sizes (--members) give curves. The row "lower bound" is a limit that no protocol can beat.

    Examples:

      cubecast compare --members 100 --network random:degree=5
      cubecast compare --members 50,100,200 --repeat 5 --plot curves.html
      cubecast compare -n 60 --protocols coord,s_coord --loss 0.02 --out results
    """
    from cubecast.lab.compare import compare as run

    _check_places(plot, out)
    names = None if protocols is None else [name.strip() for name in protocols.split(",")]
    with waiting("preparing (compiling, the first time)") as step:
        comparison = run(
            members=_sizes(members), protocols=names, family=family, repeat=repeat, progress=step, **settings
        )
        written = [comparison.plot(plot)] if plot is not None else []
        written += comparison.save(out) if out is not None else []
    if json:
        print_json(comparison.to_dict() | {"written": [str(path) for path in written]})
    else:
        _print_comparison(comparison)
        for path in written:
            print(f"wrote {path}")
    for failure in comparison.failures:
        print(f"cubecast: {failure}", file=sys.stderr)
    if comparison.failures:
        raise typer.Exit(1)


compare = with_scenario(_compare, leave_out=("members",))


def _check_places(plot: Path | None, out: Path | None) -> None:
    """Check before the runs that the plot can be drawn and written."""
    from cubecast.lab.plots import check_ending
    from cubecast.lab.whole_file import check_folder

    if plot is not None:
        check_ending(plot)
        check_folder(plot.parent)
    if out is not None:
        check_folder(out)


def _sizes(texts: list[str]) -> list[int]:
    try:
        return [int(word) for text in texts for word in text.split(",")]
    except ValueError:
        asked = " ".join(texts)
        raise LocalProtocolError(f"--members {asked}: give whole numbers, such as 100 or 50,100,200") from None


def _print_comparison(comparison: Comparison) -> None:
    scenario = comparison.runs[0].scenario
    seeds = len({run.scenario.seed for run in comparison.runs})
    title = f"{scenario.network}, {scenario.rounds} round(s), {seeds} seed(s)" + (", ± 95 %" if seeds > 1 else "")
    # Bytes would be the widest column; all other outputs have them.
    metrics = [metric for metric in comparison.metrics if metric.short != "bytes"]
    heads = [f"{metric.short} {metric.unit}".strip() for metric in metrics]
    table = new_table("protocol", "members", *heads, title=title)
    size = comparison.summaries[0].members
    for summary in comparison.rows():
        if summary.members != size:
            table.add_section()
            size = summary.members
        cells = [_cell(summary.figures[metric.name], metric) for metric in metrics]
        table.add_row(summary.title, f"{summary.members:,}", *cells)
    print_table(table)


def _cell(figure: Estimate, metric: Metric) -> str:
    if figure.n == 0:
        return "–"
    mean = f"{figure.value:,.{metric.digits}f}"
    # A value that is the same for all seeds, such as 3(n−1) messages, needs no interval.
    return f"{mean} ± {figure.half_width:,.{metric.digits}f}" if figure.half_width else mean
