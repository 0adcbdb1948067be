"""Build the arrays of the kernel from a scenario."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.networks.network import Network
from cubecast.networks.routes import Routes, arity_of
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol, Steps
from cubecast.protocol.group import (
    ERRORS,
    STABILITY,
    GroupState,
    new_group,
)
from cubecast.protocol.mail import Mail, new_mail
from cubecast.protocol.messages import carry_sets
from cubecast.protocol.nothing import Nothing
from cubecast.protocol.overlays import Overlay
from cubecast.protocol.random import new_stream, uniform
from cubecast.protocol.transport_abilities import hands_over_history, sequence_of
from cubecast.sim import events
from cubecast.sim.causal_stability import Fold, new_fold
from cubecast.sim.due import IDLE, leaves_for, new_due, part_shift_for
from cubecast.sim.events import schedule, schedule_beginnings
from cubecast.sim.faults import Faults, new_faults
from cubecast.sim.local_groups import local_groups
from cubecast.sim.memory import check_memory
from cubecast.sim.metrics import Metrics, new_metrics
from cubecast.sim.neighbourhood import estimated_link_failure
from cubecast.sim.network_facts import network_facts
from cubecast.sim.paths import routes_of, tree_cover
from cubecast.sim.resolve_defaults import resolve_defaults
from cubecast.sim.scenario import NS_PER_MS, Scenario
from cubecast.sim.world import (
    DELAY_EXPONENTIAL,
    DELAY_UNIFORM,
    EVENT,
    LINK,
    LINK_PROCESSOR,
    LINKS_ONLY,
    NO_PACKET,
    PACKET,
    SCALARS,
    World,
    aligned,
)
from cubecast.trace.schema import EVENT_DTYPE

ROUNDS_ROOM = 1 << 16
FLOODED_MAX = 1 << 22  # most extra messages in the pool, for protocols in which every member forwards every message
TIE_BITS = 8  # random bits that order packets arriving at the same instant; more would shorten the longest possible run
TIE_STREAM = 0x746965
FROZEN_BASE, FROZEN_SPREAD = 90, 11  # without data traffic R_i[j] is drawn from 90 … 100


class Simulation(NamedTuple):
    """One run, ready for the kernel."""

    world: World
    metrics: Metrics
    mail: Mail
    group: GroupState
    fold: Fold
    control: Any
    data: Any
    failure: Any
    faults: Faults
    call: NDArray[np.int64]


def build_simulation(scenario: Scenario, network: Network, *, tracing: bool) -> Simulation:
    """Allocate all arrays and schedule the events known at the start."""
    scenario = resolve_defaults(scenario, network)
    protocol = scenario.entry()
    context = _context(scenario, network)
    _check_order(scenario, network, protocol)
    check_memory(scenario, context)
    group = _first_group(scenario)
    fold = new_fold(group, is_wanted=scenario.causal_stability)
    routes = routes_of(network, by=scenario.routing)
    simulation = Simulation(
        world=build_world(scenario, network, routes, tracing=tracing),
        metrics=_first_metrics(scenario, protocol),
        mail=_empty_mail(scenario, context),
        group=group,
        fold=fold,
        control=_build_control(scenario, fold.group, context),
        data=_build_data(scenario, group, context),
        failure=_build(scenario, "detector_parameters", group, context) if scenario.detects else Nothing(group=group),
        faults=new_faults(
            members=scenario.members,
            crashes=scenario.crashes,
            partitions=scenario.partitions,
            detect_ns=round(scenario.detect_ms * NS_PER_MS),
            spread_ns=round(scenario.detect_spread_ms * NS_PER_MS),
            seed=scenario.seed,
        ),
        call=np.full(7, -1, np.int64),
    )
    simulation = _with_savings(scenario, simulation)
    _schedule_all(scenario, simulation)
    return simulation


def _context(scenario: Scenario, network: Network) -> Context:
    """The context of the protocols."""
    links = _links_by_rank(network)
    return Context(
        members=scenario.members,
        senders=scenario.sequence_count,
        seed=scenario.seed,
        delta_ns=round((scenario.delta_ms or 0) * NS_PER_MS),
        repeat_ns=scenario.repeat_ns,
        wait_ns=scenario.repeat_ns // 4 if scenario.reorder > 0 or network.one_hop is not None else 0,
        payload_bytes=scenario.payload_bytes,
        room=max(1, scenario.sender_count * scenario.messages),
        window=max(1, int(_wanted(scenario).max())),
        overlay=_neighbours(network, links),
        link_failure=_known_link_failure(scenario, network)[links],
        local_groups=partial(local_groups, network, by=scenario.routing),
        network=network_facts(scenario, network),
    )


def _build(scenario: Scenario, role: str, group: GroupState, context: Context) -> Any:
    return scenario.entry(role).build(group, context, getattr(scenario, role))


def _first_metrics(scenario: Scenario, protocol: Protocol) -> Metrics:
    """The metrics at time 0; newcomers are down until they join."""
    metrics = new_metrics(
        members=scenario.members,
        senders=scenario.sender_count if scenario.messages > 0 else scenario.sequence_count,
        wanted=_wanted(scenario),
        rounds_wanted=scenario.rounds,
        rounds_room=max(ROUNDS_ROOM, 2 * scenario.rounds),
        data_wanted=scenario.messages,
        data_interval_ns=round(1e9 / scenario.rate),
        samples=_samples(scenario),
        causal=scenario.causal_stability,
    )
    for join in scenario.joins:
        metrics.members.up[list(join.members)] = 0
        metrics.members.recover_ns[list(join.members)] = join.at_ns
        metrics.totals.up -= len(join.members)
    totals = metrics.totals[0]
    totals.self_joining = protocol.admits_joins
    totals.detecting = scenario.detects
    has_transport = scenario.messages > 0 and not scenario.carries_data
    totals.handing = has_transport and hands_over_history(scenario.entry("transport_parameters"))
    totals.triggered = scenario.trigger == "buffer"
    totals.trigger_level = scenario.trigger_messages
    totals.buffer_room = scenario.buffer_messages
    return metrics


def _wanted(scenario: Scenario) -> NDArray[np.int64]:
    """How many data messages each sequence will hold."""
    sequences = scenario.sequence_count
    sharing = [sequence_of(rank, sequences) for rank in range(scenario.sender_count)]
    return scenario.messages * np.bincount(sharing, minlength=sequences)


def _empty_mail(scenario: Scenario, context: Context) -> Mail:
    n = scenario.members
    with_sets = any(carry_sets(role.entry.messages) for role in scenario.running.values())
    data_room = scenario.sequence_count * scenario.messages if scenario.carries_data else 0
    widths = [
        role.entry.numbers(replace(context, senders=scenario.senders_for(role.field)), getattr(scenario, role.field))
        for role in scenario.roles.values()
    ]
    return new_mail(
        slots=32 * n + 65_536 + min(n * data_room, FLOODED_MAX),
        width=max(*widths, 1),
        words=rank_sets.words_for(n) if with_sets else 1,
        room=8 * n + 4096 + 2 * data_room,
    )


def _with_savings(scenario: Scenario, simulation: Simulation) -> Simulation:
    """Allocate the tables for the savings of guo ch. 7 (`sim.changed_entries`, `sim.piggyback`)."""
    slots = len(simulation.mail.heads)
    world = simulation.world
    if scenario.piggyback_control:
        piggybacked_to = np.zeros((slots, rank_sets.words_for(scenario.members)), np.uint64)
        world = world._replace(piggyback=np.zeros(slots, np.int64), piggybacked_to=piggybacked_to)
    if scenario.changed_only:
        world = world._replace(left_out=np.zeros((slots, rank_sets.words_for(scenario.sequence_count)), np.uint64))
    return simulation._replace(world=world)


def _first_group(scenario: Scenario) -> GroupState:
    """The group at time 0: newcomers are in no membership and hold nothing."""
    newcomers = [rank for join in scenario.joins for rank in join.members]
    n = scenario.members
    goal = ERRORS if scenario.goal == "errors" else STABILITY
    group = new_group(members=n, senders=scenario.sequence_count, ranks=np.arange(n), goal=goal)
    if scenario.messages == 0:
        _freeze_received(scenario, group)
    group.received[newcomers] = 0
    for rank in newcomers:
        rank_sets.discard(group.members[0], rank)  # the one set that all share so far
    return group


def _build_control(scenario: Scenario, group: GroupState, context: Context) -> Any:
    """The state of the stability protocol; none if the simulated protocol carries data."""
    if scenario.carries_data:
        return Nothing(group=group)
    return _build(scenario, "parameters", group, replace(context, senders=scenario.senders_for("parameters")))


def _build_data(scenario: Scenario, group: GroupState, context: Context) -> Any:
    """The state of the data protocol; without data traffic, of one that does nothing."""
    if scenario.carries_data:
        return _build(scenario, "parameters", group, context)
    if scenario.messages == 0:
        return Nothing(group=group)
    return _build(scenario, "transport_parameters", group, context)


def _samples(scenario: Scenario) -> int:
    return math.ceil(scenario.until_ms / scenario.series_ms) + 1 if scenario.series_ms > 0 else 0


def _links_by_rank(network: Network) -> NDArray[np.int64]:
    """The links sorted by the ranks of their ends; empty unless every node is a member."""
    if network.one_hop is not None or network.nodes > network.members:
        return np.empty(0, np.int64)
    rank_at = np.argsort(network.hosts)
    order: NDArray[np.int64] = np.lexsort((rank_at[network.link_to], rank_at[network.link_from]))
    return order


def _neighbours(network: Network, links: NDArray[np.int64]) -> Overlay | None:
    """The links of the network as an overlay, if every node is a member."""
    if len(links) == 0:
        return None
    rank_at = np.argsort(network.hosts)
    offsets = np.searchsorted(rank_at[network.link_from[links]], np.arange(network.nodes + 1)).astype(np.int32)
    return Overlay(offsets, rank_at[network.link_to[links]].astype(np.int32))


def _known_link_failure(scenario: Scenario, network: Network) -> NDArray[np.float64]:
    if scenario.heartbeats == 0:
        return network.link_failure
    return estimated_link_failure(network, heartbeats=scenario.heartbeats, seed=scenario.seed)


def _check_order(scenario: Scenario, network: Network, protocol: Protocol) -> None:
    """Reject protocols that need ordered or reliable links on a network that reorders or loses messages."""
    if network.unreliability is not None and network.unreliability.sampled and network.link_failure.max() > 0:
        if protocol.links != "lossy":
            raise LocalProtocolError(f"{protocol.name} needs links that lose nothing: add sampled=0 to the network")
        if scenario.repeat_ns == 0 and not protocol.carries_data:
            raise LocalProtocolError(f"network {scenario.network} loses messages: give repeat_ms")
        if scenario.changed_only:
            raise LocalProtocolError(f"changed_only on {scenario.network}, which loses messages: add sampled=0 to it")
    if (
        network.one_hop is not None
        and network.one_hop.spread_ns > 0
        and (protocol.links == "fifo" or scenario.changed_only)
    ):
        needing = "changed_only" if protocol.links != "fifo" else protocol.name
        raise LocalProtocolError(
            f"{needing} needs FIFO links: network {scenario.network} has varying delays, make them constant"
        )


def _freeze_received(scenario: Scenario, group: GroupState) -> None:
    stream = np.random.Generator(np.random.Philox(key=[scenario.seed, 0x52]))
    group.received[:] = stream.integers(FROZEN_BASE, FROZEN_BASE + FROZEN_SPREAD, size=group.received.shape)


def _schedule_all(scenario: Scenario, simulation: Simulation) -> None:
    world = simulation.world
    for place, crash in enumerate(scenario.crashes):
        for rank in crash.members:
            schedule(world, crash.at_ns, events.CRASH, rank, place, 0)
            if crash.until_ns >= 0:
                schedule(world, crash.until_ns, events.RECOVER, rank, 0, 0)
    goodbye = events.GOODBYE if scenario.entry().admits_joins else events.SUSPECT
    for what, faults in ((events.SUSPECT, scenario.suspicions), (goodbye, scenario.leaves)):
        for gone in faults:
            for rank in gone.members:
                schedule(world, gone.at_ns, what, rank, 0, 0)
    newcomers = {rank: join.at_ns for join in scenario.joins for rank in join.members}
    for rank, at_ns in newcomers.items():
        schedule(world, at_ns, events.ENTER, rank, 0, 0)
    for place, partition in enumerate(scenario.partitions, start=1):
        schedule(world, partition.at_ns, events.SPLIT, 0, place, 0)
        schedule(world, partition.until_ns, events.SPLIT, 0, 0, 0)
    schedule_beginnings(world, simulation.metrics.members.up)
    if scenario.series_ms > 0:
        schedule(world, 0, events.SAMPLE, 0, round(scenario.series_ms * NS_PER_MS), 0)
    if scenario.least_ms > 0:
        simulation.metrics.totals[0].lasting = 1
        schedule(world, round(scenario.least_ms * NS_PER_MS), events.LASTED, 0, 0, 0)
    if scenario.messages > 0:
        phases = new_stream(scenario.seed, "phases")
        for rank in range(scenario.sender_count):
            schedule(world, int(uniform(phases) * 1e9 / scenario.rate), events.SEND_DATA, rank, 0, 0)


def build_world(scenario: Scenario, network: Network, routes: Routes, *, tracing: bool) -> World:
    """The network as arrays, with nothing on its links."""
    if network.one_hop is not None and scenario.multicast == "tree":
        raise LocalProtocolError(f"multicast = tree on network {network.name}: it has no links, choose copies")
    lines = network.links + (network.nodes if network.costs is not None else 0)
    shift = _shift(network, lines)
    packets = _packets(scenario, shift)
    member_at = np.full(network.nodes, -1, np.int32)
    member_at[network.hosts] = np.arange(network.members)
    return World(
        links=_links(scenario, network),
        packets=packets,
        entered_ns=np.empty(packets.size if tracing else 1, np.int64),
        numbers=np.empty(packets.size if tracing else 1, np.int64),
        first_link=routes.first_link,
        reverse=routes.reverse,
        port=routes.port,
        hosts=network.hosts,
        member_at=member_at,
        on_tree=tree_cover(network, by=scenario.routing) if scenario.multicast == "tree" else np.zeros((1, 1), bool),
        due=new_due(lines),
        events=np.empty(_event_room(scenario, network), EVENT).view(np.recarray),
        piggyback=np.zeros(1, np.int64),
        piggybacked_to=np.zeros((1, 1), np.uint64),
        left_out=np.zeros((1, 1), np.uint64),
        scalars=_scalars(scenario, network, lines, tracing=tracing),
        random=new_stream(scenario.seed, "network"),
        trace=np.zeros(_trace_room(scenario) if tracing else 1, EVENT_DTYPE).view(np.recarray),
    )


def _packets(scenario: Scenario, shift: int) -> np.recarray[Any, Any]:
    packets = aligned(1 + scenario.packet_room, PACKET).view(np.recarray)
    packets[NO_PACKET] = 0
    packets[NO_PACKET].start_ns = IDLE
    packets[NO_PACKET].arrive_ns = IDLE >> shift
    return packets


def _link_bits(lines: int) -> int:
    """The bits of a key that hold the number of a link."""
    return max(lines, 1).bit_length()


def _shift(network: Network, lines: int) -> int:
    """The bits of a key that follow the time."""
    return _link_bits(lines) + (TIE_BITS if network.random_ties else 0)


def _keys(scenario: Scenario, network: Network, lines: int) -> NDArray[np.int64]:
    """The last bits of each link's keys, which order packets that arrive at the same instant."""
    keys = np.arange(lines, dtype=np.int64)
    if network.random_ties:
        stream = np.random.Generator(np.random.Philox(key=[scenario.seed, TIE_STREAM]))
        keys |= stream.integers(0, 1 << TIE_BITS, lines) << _link_bits(lines)
    return keys


def _links(scenario: Scenario, network: Network) -> np.recarray[Any, Any]:
    processors = network.nodes if network.costs is not None else 0
    links = aligned(network.links + processors, LINK).view(np.recarray)
    links.view(np.uint8)[:] = 0
    links.head = links.tail = links.queue = NO_PACKET
    wires = links[: network.links]
    wires["delay_ns"] = network.delay_ns
    wires["ns_per_byte"] = 8e9 / network.bandwidth_bps
    wires["to"] = network.link_to
    wires["loss"] = link_loss(scenario, network)
    links[network.links :]["to"] = np.arange(processors)
    links[network.links :]["kind"] = LINK_PROCESSOR
    links["key"] = _keys(scenario, network, len(links))
    return links


def link_loss(scenario: Scenario, network: Network) -> NDArray[np.float64]:
    """The loss probability of each link: the scenario's loss combined with the network's own."""
    if network.unreliability is None or not network.unreliability.sampled:
        return np.full(network.links, scenario.loss)
    return 1 - (1 - scenario.loss) * (1 - network.link_failure)


def _event_room(scenario: Scenario, network: Network) -> int:
    """The capacity of the event queue: timers of every member and, on a network without links, the packets."""
    alone = network.one_hop is not None or scenario.reorder > 0 or scenario.duplicate > 0
    changes = (*scenario.crashes, *scenario.suspicions, *scenario.leaves, *scenario.joins)
    crashes = sum(len(fault.members) for fault in changes)
    senders = scenario.sender_count if scenario.messages else 0
    room = (64 + 4 * crashes + senders) * scenario.members + 65_536
    return room + (scenario.packet_room if alone else 0)


def _trace_room(scenario: Scenario) -> int:
    """The capacity of the trace buffer; half of it holds the rows that one protocol call can write."""
    return max(1 << 18, 16 * (scenario.members + scenario.sender_count))


def _scalars(scenario: Scenario, network: Network, lines: int, *, tracing: bool) -> np.recarray[Any, Any]:
    scalars = np.zeros(1, SCALARS).view(np.recarray)
    steps = _steps(scenario)
    values: dict[str, Any] = {
        "shift": _shift(network, lines),
        "link_mask": (1 << _link_bits(lines)) - 1,
        "leaves": leaves_for(lines),
        "part_shift": part_shift_for(lines),
        "arity": arity_of(network),
        "queue_limit": scenario.queue_limit,
        "loss": max(scenario.loss, float(link_loss(scenario, network).max(initial=0.0))),
        "duplicate": scenario.duplicate,
        "reorder": scenario.reorder,
        "reorder_ns": round(scenario.reorder_ms * NS_PER_MS),
        "measure": scenario.measure,
        "tracing": tracing,
        "one_hop": LINKS_ONLY,
        "sample_ns": NS_PER_MS,
        "forced_losses": scenario.forced_losses,
        "forced_step_ns": steps.interval_ns,
        "forced_sends": steps.sends,
        "packet_free": NO_PACKET,
        "packets_used": NO_PACKET + 1,
        "sampling": scenario.carries_data,  # without rounds, the load is averaged over the whole run
    }
    if network.costs is not None:
        values |= vars(network.costs) | {"processors": 1}
    if network.one_hop is not None:
        values["one_hop"] = DELAY_UNIFORM if network.one_hop.shape == "uniform" else DELAY_EXPONENTIAL
        values["one_hop_low_ns"] = network.one_hop.low_ns
        values["one_hop_spread_ns"] = network.one_hop.spread_ns
    for name, value in values.items():
        scalars[0][name] = value
    return scalars


def _steps(scenario: Scenario) -> Steps:
    """The steps of the protocol, for losses that are forced in every step."""
    rhythm = scenario.entry().steps
    context = Context(members=scenario.members, senders=scenario.sequence_count)
    return Steps(1_000_000_000, scenario.members) if rhythm is None else rhythm(scenario.parameters, context)
