"""`cubecast tune`: find the step intervals at which a gossip protocol is fast."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.options import number, whole_number, with_scenario
from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting

if TYPE_CHECKING:
    from cubecast.lab.tune import Tuning

BAR = 40  # characters of the longest bar


def _tune(
    protocol: Annotated[str, typer.Argument(metavar="PROTOCOL", help="A step-based protocol.", show_default=False)],
    settings: dict[str, Any],
    seeds: Annotated[int, typer.Option(parser=whole_number, metavar="INTEGER", help="Runs per step interval.")] = 5,
    longest_s: Annotated[
        float | None,
        typer.Option(
            parser=number, metavar="NUMBER", help="Longest step interval.", show_default="3 times the suggested one"
        ),
    ] = None,
    resolution_s: Annotated[
        float | None,
        typer.Option(
            parser=number, metavar="NUMBER", help="Resolution of the search.", show_default="a tenth of --longest-s"
        ),
    ] = None,
    stride_s: Annotated[
        float | None,
        typer.Option(
            parser=number,
            metavar="NUMBER",
            help="First stride of the search.",
            show_default="a twentieth of --longest-s",
        ),
    ] = None,
    tolerance: Annotated[
        float, typer.Option(parser=number, metavar="NUMBER", help="Tolerated slowdown within the window.")
    ] = 0.1,
    json: JsonOption = False,
) -> None:
    """Find the step intervals at which a gossip protocol is fast (guo §5.3.2).

    Example, the case of the paper:

      cubecast tune gossip -n 200 --network wan-tree --subset 3 --longest-s 20 --resolution-s 2 --stride-s 1
    """
    from cubecast.lab.tune import default_plan
    from cubecast.lab.tune import tune as search
    from cubecast.sim.scenario import Scenario

    scenario = Scenario.of(protocol, **settings)
    plan = default_plan(
        scenario, seeds=seeds, longest_s=longest_s, resolution_s=resolution_s, stride_s=stride_s, tolerance=tolerance
    )
    with waiting(f"{protocol}: preparing (compiling, the first time)") as step:
        found = search(
            scenario, plan, lambda done, at_s, tpr_s: step(done, 0, f"{done} runs, step {at_s:.3g} s: {tpr_s:.4g} s")
        )
    if json:
        print_json(_plain(found))
    else:
        _print(found)


tune = with_scenario(_tune)


def _plain(found: Tuning) -> dict[str, Any]:
    window = found.window
    return {
        "best_s": window.best_s,
        "tpr_s": window.best_value,
        "low_s": window.low_s,
        "high_s": window.high_s,
        "golden_iterations": window.golden_iterations,
        "window_iterations": window.window_iterations,
        "runs": len(window.measurements),
        "course": [{"step_s": step_s, "tpr_s": tpr_s} for step_s, tpr_s in found.course],
    }


def _print(found: Tuning) -> None:
    window = found.window
    longest = max((tpr_s for _, tpr_s in found.course if tpr_s < float("inf")), default=1.0)
    title = f"{found.scenario.protocol}, {found.scenario.members} members, {found.scenario.network}"
    table = new_table("step s", "TPR s", "", "", title=title, left=4)
    for step_s, tpr_s in found.course:
        inside = window.low_s <= step_s <= window.high_s
        mark = "best" if step_s == window.best_s else "window" if inside else ""
        ended = tpr_s < float("inf")
        bar = "█" * max(1, round(BAR * tpr_s / longest)) if ended else "did not end"
        table.add_row(f"{step_s:8.3f}", f"{tpr_s:8.3f}" if ended else "–", bar, mark)
    print_table(table)
    print(
        f"fastest near {window.best_s:.3g} s: {window.best_value:.4g} s per round; "
        f"any step from {window.low_s:.3g} s to {window.high_s:.3g} s stays within "
        f"{found.plan.tolerance:.0%} ({len(window.measurements)} runs)"
    )
