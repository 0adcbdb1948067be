"""`cubecast study`: whole studies on Spark, from a plan to the report."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli import study_calibrate, study_traces
from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting
from cubecast.cli.protocol_files import with_protocol_files
from cubecast.errors import PlanError

if TYPE_CHECKING:
    from cubecast.lab.remote import AnyPath
    from cubecast.lab.study import StudyOutcome

app = typer.Typer(no_args_is_help=True, help="Run studies: the figures of the papers, or your own plans, on Spark.")

PlansOption = Annotated[
    Path | None,
    typer.Option(
        "--plans", help="Folder of plans, or an object-store address.", show_default="the plans of the project"
    ),
]
FullOption = Annotated[bool, typer.Option("--full/--quick", help="Size of the study.")]
OutOption = Annotated[
    Path, typer.Option("--out", help="Folder for results, or an object-store address: s3a://BUCKET/…")
]
MasterOption = study_traces.MasterOption
ConfOption = study_traces.ConfOption
NamesArgument = Annotated[
    list[str] | None, typer.Argument(metavar="STUDY", help="Names of studies, or plan files.", show_default="all")
]


def _folder(plans: Path | None) -> AnyPath:
    from cubecast.lab.remote import path_of
    from cubecast.lab.study import project_plans

    return path_of(plans) if plans is not None else project_plans()


def _size(full: bool) -> str:
    return "full" if full else "quick"


@app.command("list")
@with_protocol_files
def list_(plans: PlansOption = None, json: JsonOption = False) -> None:
    """List the studies, their number of runs, and whether they can run on this machine."""
    from cubecast.lab.load_plan import load_plans
    from cubecast.lab.runs import runs_of

    found = load_plans(_folder(plans))
    rows: list[dict[str, Any]] = [
        {
            "study": plan.id,
            "paper": plan.paper,
            "figures": [figure.id for figure in plan.figures],
            "quick": len(runs_of(plan, "quick")),
            "full": len(runs_of(plan, "full")),
            "available": not plan.missing,
            "missing": list(plan.missing),
            "title": plan.title,
        }
        for plan in found
    ]
    if json:
        print_json(rows)
        return
    table = new_table("study", "paper", "figures", "title", "available", "quick", "full", left=5)
    for row in rows:
        state = "yes" if row["available"] else f"no: lacks {', '.join(row['missing'])}"
        cells = [row["study"], row["paper"], " ".join(row["figures"]), row["title"], state, row["quick"], row["full"]]
        table.add_row(*map(str, cells))
    print_table(table)


@app.command()
@with_protocol_files
def show(
    name: Annotated[str, typer.Argument(metavar="STUDY", help="The name of a study, or a plan file.")],
    plans: PlansOption = None,
) -> None:
    """Show one plan: its runs, figures and claims."""
    from cubecast.lab.runs import points_of
    from cubecast.lab.study import find_plans

    plan = find_plans(_folder(plans), [name])[name]
    print(f"{plan.title} ({plan.id}, {plan.path})")
    print(plan.about or "")
    for size, chosen in plan.sizes.items():
        print(f"{size}: {len(points_of(plan, size))} points, {chosen.repeats} seeds each")
        for key, values in {**chosen.fixed, **chosen.sweep}.items():
            print(f"  {key} = {values}")
    for figure in plan.figures:
        print(f"figure {figure.id}: {figure.title} ({', '.join(figure.y)} over {figure.x})")
    for claim in plan.claims:
        print(f"claim {claim.id}: {claim.text} ({claim.source})")


@app.command()
@with_protocol_files
def run(
    names: NamesArgument = None,
    full: FullOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    out: OutOption = Path("results"),
    plans: PlansOption = None,
    report: Annotated[bool, typer.Option(help="Write figures and the report at the end.")] = True,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Run failed runs again.")] = False,
    figure: Annotated[
        str | None, typer.Option(metavar="ID", help="Only the runs of this figure of the study.", show_default="all")
    ] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="All studies that can run on this machine; the default without names.")
    ] = False,
) -> None:
    """Run studies. Finished runs are kept, also after Ctrl-C, and are not repeated.

    Examples:

      cubecast study run --quick --all
      cubecast study run cube-scaling --full --master 'local[2]' --out results
      cubecast study run plan.toml --protocol-file mine.py
    """
    if everything and names:
        raise PlanError("--all and names of studies: give only one of them")
    if figure is not None and len(names or []) != 1:
        raise PlanError("--figure: give the name of exactly one study")
    _study(
        names,
        full=full,
        master=master,
        conf=conf,
        out=out,
        plans=plans,
        figure=figure,
        report=report,
        retry_failed=retry_failed,
    )


@app.command("report")
@with_protocol_files
def report_(
    names: NamesArgument = None,
    full: FullOption = False,
    master: MasterOption = None,
    conf: ConfOption = None,
    out: OutOption = Path("results"),
    plans: PlansOption = None,
) -> None:
    """Write tables, figures and the report from the results on disk, without running anything."""
    _study(names, full=full, master=master, conf=conf, out=out, plans=plans, only_read=True, report=True)


@app.command()
@with_protocol_files
def status(
    names: NamesArgument = None,
    full: FullOption = False,
    out: OutOption = Path("results"),
    plans: PlansOption = None,
    json: JsonOption = False,
) -> None:
    """Show the progress of each study, without starting Spark."""
    from cubecast.lab.status import status_of
    from cubecast.lab.store import Store
    from cubecast.lab.study import choose_plans

    rows = status_of(choose_plans(_folder(plans), names or []), _size(full), Store(out))
    if json:
        print_json(rows)
        return
    table = new_table("study", "runs", "done", "failed", "other code")
    for row in rows:
        table.add_row(*(str(row[key]) for key in ("study", "runs", "done", "failed", "other_code")))
    print_table(table)


@app.command()
@with_protocol_files
def verdicts(
    out: OutOption = Path("results"),
    before: Annotated[
        Path | None, typer.Option("--before", help="Folder of earlier results for comparison.", show_default="none")
    ] = None,
    plans: PlansOption = None,
) -> None:
    """Print every claim of the papers with its verdict as Markdown, from the tables of a report.

    Examples:

      cubecast study verdicts --out results > verdicts.md
      cubecast study verdicts --out results --before old-results
    """
    from cubecast.lab.load_plan import load_plans
    from cubecast.lab.remote import path_of
    from cubecast.lab.verdict_table import read_verdicts, verdict_page

    earlier = read_verdicts(path_of(before)) if before is not None else None
    print(verdict_page(load_plans(_folder(plans)), read_verdicts(path_of(out)), earlier), end="")


def _study(
    names: list[str] | None,
    *,
    full: bool,
    master: str | None,
    conf: list[str] | None,
    out: Path,
    plans: Path | None,
    report: bool,
    figure: str | None = None,
    **how: Any,
) -> None:
    from cubecast.lab.spark.settings import parse_conf
    from cubecast.lab.store import Store
    from cubecast.lab.study import choose_plans, run_studies

    chosen = choose_plans(_folder(plans), names or [], say=_say)
    if figure is not None:
        chosen = [plan.for_figure(figure) for plan in chosen]
    try:
        with _bar() as progress:
            how |= {"master": master, "conf": parse_conf(conf or ()), "progress": progress, "say": _say}
            outcome = run_studies(chosen, _size(full), Store(out), **how)
    except KeyboardInterrupt:
        _say(f"finished runs are kept in {out}; the same command continues")
        raise
    _tell(outcome)
    if report and outcome.summary is not None and outcome.summary.num_rows:
        from cubecast.lab.report import write_report

        with waiting("writing the report") as step:
            page = write_report(outcome, Store(out), step=step)
        print(f"report: {page}")
    elif report and outcome.failures:
        raise PlanError(
            f"{out}: no report, all {len(outcome.failures)} runs failed; fix the plan, or use --retry-failed"
        )
    elif report:
        raise PlanError(f"{out}: no results of these studies yet; run them first (cubecast study run)")


def _tell(outcome: StudyOutcome) -> None:
    count = len(outcome.plans)
    print(
        f"{count} {'study' if count == 1 else 'studies'}, {outcome.done_now} runs finished in {outcome.seconds:.0f} s"
    )
    for failure in outcome.failures[:10]:
        print(f"failed: {failure['study']}, seed {failure['seed']}: {failure['error']}", file=sys.stderr)
    if len(outcome.failures) > 10:
        print(f"… and {len(outcome.failures) - 10} more failures, all in the report", file=sys.stderr)


def _say(line: str) -> None:
    print(line, file=sys.stderr)


@contextmanager
def _bar() -> Iterator[Callable[[int, int], None]]:
    """Show runs done, rate and time left on stderr; without a terminal, print a line every tenth of the way."""
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    console = Console(stderr=True)
    columns = (
        TextColumn("runs"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[rate]}"),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    reported = 0
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None, rate="")

        def progress(done: int, total: int) -> None:
            nonlocal reported
            elapsed = bar.tasks[0].elapsed or 0.0
            rate = f"{done / elapsed:.1f}/s" if elapsed > 0 and done else ""
            bar.update(task, completed=done, total=total, rate=rate)
            tenth = 10 * done // total if total else 0
            if not console.is_terminal and tenth > reported:
                reported = tenth
                _say(f"{done} of {total} runs finished")

        yield progress


app.command("calibrate")(with_protocol_files(study_calibrate.calibrate))
app.command("check")(study_traces.check)
app.command("follow")(study_traces.follow)
