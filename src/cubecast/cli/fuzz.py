"""`cubecast fuzz`: random histories of whole members over simulated sockets, disks and clocks, each judged."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting

if TYPE_CHECKING:
    from cubecast.fuzz.histories import Outcome
    from cubecast.fuzz.world import HistoryEvent

HIDDEN = ("deliver", "member deliveries", "member stable", "member sent", "member hold", "member multicast")
"""Events that are too frequent to print."""
HIDDEN_ALSO = ("member safe", "settled", "waiting", "multicast")


class FuzzSummary(NamedTuple):
    """The summary of one history."""

    seed: int
    replay: str
    violations: tuple[str, ...]
    is_lost: bool
    counts: Counter[str]
    cpu_s: float


def fuzz(
    count: Annotated[int, typer.Option(min=1, metavar="INTEGER", help="Number of random histories.")] = 100,
    seed: Annotated[
        int,
        typer.Option(min=0, metavar="INTEGER", help="Seed of the first history; the others use the following seeds."),
    ] = 0,
    jobs: Annotated[int, typer.Option(min=1, metavar="INTEGER", help="Number of processes.")] = 1,
    stability: Annotated[
        str | None,
        typer.Option(metavar="PROTOCOL", help="The stability protocol of all groups.", show_default="drawn"),
    ] = None,
    verbose: Annotated[
        bool, typer.Option("--verbose", help="Run only the history of --seed, and print its events.")
    ] = False,
    everything: Annotated[bool, typer.Option("--everything", help="With --verbose: also print every message.")] = False,
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Run only the history of --seed, and write its trace.")
    ] = None,
    json: JsonOption = False,
) -> None:
    """Run real members in random groups with fault injection, and check their guarantees.

    The members run over simulated sockets, disks and clocks: connections are reset, machines lose power, disks are
    corrupted, processes stop, join, leave and return. One seed gives one history. Even seeds inject faults at random
    times, odd seeds at steps of the protocol, such as the second decision. A group that has lost its quorum
    permanently is forced, or founded again.

    The exit code is 1 if a promise is broken; the command that replays the history is printed.

    Examples:

      cubecast fuzz --count 1000 --jobs 2
      cubecast fuzz --seed 17 --verbose
      cubecast fuzz --stability cascade
    """
    if verbose or trace is not None:
        _show(seed, stability, verbose, everything, trace)
        return
    began_s = time.perf_counter()
    summaries: list[FuzzSummary] = []
    with waiting("running histories") as step:
        for summary in _run(range(seed, seed + count), stability, jobs):
            summaries.append(summary)
            step(len(summaries), count, f"seed {summary.seed}")
    _report(summaries, time.perf_counter() - began_s, json)
    if any(summary.violations for summary in summaries):
        raise typer.Exit(1)


def _run(seeds: range, stability: str | None, jobs: int) -> Iterator[FuzzSummary]:
    work = partial(summarize, stability=stability)
    if jobs == 1:
        yield from map(work, seeds)
        return
    import multiprocessing

    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        yield from pool.imap(work, seeds, chunksize=4)


def summarize(seed: int, stability: str | None = None) -> FuzzSummary:
    """Run one history."""
    from cubecast.fuzz.histories import run_history

    began_s = time.process_time()
    outcome = run_history(seed, stability=stability)
    counts = Counter(event.what for event in outcome.events)
    return FuzzSummary(seed, outcome.replay, outcome.violations, outcome.is_lost, counts, time.process_time() - began_s)


def _report(summaries: list[FuzzSummary], seconds: float, as_json: bool) -> None:
    total: Counter[str] = sum((summary.counts for summary in summaries), Counter())
    report: dict[str, Any] = {
        "histories": len(summaries),
        "broke a promise": sum(bool(summary.violations) for summary in summaries),
        "lost for good": sum(summary.is_lost for summary in summaries),
        "forced": sum(bool(summary.counts["force"]) for summary in summaries),
        "crashes": total["crash"],
        "restarts": total["start"],
        "journals refused": total["journal refused"],
        "stops": total["stop"],
        "fault points": total["fault"],
        "exclusions": total["excluded"],
        "leaves": total["left"],
        "views installed": total["member install"],
        "states restored": total["restore"],
        "messages": total["multicast"],
        "deliveries": total["deliver"],
        "CPU seconds": round(sum(summary.cpu_s for summary in summaries), 1),
        "seconds": round(seconds, 1),
    }
    broken = [(summary.seed, promise) for summary in summaries for promise in summary.violations]
    if as_json:
        print_json({**report, "broken": [{"seed": number, "promise": promise} for number, promise in broken]})
        return
    table = new_table("", "", left=1)
    for name, value in report.items():
        table.add_row(name, f"{value:,}")
    print_table(table)
    for number, promise in broken:
        print(f"seed {number}: {promise}")
    for summary in summaries:
        if summary.violations:
            print(f"replay: {summary.replay}")


def _show(seed: int, stability: str | None, verbose: bool, everything: bool, trace: Path | None) -> None:
    from cubecast.fuzz.histories import run_history

    outcome = run_history(seed, stability=stability)
    if verbose:
        print(outcome.world.settings)
        print(outcome.world.plan)
        for event in outcome.events:
            if everything or event.what not in HIDDEN + HIDDEN_ALSO:
                print(_line(event))
        for text in outcome.world.tracebacks:
            print(text)
    if trace is not None:
        _write_trace(trace, outcome)
    for promise in outcome.violations:
        print(f"seed {seed}: {promise}")
    if outcome.violations:
        raise typer.Exit(1)


def _write_trace(path: Path, outcome: Outcome) -> None:
    """Write the members' trace events to files as live members do, and merge these into one trace."""
    import tempfile

    from cubecast.live.trace_adapter import TraceAdapter
    from cubecast.live.trace_writer import merge_traces

    resumed = {event.me: event.time_ns for event in outcome.events if event.what == "member restart"}
    crashes = [
        (event.name, event.time_ns)
        for event in outcome.events
        if event.what == "crash" and resumed.get(event.me, 0) < event.time_ns
    ]
    with tempfile.TemporaryDirectory() as folder:
        adapters: dict[str, TraceAdapter] = {}
        for event in outcome.events:
            if not event.what.startswith("member ") or event.what == "member safe":
                continue
            if event.name not in adapters:
                adapters[event.name] = TraceAdapter(Path(folder) / f"{len(adapters)}.trace")
            adapter = adapters[event.name]
            if event.what == "member deliveries":
                adapter.deliveries(event.time_ns, event.me, event.data["senders"], event.data["sequences"])
            else:
                adapter.note(event.time_ns, event.me, event.what.removeprefix("member "), **event.data)
        for adapter in adapters.values():
            adapter.flush()
        files = [Path(folder) / f"{place}.trace" for place in range(len(adapters))]
        merge_traces(files, path, crashes=crashes, scenario={"quorum": outcome.world.settings.quorum})


def _line(event: HistoryEvent) -> str:
    data = event.data
    if event.what == "member install":
        data = {**data, "view": _view_text(data["view"])}
    elif event.what == "view":
        data = _view_text(data)
    at_ms = event.time_ns / 1e6 - 1000
    return f"{at_ms:10.3f} ms  {event.name}  {event.me.incarnation % 10**10:10}  {event.what:16}  {data or ''}"


def _view_text(view: Any) -> str:
    members = " ".join(who.name for who in view.members)
    return f"view {view.number} ({view.tag % 10**6}): {members}; sent {view.sent}"
