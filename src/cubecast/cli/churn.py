"""`cubecast churn`: random histories of a group that changes, each judged by every checker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting

if TYPE_CHECKING:
    from cubecast.sim.churn.random_histories import Outcome
    from cubecast.sim.churn.world import World


SHOWN = ("install", "blocked", "unblocked", "left", "crash", "excluded", "restore", "stop", "resume", "stroke")


def churn(
    histories: Annotated[int, typer.Option(min=1, help="How many histories to draw.")] = 100,
    seed: Annotated[int, typer.Option(min=0, help="The seed of the first one; the others follow.")] = 0,
    show: Annotated[bool, typer.Option(help="Print the views, faults and restored states of each history.")] = False,
    recorded: Annotated[
        list[Path] | None, typer.Option(metavar="FILE", help="Judge what live members recorded; once for each member.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Draw groups in which members join, leave, crash, come back and lose each other, and judge what they promise.

    In half of them members write down what they do, stop, alone or all at once, and go on from their disks. With even
    seeds faults come by the clock, with odd ones they strike at moments of the protocol, such as the second decision.

    Exit code 1 when a promise is broken; the command that replays it is printed.

    Examples:

      cubecast churn --histories 1000
      cubecast churn --seed 17 --histories 1 --show

    Real processes (`cubecast node --found --keep all --history one.rows`, …) are judged in the same way:

      cubecast churn --recorded one.rows --recorded two.rows
    """
    if recorded:
        _judge_recorded(recorded, json)
        return
    from cubecast.sim.churn.random_histories import run_history

    outcomes = []
    pauses_ns: list[int] = []
    events: Counter[str] = Counter()
    with waiting("running histories") as step:
        for number in range(seed, seed + histories):
            step(number - seed, histories, f"seed {number}")
            outcome, world = run_history(number)
            outcomes.append(outcome)
            pauses_ns += [pause for pause in world.pauses_ns if pause > 0]
            events.update(row.event for row in world.history)
            if show:
                _print_history(world)
    broken = [(outcome.seed, promise) for outcome in outcomes for promise in outcome.broken]
    report = _report_on(outcomes, events, pauses_ns)
    if json:
        print_json({**report, "broken": [{"seed": number, "promise": promise} for number, promise in broken]})
    else:
        _print_report(report, [f"seed {number}: {promise}" for number, promise in broken])
        for number in sorted({number for number, _ in broken}):
            print(f"replay: cubecast churn --seed {number} --histories 1 --show")
    if broken:
        raise typer.Exit(1)


def _report_on(outcomes: list[Outcome], events: Counter[str], pauses_ns: list[int]) -> dict[str, float]:
    return {
        "histories": len(outcomes),
        "broke a promise": sum(bool(outcome.broken) for outcome in outcomes),
        "lost their quorum": sum(outcome.is_lost for outcome in outcomes),
        "crashes": events["crash"],
        "stops": events["stop"],
        "restarts from disk": events["resume"],
        "exclusions": events["excluded"],
        "views": sum(outcome.views for outcome in outcomes),
        "deliveries": sum(outcome.deliveries for outcome in outcomes),
        "messages": sum(outcome.messages for outcome in outcomes),
        "pause median (ms)": _quantile_ms(pauses_ns, 0.5),
        "pause p99 (ms)": _quantile_ms(pauses_ns, 0.99),
    }


def _print_report(report: dict[str, float], broken: list[str]) -> None:
    table = new_table("", "", left=1)
    for name, value in report.items():
        table.add_row(name, f"{value:,}")
    print_table(table)
    for complaint in broken:
        print(complaint)


def _judge_recorded(paths: list[Path], as_json: bool) -> None:
    from cubecast.errors import LocalProtocolError
    from cubecast.sim.churn.promises import Judge
    from cubecast.sim.churn.recorded import Converter, pauses_ns, read_lines

    try:
        lines = read_lines(paths)
    except OSError as error:
        raise LocalProtocolError(f"cannot read the history {error.filename}: {error.strerror}") from error
    judge = Judge()
    judge.read(Converter().history(lines))
    events = Counter(line[3] for line in lines)
    report = {
        "views": len(judge.views),
        "deliveries": events["deliver"],
        "exclusions": events["excluded"],
        "restarts from disk": events["resume"],
        "pause median (ms)": _quantile_ms(pauses_ns(lines), 0.5),
        "pause p99 (ms)": _quantile_ms(pauses_ns(lines), 0.99),
        "broken promises": len(judge.broken),
    }
    if as_json:
        print_json({**report, "broken": judge.broken})
    else:
        _print_report(report, judge.broken)
    if judge.broken:
        raise typer.Exit(1)


def _quantile_ms(values_ns: list[int], share: float) -> float:
    """The value below which that share of all lies."""
    return round(sorted(values_ns)[int(share * (len(values_ns) - 1))] / 1e6, 1) if values_ns else 0.0


def _print_history(world: World) -> None:
    for row in world.history:
        if row.event in SHOWN:
            said = row.data
            if row.event == "install":
                said = f"view {said.number}: " + " ".join(f"{who.name}.{who.incarnation}" for who in said.members)
            print(f"{row.time_ns / 1e6:10.3f} ms  {row.who.name}.{row.who.incarnation}  {row.event:9}  {said or ''}")
