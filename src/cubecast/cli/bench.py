"""`cubecast bench`: measure the speed of the simulator on this machine."""

from __future__ import annotations

from typing import Annotated

import typer

from cubecast.cli.options import whole_number
from cubecast.cli.output import JsonOption, new_table, print_json, print_table, waiting
from cubecast.errors import LocalProtocolError


def bench(
    repeat: Annotated[
        int, typer.Option(parser=whole_number, metavar="INTEGER", help="Runs per job; the fastest counts.")
    ] = 3,
    json: JsonOption = False,
) -> None:
    """Measure whole jobs and packet-hops per second, on one core.

    A packet-hop is one packet crossing one link. A whole job builds the network,
    computes the routes and runs.

    Example:

      cubecast bench --repeat 5
    """
    from cubecast.lab.benchmark import benchmark

    if repeat < 1:
        raise LocalProtocolError(f"--repeat {repeat}: run each job at least once")
    with waiting("measuring") as step:
        timings = benchmark(repeat=repeat, progress=step)
    if json:
        print_json([timing.to_dict() for timing in timings])
        return
    table = new_table("job", "packet-hops", "M packet-hops/s", "run s", "whole job s", title=f"best of {repeat}")
    for timing in timings:
        speed = f"{timing.packet_hops_per_second / 1e6:.2f}"
        seconds = (f"{timing.run_seconds:.3f}", f"{timing.whole_seconds:.3f}")
        table.add_row(timing.job.name, f"{timing.packet_hops:,}", speed, *seconds)
    print_table(table)
