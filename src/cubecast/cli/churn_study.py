"""`cubecast churn-study`: what a changing group costs, by its size and the rate of changes."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.options import number, whole_number
from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cubecast.sim.churn.measured import ChurnResult
    from cubecast.sim.churn.rates import ChurnStudy


def churn_study(
    members: Annotated[str, typer.Option("--members", "-n", help="Group sizes: 10, or 10,30,100.")] = "10,30,100",
    churn: Annotated[str, typer.Option(help="Changes a second: crashes, leaves and joins.")] = "0.1,0.5,2",
    seconds: Annotated[float, typer.Option(parser=number, metavar="NUMBER", help="Simulated time of a run.")] = 20.0,
    messages: Annotated[
        float, typer.Option(parser=number, metavar="NUMBER", help="Messages a second of the whole group.")
    ] = 5.0,
    tick_ms: Annotated[
        float, typer.Option(parser=number, metavar="NUMBER", help="Time between two signs of life of a member.")
    ] = 100.0,
    loss: Annotated[float, typer.Option(parser=number, metavar="NUMBER", help="Share of messages lost.")] = 0.0,
    repeat: Annotated[int, typer.Option(parser=whole_number, metavar="INTEGER", help="Runs, consecutive seeds.")] = 1,
    seed: Annotated[int, typer.Option(parser=whole_number, metavar="INTEGER", help="The seed of the first run.")] = 0,
    log: Annotated[Path | None, typer.Option(help="Keep runs in this file, and go on from it.")] = None,
    plot: Annotated[Path | None, typer.Option(help="Draw it into this .html, .png, .svg or .pdf file.")] = None,
    json: JsonOption = False,
) -> None:
    """Measure groups under churn: pauses, time to stable, control bytes, links that change.

    Examples:

      cubecast churn-study --members 10,30,100 --churn 0.1,0.5,2 --repeat 5
      cubecast churn-study -n 1000 --churn 0.2 --seconds 10 --tick-ms 200 --log runs.jsonl
      cubecast churn-study --loss 0.02 --plot churn.html

    Exit code 1 when a promise is broken.
    """
    from cubecast.sim.churn.pictures import save_study
    from cubecast.sim.churn.rates import run_study

    _check_places(plot, log)
    settings = {"seconds": seconds, "messages_per_second": messages, "tick_ms": tick_ms, "loss": loss, "seed": seed}
    with waiting("preparing") as step:
        study = run_study(
            members=_numbers("--members", members, int),
            churn=_numbers("--churn", churn, float),
            repeat=repeat,
            log=log,
            progress=step,
            **settings,
        )
        written = save_study(study, plot) if plot is not None else None
    if json:
        print_json(study.to_dict())
    else:
        _print_study(study)
        if written is not None:
            print(f"wrote {written}")
    for promise in study.broken():
        print(promise)
    if study.broken():
        raise typer.Exit(1)


def _check_places(plot: Path | None, log: Path | None) -> None:
    from cubecast.sim.plots import check_ending
    from cubecast.sim.whole_file import check_folder

    if plot is not None:
        check_ending(plot)
    for place in (plot, log):
        if place is not None:
            check_folder(place.parent)


def _numbers(option: str, text: str, kind: Any) -> list[Any]:
    try:
        return [kind(word) for word in text.split(",")]
    except ValueError:
        raise LocalProtocolError(f"{option} {text}: give numbers with commas between them, such as 1,2") from None


def _print_study(study: ChurnStudy) -> None:
    from cubecast.sim.churn.rates import FIGURES

    first = study.results[0].scenario
    title = f"{first.seconds:g} s a run, tick {first.tick_ms:g} ms, {first.messages_per_second:g} messages a second"
    table = new_table("members", "changes/s", *(figure.short for figure in FIGURES), title=title)
    for row in study.rows():
        cells = [f"{row[figure.name]:,.{figure.digits}f}" for figure in FIGURES]
        table.add_row(f"{row['members']:,}", f"{row['churn']:g}", *cells)
    print_table(table)


def print_result(result: ChurnResult, *, json: bool) -> None:
    """One run, as a table or as JSON."""
    from dataclasses import asdict

    from cubecast.sim.churn.rates import FIGURES

    if json:
        print_json(asdict(result))
        return
    scenario = result.scenario
    head = (
        f"A group that changes, {scenario.members} members, {scenario.churn:g} changes a second, seed {scenario.seed}"
    )
    table = new_table(head, "", left=1)
    table.add_row("Changes", f"{result.changes:,}")
    for figure in FIGURES:
        table.add_row(figure.title, f"{figure.scale * getattr(result, figure.name):,.{figure.digits}f}")
    table.add_row("Promises broken", f"{len(result.broken):,}")
    print_table(table)
    for promise in result.broken:
        print(promise)
