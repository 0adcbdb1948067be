"""Run a scenario: `simulate(...)` is the entry point of the simulator."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from cubecast.errors import LocalProtocolError, OutOfTimeError, SimulationError
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network
from cubecast.sim import kernel
from cubecast.sim.atomic_delivery import AtomicDeliveries
from cubecast.sim.build import Simulation, build_simulation
from cubecast.sim.placement import place
from cubecast.sim.resolve_defaults import resolve_defaults
from cubecast.sim.result import Result, collect, delivered_everywhere
from cubecast.sim.runner import runner
from cubecast.sim.scenario import NS_PER_MS, Scenario
from cubecast.sim.views.simulate import incarnations_max, names, run_with_views
from cubecast.sim.world import (
    CORE_FULL,
    EVENTS_FULL,
    MAIL_FULL,
    NO_ROUTE,
    PACKETS_FULL,
    ROUNDS_FULL,
    TIME_FULL,
    TRACE_FULL,
    VIEWS_FULL,
)
from cubecast.trace.files import Trace, TraceWriter
from cubecast.trace.schema import CRASH, DELIVER, Events, blank_events

SLICE = 1_000_000  # protocol calls between two checks of the clock and of Ctrl-C

Progress = Callable[[Result], None]
"""Called between slices of a long run with the metrics so far."""

Keep = Callable[[Events], None]
"""Called with the rows of the trace, chunk by chunk; the memory of a chunk is reused afterwards."""

_FAILURES = {
    PACKETS_FULL: "more packets in flight than packets_max = {packets_max}; raise it (--packets-max)",
    EVENTS_FULL: "the event queue is full; use fewer members or faults, or a longer --repeat-ms",
    MAIL_FULL: "more messages in flight than the pool holds; use a longer --repeat-ms or a lower --rate",
    TIME_FULL: "simulated time overflows; lower --until-ms",
    ROUNDS_FULL: "more rounds than can be counted; use a longer --delta-ms",
    CORE_FULL: "a buffer or log of {protocol} is full; use fewer messages or a lower --rate",
    VIEWS_FULL: "members see more different memberships than there is memory for; use fewer members or changes",
    NO_ROUTE: "{protocol} sends beyond its neighbours: a network of this size has no other routes, use flat",
    TRACE_FULL: "a single event wrote more trace rows than the buffer holds",
}


def simulate(
    protocol: str,
    *,
    network: str | Network = "random:p=0.02",
    trace: str | Path | None = None,
    progress: Progress | None = None,
    **settings: Any,
) -> Result:
    """Simulate a protocol and return its metrics.

    >>> result = simulate("cube_full_dist", members=64, network="random:degree=5", seed=1)  # doctest: +SKIP
    >>> result.rtt_last_ms, result.messages  # doctest: +SKIP

    `network` is a spec (`random:p=0.02`, `star`, `file:net.txt`, …) or a `Network`; `settings` are the fields of
    `Scenario` (members, senders, seed, rounds, loss, crashes, …) and the parameters of the protocol (see
    `cubecast protocols NAME`). With `trace` the events of the run are written to
    that Parquet file for the checkers. A run that cannot end raises `SimulationError`, which names the seed and a
    command that replays it.
    """
    name = network if isinstance(network, str) else network.name
    scenario = Scenario.of(protocol, network=name, **settings)
    if isinstance(network, str):
        network = build_network(network, members=scenario.members, seed=scenario.seed)
    return run_scenario(scenario, network, trace=trace, progress=progress)


def run_scenario(
    scenario: Scenario, network: Network, *, trace: str | Path | None = None, progress: Progress | None = None
) -> Result:
    """Simulate a scenario on a network that is already built."""
    if network.members != scenario.members:
        raise LocalProtocolError(
            f"network {network.name} has {network.members} members, the scenario {scenario.members}: make them equal"
        )
    if not scenario.has_views:
        scenario = resolve_defaults(scenario, network)
    network = place(scenario, network)
    if trace is None:
        return _run(scenario, network, None, progress)
    with TraceWriter(Path(trace), _described(scenario, network)) as writer:
        result = _run(scenario, network, writer.append, progress)
        writer.finish(result.to_dict())
    return result


def trace_scenario(scenario: Scenario, network: Network) -> Trace:
    """Simulate a scenario and keep its trace in memory; the metrics are in the trace."""
    return run_and_trace(scenario, network)[1]


def run_and_trace(scenario: Scenario, network: Network) -> tuple[Result, Trace]:
    """Simulate a scenario; return the result, and the trace in memory."""
    chunks: list[Events] = []
    network = place(scenario, network)
    if scenario.has_views:
        result, run = run_with_views(scenario, network, lambda chunk: chunks.append(chunk.copy()), _failure(scenario))
        described = _described(scenario, network) | names(run)
    else:
        scenario = resolve_defaults(scenario, network)
        result = _run(scenario, network, lambda chunk: chunks.append(chunk.copy()), None)
        described = _described(scenario, network)
    return result, Trace(events=np.concatenate(chunks), scenario=described, metrics=result.to_dict())


def _described(scenario: Scenario, network: Network) -> dict[str, Any]:
    """The scenario for the trace, with the number of links (0 if messages make one hop), members and hosts."""
    members = incarnations_max(scenario) if scenario.has_views else scenario.members
    return scenario.to_dict() | {"links": network.links, "members": members, "hosts": scenario.members}


def run_to_end(scenario: Scenario, network: Network) -> tuple[Result, Simulation]:
    """Simulate a scenario and return the arrays too, for what a result does not contain (the shape of a tree)."""
    network = place(scenario, network)
    simulation = build_simulation(scenario, network, tracing=False)
    return _drive(scenario, network, simulation, None, None), simulation


def _run(scenario: Scenario, network: Network, keep: Keep | None, progress: Progress | None) -> Result:
    if scenario.has_views:
        return run_with_views(scenario, network, keep, _failure(scenario), progress)[0]
    if scenario.deliver == "stable":
        return _run_atomic(scenario, network, keep, progress)
    return _drive(scenario, network, build_simulation(scenario, network, tracing=keep is not None), keep, progress)


def _run_atomic(scenario: Scenario, network: Network, keep: Keep | None, progress: Progress | None) -> Result:
    """Run with deliver = stable: also compute what applications get and when."""
    given = AtomicDeliveries(members=scenario.members, senders=scenario.sender_count, messages=scenario.messages)

    def follow(chunk: Events) -> None:
        given.take(chunk)
        if keep is not None:
            keep(chunk)

    simulation = build_simulation(scenario, network, tracing=True)
    result = _drive(scenario, network, simulation, follow, progress)
    return replace(result, **given.metrics())


def _drive(
    scenario: Scenario, network: Network, simulation: Simulation, keep: Keep | None, progress: Progress | None
) -> Result:
    if keep is not None:
        keep(_initial_deliveries(simulation))
        keep(_not_there_yet(simulation))
    run = runner(simulation)
    until_ns = round(scenario.until_ms * NS_PER_MS)
    began = time.perf_counter()
    while True:
        status = run(until_ns, SLICE)
        _flush(simulation, keep)
        if status != kernel.PAUSED:
            break
        if progress is not None:
            progress(collect(scenario, network, simulation, time.perf_counter() - began))
    result = collect(scenario, network, simulation, time.perf_counter() - began)
    if status == kernel.STUCK and scenario.carries_data and delivered_everywhere(scenario, simulation):
        status = kernel.FINISHED
    if status != kernel.FINISHED:
        kind = OutOfTimeError if status == kernel.OUT_OF_TIME else SimulationError
        raise kind(f"{_why(status, scenario, simulation)}; replay: {scenario.command()}")
    return result


def _why(status: int, scenario: Scenario, simulation: Simulation) -> str:
    if status == kernel.FAILED:
        return f"seed {scenario.seed}: " + _failure(scenario)(int(simulation.world.scalars[0].error))
    ended = (
        "nothing is left to happen"
        if status == kernel.STUCK
        else f"{scenario.until_ms:g} ms of simulated time are over"
    )
    if scenario.carries_data:
        return f"seed {scenario.seed}: {ended} but not every member of {scenario.protocol} has delivered every message"
    number = int(simulation.metrics.totals[0].oldest_open)
    return f"seed {scenario.seed}: {ended} but round {number} of {scenario.protocol} has not ended at every member"


def _failure(scenario: Scenario) -> Callable[[int], str]:
    """Return a function that gives the text of a kernel error."""
    return lambda error: _FAILURES[error].format(packets_max=scenario.packet_room, protocol=scenario.protocol)


def _initial_deliveries(simulation: Simulation) -> Events:
    """Trace rows for what every member holds at time 0."""
    members, senders = np.nonzero(simulation.group.received)
    events = blank_events(len(members))
    events["event"] = DELIVER
    events["member"] = members
    events["sender"] = senders
    events["sequence"] = simulation.group.received[members, senders]
    return events


def _not_there_yet(simulation: Simulation) -> Events:
    """Trace rows for newcomers, which are down until they join."""
    absent = np.flatnonzero(simulation.metrics.members.up == 0)
    events = blank_events(len(absent))
    events["event"] = CRASH
    events["member"] = absent
    return events


def _flush(simulation: Simulation, keep: Keep | None) -> None:
    size = int(simulation.world.scalars[0].trace_size)
    if keep is not None and size:
        keep(np.asarray(simulation.world.trace[:size]))
    simulation.world.scalars[0].trace_size = 0
