"""`cubecast study calibrate`: find the settings under which most statements of a paper hold at the same time."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table
from cubecast.cli.study_traces import ConfOption, MasterOption

if TYPE_CHECKING:
    from cubecast.lab.calibrate import Calibrated


def calibrate(
    paper: Annotated[str, typer.Argument(metavar="PAPER", help="cube, guo, causal or rasm.")],
    master: MasterOption = None,
    conf: ConfOption = None,
    out: Annotated[
        Path, typer.Option("--out", help="Folder for results, or an object-store address: s3a://BUCKET/…")
    ] = Path("results"),
    plans: Annotated[
        Path | None,
        typer.Option(help="Folder of plans, or an object-store address.", show_default="the plans of the project"),
    ] = None,
    start: Annotated[
        int | None, typer.Option(metavar="INTEGER", help="Points of the Sobol sequence.", show_default="as planned")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(metavar="INTEGER", help="Rounds of refinement.", show_default="as planned")
    ] = None,
    width: Annotated[
        int | None, typer.Option(metavar="INTEGER", help="Settings per round.", show_default="as planned")
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(metavar="INTEGER", help="Seeds per point.", show_default="as planned")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Search for the settings under which most statements of a paper hold and its numbers are nearest.

    Finished runs are not repeated; the same command continues an interrupted search.

    Examples:

      cubecast study calibrate cube --master 'local[2]'

      cubecast study calibrate rasm --start 2 --rounds 1 --width 4 --repeats 3
    """
    from dataclasses import asdict

    from cubecast.lab.calibrate import calibrate as search
    from cubecast.lab.calibrate import result_path
    from cubecast.lab.joint_space import plans_of, resized
    from cubecast.lab.load_plan import load_plans
    from cubecast.lab.remote import path_of
    from cubecast.lab.spark.settings import parse_conf
    from cubecast.lab.store import Store
    from cubecast.lab.study import project_plans

    sizes = {"start": start, "rounds": rounds, "width": width, "repeats": repeats}
    chosen = resized(plans_of(paper, load_plans(path_of(plans) if plans is not None else project_plans())), sizes)
    store = Store(out)
    found = search(
        chosen, store, master=master, conf=parse_conf(conf or ()), progress=lambda _done, _total: None, say=_say
    )
    if json:
        print_json(asdict(found))
        return
    _tell(found)
    print(f"calibration: {result_path(store, paper)}")


def _tell(found: Calibrated) -> None:
    from cubecast.lab.conditions import span_text

    best = found.best
    setting = ", ".join(f"{name} = {value}" for name, value in best.setting.items())
    others = f"{best.in_part} in part, {best.undecided} undecided, {len(found.contradicted)} contradicted"
    print(f"{best.held} of {best.tested} statements hold with {setting} ({others})")
    for number in found.numbers:
        interval = f"{number['ours']:.4g} [{number['low']:.4g}, {number['high']:.4g}]"
        print(f"{number['claim']}: {number['quantity']}: the paper {number['paper']:g}, ours {interval}")
    for claim in found.in_part:
        print(f"holds there in part: {claim}")
    for claim in found.contradicted:
        print(f"contradicted there: {claim}")
    for one, other in found.exclusions:
        print(f"one of the two is contradicted at every setting: {one} and {other}")
    for claim in found.nowhere:
        print(f"contradicted at every setting: {claim}")
    table = new_table("parameter", "within one statement of the best", "first order", "total", left=2)
    for name, share in found.sensitivities.items():
        table.add_row(name, span_text(name, found.acceptable[name]), f"{share.first_order:.2f}", f"{share.total:.2f}")
    print_table(table)


def _say(line: str) -> None:
    print(line, file=sys.stderr)
