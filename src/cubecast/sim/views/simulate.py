"""A run with views from its scenario to its result.

Changes and messages come for `churn_ms`; then the group settles: all members are in one view, everything is delivered
and stable. A run that does not settle within `until_ms` has failed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from cubecast.errors import OutOfTimeError, SimulationError
from cubecast.networks.network import Network
from cubecast.protocol.context import Context
from cubecast.protocol.mail import HEADER_BYTES, Mail
from cubecast.protocols.membership.settings import MembershipSettings
from cubecast.sim.build import build_world
from cubecast.sim.network_facts import network_facts
from cubecast.sim.paths import routes_of
from cubecast.sim.resolve_defaults import longest_transfer_ns, resolve_defaults
from cubecast.sim.result import Result
from cubecast.sim.scenario import NS_PER_MS, Scenario
from cubecast.sim.views.churn_schedule import ChurnSchedule
from cubecast.sim.views.group import SimulatedGroup
from cubecast.sim.views.metrics import ViewsRun, collect
from cubecast.sim.views.settings import ONLY_WITH_VIEWS
from cubecast.sim.views.sizes import MEMBER_BYTES
from cubecast.sim.views.stacks import WINDOW, Chosen, StackPlan, Stacks
from cubecast.sim.views.tables import Tables, new_tables
from cubecast.sim.world import World
from cubecast.trace.schema import NOBODY, RECEIVE, Events

DELTA_MS = 100.0
PLACES = 64
"""Views in use at the same time; more than a few only when a partition lasts."""
SETTLE_STEP_NS = 50 * NS_PER_MS
PROGRESS_NS = 500 * NS_PER_MS
REPEAT_FACTOR = 10
"""The repeat interval of a stability protocol, in those of the transport: some members begin a view late."""
REPEATS = 20
"""How often a coordinator repeats itself at most while a view reaches all members."""
VIEW_ENTRY_BYTES = MEMBER_BYTES + 8

Keep = Callable[[Events], None]
Failure = Callable[[int], str]
Progress = Callable[[Result], None]


def run_with_views(
    scenario: Scenario, network: Network, keep: Keep | None, explain: Failure, progress: Progress | None = None
) -> tuple[Result, ViewsRun]:
    """Simulate a scenario with churn; `explain` says why the kernel could not continue."""
    began = time.perf_counter()
    run = build_run(scenario, network, keep)
    try:
        for until_ns in range(PROGRESS_NS, round(scenario.churn_ms * NS_PER_MS), PROGRESS_NS):
            run.group.run_until(until_ns)
            if progress is not None:
                progress(collect(scenario, network, run, time.perf_counter() - began))
        run.group.run_until(round(scenario.churn_ms * NS_PER_MS))
        _settle(scenario, run)
        run.group.drain()
    except SimulationError as error:
        code = int(run.world.scalars[0].error)
        why = explain(code) if code else str(error)
        raise type(error)(f"seed {scenario.seed}: {why}; replay: {scenario.command()}") from error
    return collect(scenario, network, run, time.perf_counter() - began), run


def _settle(scenario: Scenario, run: ViewsRun) -> None:
    """Run without further changes and messages until all members have everything."""
    group = run.group
    end_ns = round(scenario.until_ms * NS_PER_MS)
    while not group.is_settled():
        if group.now_ns >= end_ns:
            lost = all(one.is_blocked for one in group.in_group())
            why = "too few members are left for a quorum" if lost else "the group is not settled"
            raise OutOfTimeError(f"{scenario.until_ms:g} ms of simulated time are over but {why}")
        group.run_until(min(end_ns, group.now_ns + SETTLE_STEP_NS))


def build_run(scenario: Scenario, network: Network, keep: Keep | None) -> ViewsRun:
    """Everything that a run needs, at time 0."""
    world = build_world(
        replace(scenario, multicast="copies"),
        network,
        routes_of(network, by=scenario.routing),
        tracing=keep is not None,
    )
    plan = stack_plan(scenario, network)
    mail = plan.new_mail()
    ordered = _needs_transport(scenario, network)
    world.scalars[0].resend_ns = _stability_alone(scenario, network).repeat_ns if ordered else 0
    world.scalars[0].sampling = 1
    tables = _tables(scenario, world, mail, ordered=ordered)
    group = SimulatedGroup(
        world,
        mail,
        tables,
        Stacks(plan, tables, mail),
        membership_settings(scenario, network),
        seed=scenario.seed,
        detect_ns=round(scenario.detect_ms * NS_PER_MS),
        spread_ns=round(scenario.detect_spread_ms * NS_PER_MS),
        record_bytes=HEADER_BYTES + scenario.payload_bytes,
        state_bytes=scenario.state_bytes,
        keep=lambda: flush(world, keep),
    )
    late = {host for join in scenario.joins for host in join.members}
    group.found([host for host in range(scenario.members) if host not in late])
    return ViewsRun(world, mail, tables, group, ChurnSchedule(group, scenario, round(scenario.churn_ms * NS_PER_MS)))


def _tables(scenario: Scenario, world: World, mail: Mail, *, ordered: bool) -> Tables:
    interval_ns = round(1e9 / scenario.rate)
    calls = round(scenario.churn_ms * NS_PER_MS) // interval_ns + 2
    tables = new_tables(
        hosts=scenario.members,
        processes=incarnations_max(scenario),
        places=PLACES,
        packets=len(world.packets),
        slots=len(mail.heads),
        messages=calls * incarnations_max(scenario),
        ordered=ordered,
        causal=scenario.causal_stability,
    )
    totals = tables.totals[0]
    totals.interval_ns = interval_ns
    totals.stop_ns = round(scenario.churn_ms * NS_PER_MS)
    totals.window = WINDOW
    totals.detecting = scenario.detects
    return tables


def incarnations_max(scenario: Scenario) -> int:
    """An upper bound: a change begins at most one incarnation, and so does the end of a wrong exclusion."""
    faults = (*scenario.crashes, *scenario.leaves, *scenario.joins)
    named = sum(len(fault.members) for fault in faults)
    cut_off = sum(scenario.members for _ in scenario.partitions)
    drawn = 2 * (scenario.churn_per_s or 0.0) * scenario.churn_ms / 1e3
    return scenario.members + 2 * named + cut_off + round(drawn) + 64


def _needs_transport(scenario: Scenario, network: Network) -> bool:
    """Can a packet be lost, cut off or overtaken?"""
    alone = network.one_hop is not None and network.one_hop.spread_ns > 0
    disturbed = scenario.loss > 0 or scenario.queue_limit > 0 or scenario.reorder > 0 or bool(scenario.partitions)
    return disturbed or alone or network.unreliability is not None


def _stability_alone(scenario: Scenario, network: Network) -> Scenario:
    """The stability protocol without churn, where messages can be lost, with all parameters resolved."""
    changed: dict[str, Any] = {name: Scenario.__dataclass_fields__[name].default for name in ONLY_WITH_VIEWS}
    changed |= dict.fromkeys(("crashes", "joins", "leaves"), ())
    changed |= {"protocol": scenario.stability_protocol, "churn_per_s": None, "loss": scenario.loss or 1e-9}
    changed |= {"causal_stability": False, "parameters": _stability(scenario).parameters, "other_parameters": None}
    return resolve_defaults(replace(scenario, **changed), network)


def _stability(scenario: Scenario) -> Chosen:
    role = "other_parameters" if scenario.carries_data else "parameters"
    return Chosen(scenario.entry(role), getattr(scenario, role))


def _data(scenario: Scenario) -> Chosen:
    role = "parameters" if scenario.carries_data else "other_parameters"
    return Chosen(scenario.entry(role), getattr(scenario, role))


def _detector(scenario: Scenario) -> Chosen | None:
    if not scenario.detects:
        return None
    return Chosen(scenario.entry("detector_parameters"), scenario.detector_parameters)


def membership_settings(scenario: Scenario, network: Network) -> MembershipSettings:
    """Times of the agreement: the defaults, or longer if a view needs longer to reach all members."""
    facts = network_facts(scenario, network)
    transfer_ns = longest_transfer_ns(facts, VIEW_ENTRY_BYTES * scenario.members, copies=scenario.members)
    resend_ns = _stability_alone(scenario, network).repeat_ns if _needs_transport(scenario, network) else 0
    slow_ns = 2 * (transfer_ns + resend_ns)
    usual = MembershipSettings()
    suspect_ns = round((scenario.detect_ms + scenario.detect_spread_ms) * NS_PER_MS)
    patience_ns = max(usual.patience_ns, slow_ns)
    return MembershipSettings(
        tick_ns=max(usual.tick_ns, slow_ns // REPEATS),
        suspect_ns=max(usual.suspect_ns, suspect_ns, slow_ns),
        batch_ns=round(scenario.batch_ms * NS_PER_MS),
        patience_ns=patience_ns,
        takeover_ns=patience_ns * 3 // 2,
    )


def stack_plan(scenario: Scenario, network: Network) -> StackPlan:
    """The protocols of every view, and their context."""
    alone = _stability_alone(scenario, network)
    context = Context(
        members=scenario.members,
        senders=scenario.sender_count,
        delta_ns=round((DELTA_MS if scenario.delta_ms is None else scenario.delta_ms) * NS_PER_MS),
        repeat_ns=REPEAT_FACTOR * alone.repeat_ns,
        seed=scenario.seed,
        payload_bytes=scenario.payload_bytes,
        network=network_facts(replace(scenario, multicast="copies"), network),
    )
    return StackPlan(
        data=_data(scenario),
        stability=_stability(scenario),
        detector=_detector(scenario),
        senders=scenario.sender_count,
        causal=scenario.causal_stability,
        context=context,
    )


def flush(world: World, keep: Keep | None) -> None:
    """Pass on the rows of the trace. Rows of copies name no message, because cores know senders by rank only."""
    size = int(world.scalars[0].trace_size)
    if keep is not None and size:
        rows = np.asarray(world.trace[:size])
        copies = rows["event"] <= RECEIVE
        rows["sender"][copies] = NOBODY
        rows["sequence"][copies] = 0
        keep(rows)
    world.scalars[0].trace_size = 0


def names(run: ViewsRun) -> dict[str, Any]:
    """The trace metadata about the members of a run."""
    return {
        "members": len(run.group.processes),
        "names": [[one.me.name, one.me.incarnation] for one in run.group.processes],
    }
