"""`cubecast simulate`: simulate one run of one protocol."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cubecast.cli.check import print_report
from cubecast.cli.options import with_scenario
from cubecast.cli.output import JsonOption, Step, new_table, print_json, print_table, waiting

CHURN_MS = 10_000.0
"""The default of --churn-ms."""

if TYPE_CHECKING:
    from cubecast.sim.result import Result
    from cubecast.trace.checkers import Report


def _simulate(
    protocol: Annotated[
        str, typer.Argument(metavar="PROTOCOL", help="A name from `cubecast protocols`.", show_default=False)
    ],
    settings: dict[str, Any],
    trace: Annotated[Path | None, typer.Option(help="Write every event of the run to this Parquet file.")] = None,
    check: Annotated[bool, typer.Option("--check", help="Run the checkers on the run's trace.")] = False,
    json: JsonOption = False,
) -> None:
    """Simulate one run of a protocol and print its metrics.

    Examples:

      cubecast simulate cube_full_dist --members 200 --rounds 3 --seed 1
      cubecast simulate coord -n 50 --network star --loss 0.02 --check
      cubecast simulate s_coord -n 40 --crash 3@2ms-50ms --json
      cubecast simulate full_dist -n 30 --messages 20 --trace run.parquet
      cubecast simulate timestamp -n 50 --churn 2 --rate 5 --check
      cubecast simulate cube_full_dist -n 100 --churn 2 --data tree --loss 0.01 --rate 2

    A run that cannot end prints the command that replays it and exits with code 1.
    """
    from cubecast.sim.simulate import simulate as run
    from cubecast.trace.checkers import check_all
    from cubecast.trace.files import read_trace

    report: Report | None = None
    with (
        _trace_place(trace, wanted=check) as path,
        waiting(f"{protocol}: preparing (compiling, the first time)") as step,
    ):
        result = run(protocol, trace=path, progress=_progress(step, settings), **settings)
        if check and path is not None:
            step(1, 1, "checking")
            report = check_all(read_trace(path))
    if json:
        print_json(result.to_dict() | ({"check": report.to_dict()} if report else {}))
    else:
        _print_result(result)
        if report is not None:
            print_report(report)
    if report is not None and not report.ok:
        raise typer.Exit(1)


simulate = with_scenario(_simulate)


@contextmanager
def _trace_place(asked: Path | None, *, wanted: bool) -> Iterator[Path | None]:
    """The path of the trace; a temporary one for a check without --trace."""
    if asked is not None or not wanted:
        yield asked
        return
    with tempfile.TemporaryDirectory(prefix="cubecast-") as folder:
        yield Path(folder) / "run.parquet"


def _progress(step: Step, settings: dict[str, Any]) -> Callable[[Result], None]:
    rounds = settings.get("rounds", 1)

    def show(result: Result) -> None:
        if result.views is not None:
            step(round(result.simulated_ms), round(settings.get("churn_ms", CHURN_MS)), f"view {result.views}")
            return
        speed = f"{result.packet_hops_per_second / 1e6:.1f} M packet-hops/s"
        step(result.rounds, rounds, f"round {result.rounds + 1} of {rounds}, {result.simulated_ms:.0f} ms, {speed}")

    return show


def _print_result(result: Result) -> None:
    from cubecast.protocols.catalogue import protocol_named

    title = protocol_named(result.protocol).title
    table = new_table(f"{title}, {result.members} members, {result.network}, seed {result.seed}", "", left=1)
    for name, value in _lines(result):
        table.add_row(name, value)
    print_table(table)


def _lines(result: Result) -> list[tuple[str, str]]:
    """The most important metrics; --json prints all of them."""
    lines = [("senders", f"{result.senders:,}")]
    if result.rounds:
        lines += _round_lines(result)
    if result.views is not None:
        lines += _view_lines(result)
    if result.data_messages:
        lines += _data_lines(result)
    if result.failure_messages:
        lines += [
            ("failure detection: messages", f"{result.failure_messages:,}"),
            ("failure detection: bytes per member and second", f"{result.failure_bytes_per_member_s:,.0f}"),
            ("failure detection: false suspicions", f"{result.false_suspicions:,}"),
        ]
    return [
        *lines,
        ("drops", f"{result.drops:,}"),
        ("messages in the network, mean", f"{result.load_mean:,.1f}"),
        ("queue, mean", f"{result.queue_mean:,.3f}"),
        ("queue, longest", f"{result.queue_max:,}"),
        ("simulated", f"{result.simulated_ms:,.3f} ms"),
        ("took", f"{result.wall_seconds:.3f} s, {result.packet_hops_per_second / 1e6:.2f} M packet-hops/s"),
    ]


def _view_lines(result: Result) -> list[tuple[str, str]]:
    """The cost of membership changes."""
    return [
        ("changes", f"{result.changes or 0:,}"),
        ("views", f"{result.views or 0:,}"),
        ("paused by view changes", f"{100 * (result.paused_share or 0):.2f} % of the time"),
        ("pause, median", _ms(result.pause_p50_ms)),
        ("pause, 99th percentile", _ms(result.pause_p99_ms)),
        ("time to stable, median", _ms(result.stable_p50_ms)),
        ("time to stable, 99th percentile", _ms(result.stable_p99_ms)),
        *_causal_view_lines(result),
        ("membership: bytes per member and second", f"{result.membership_bytes_per_member_s or 0:,.0f}"),
        ("stability: bytes per member and second", f"{result.stability_bytes_per_member_s or 0:,.0f}"),
        ("members excluded although up", f"{result.excluded_wrongly or 0:,}"),
    ]


def _causal_view_lines(result: Result) -> list[tuple[str, str]]:
    if result.causal_p50_ms is None:
        return []
    return [
        ("time to causally stable, median", _ms(result.causal_p50_ms)),
        ("time to causally stable, 99th percentile", _ms(result.causal_p99_ms)),
    ]


def _round_lines(result: Result) -> list[tuple[str, str]]:
    steps = [] if result.steps is None else [("gossip steps, first member", f"{result.steps:,.1f}")]
    return [
        ("rounds", f"{result.rounds:,}"),
        ("RTT, first member", _ms(result.rtt_first_ms)),
        ("RTT, last member", _ms(result.rtt_last_ms)),
        *steps,
        ("messages", f"{result.messages:,}"),
        ("packet-hops", f"{result.hops:,}"),
        ("bytes sent", f"{result.bytes:,}"),
    ]


def _data_lines(result: Result) -> list[tuple[str, str]]:
    lines = [
        ("data: messages", f"{result.data_messages:,}"),
        ("data: packet-hops", f"{result.data_hops:,}"),
        ("data: bytes sent", f"{result.data_bytes:,}"),
        ("data: delay until delivered, mean", _ms(result.delay_mean_ms)),
        ("data: delay until delivered, longest", _ms(result.delay_max_ms)),
        *_family_lines(result),
    ]
    if result.buffer_mean is not None:
        lines += [
            ("data: time to stable, first member", _ms(result.tts_first_ms)),
            ("data: time to stable, last member", _ms(result.tts_last_ms)),
            *_causal_lines(result),
            ("data: unstable messages per member, mean", f"{result.buffer_mean:,.1f}"),
            ("data: unstable messages per member, maximum", f"{result.buffer_max or 0:,}"),
        ]
    return lines


def _causal_lines(result: Result) -> list[tuple[str, str]]:
    if result.causal_last_ms is None:
        return []
    return [
        ("data: time to causally stable, first member", _ms(result.causal_first_ms)),
        ("data: time to causally stable, last member", _ms(result.causal_last_ms)),
    ]


def _family_lines(result: Result) -> list[tuple[str, str]]:
    """Further metrics of the papers: causal §5, and for trees the deliveries and their cost."""
    from cubecast.protocols.catalogue import protocol_named

    family = protocol_named(result.protocol).family
    if family == "causal":
        return [
            ("data: fragments of 1500 bytes", f"{result.data_fragments:,}"),
            ("data: messages held back, mean", f"{result.delivery_queue_mean:,.3f}"),
            ("data: messages held back, maximum", f"{result.delivery_queue_max:,}"),
        ]
    if family == "broadcast" and result.delivered_share is not None:
        return [("data: delivered pairs of message and member", f"{100 * result.delivered_share:.2f} %")]
    return []


def _ms(value: float | None) -> str:
    return "–" if value is None else f"{value:,.3f} ms"
