"""Causal protocols under crashes keep every promise; deliberately broken ones are caught."""

from __future__ import annotations

from dataclasses import replace

import pytest

from cubecast.errors import LocalProtocolError, SimulationError
from cubecast.networks.spec import build_network
from cubecast.protocol.context import Context
from cubecast.protocol.group import GroupState
from cubecast.protocol.parameters import NoParameters
from cubecast.protocols.catalogue import add_protocol, protocol_named
from cubecast.protocols.causal import timestamp
from cubecast.sim.faults import Fault
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate, trace_scenario
from cubecast.trace.checkers import agreement, causal_order, check_all
from cubecast.trace.schema import Event
from tests.sim.broken_overlays import register_broken_overlays
from tests.sim.broken_timestamps import register_broken_timestamps
from tests.sim.causal_runs import broken_promises, changing_scenario, crashing_scenario

MS = 1_000_000


@pytest.fixture(scope="module", autouse=True)
def broken_overlays() -> None:
    register_broken_overlays()


@pytest.mark.parametrize("protocol", ["timestamp", "overlay"])
def test_random_runs_with_crashes_keep_every_promise(protocol: str) -> None:
    for seed in range(150):
        assert broken_promises(*crashing_scenario(seed, protocol)) == []


@pytest.mark.parametrize("protocol", ["causal_plumtree", "causal_rasm"])
def test_stamped_trees_keep_every_promise_in_random_runs_with_crashes(protocol: str) -> None:
    for seed in range(30):
        assert broken_promises(*crashing_scenario(seed, protocol)) == []


def test_random_runs_with_joins_and_leaves_keep_every_promise() -> None:
    for seed in range(150):
        assert broken_promises(*changing_scenario(seed)) == []


def test_a_link_that_is_used_before_its_pong_is_caught() -> None:
    caught = set()
    for seed in range(40):
        scenario, network = changing_scenario(seed)
        report = check_all(trace_scenario(replace(scenario, protocol="pc_overlay_without_ping"), network))
        caught |= {verdict.checker for verdict in report.verdicts if verdict.violations}
    assert causal_order.NAME in caught


def test_every_newcomer_takes_part_and_every_leaver_goes() -> None:
    """Half of the group is replaced while all members send; those that stay deliver what newcomers send."""
    joins = tuple(Fault(members=(rank,), at_ns=(rank - 7) * MS) for rank in range(8, 16))
    leaves = tuple(Fault(members=(rank,), at_ns=(rank + 3) * MS) for rank in range(1, 8))
    scenario = Scenario(
        protocol="pc_overlay",
        members=16,
        senders=16,
        network="random:degree=4,bandwidth=10e6",
        seed=5,
        messages=30,
        rate=1000.0,
        joins=joins,
        leaves=leaves,
    )
    trace = trace_scenario(scenario, build_network(scenario.network, members=16, seed=5))
    assert check_all(trace).ok, check_all(trace).lines()
    gone = trace.events[(trace.events["event"] == Event.CRASH) & (trace.events["time_ns"] > 0)]
    assert set(gone["member"].tolist()) == set(range(1, 8))
    last = trace.events[(trace.events["event"] == Event.DELIVER) & (trace.events["sequence"] == 30)]
    stayers = {0, *range(8, 16)}
    heard = {(int(row["member"]), int(row["sender"])) for row in last}
    assert {(member, sender) for member in stayers for sender in stayers} <= heard


def test_a_newcomer_names_the_member_whose_deliveries_it_took_over() -> None:
    """It asks the next rank first."""
    joins = (Fault(members=(5,), at_ns=5 * MS), Fault(members=(4,), at_ns=20 * MS))
    network = "random:degree=4,bandwidth=10e6"
    scenario = Scenario(
        protocol="pc_overlay", members=6, senders=6, network=network, seed=5, messages=30, rate=1000.0, joins=joins
    )
    events = trace_scenario(scenario, build_network(network, members=6, seed=5)).events
    adopted = events[(events["event"] == Event.DELIVER) & (events["peer"] >= 0)]
    assert {(int(row["member"]), int(row["peer"])) for row in adopted} == {(5, 0), (4, 5)}


def accusations(protocol: str, **settings: object) -> set[str]:
    """Names of the promises that some of a few seeds break."""
    found = set()
    for seed in range(20):
        scenario = Scenario(protocol=protocol, seed=seed, packets_max=1 << 16, **settings)  # type: ignore[arg-type]
        network = build_network(scenario.network, members=scenario.members, seed=seed)
        report = check_all(trace_scenario(scenario, network))
        found |= {verdict.checker for verdict in report.verdicts if verdict.violations}
    return found


BUSY = {"members": 16, "senders": 8, "network": "random:degree=4,bandwidth=10e6", "messages": 6, "rate": 4000.0}
CUT_OFF = (Fault(members=(1, 2, 4, 8, 3, 5), at_ns=MS // 2),)


def test_overlay_over_links_that_reorder_is_caught() -> None:
    assert accusations("overlay", **BUSY) == set()
    assert causal_order.NAME in accusations("overlay_without_fifo", reorder=0.2, **BUSY)


def test_delivering_before_forwarding_is_caught_when_a_crash_comes_between() -> None:
    """A neighbour of the sender delivers, and dies before it has passed the message on."""
    faults = {"crashes": tuple(Fault(members=(rank,), at_ns=rank * MS) for rank in (1, 2)), "detect_ms": 1.0}
    assert accusations("overlay", **BUSY, **faults) == set()
    assert causal_order.NAME in accusations("overlay_late_forward", **BUSY, **faults)


def test_a_new_link_used_too_early_is_caught() -> None:
    """All neighbours of member 0 and two more die: it is cut off until its new links are open."""
    faults = {"crashes": CUT_OFF, "detect_ms": 1.0}
    assert accusations("overlay", **BUSY, **faults) == set()
    caught = accusations("overlay_early_link", **BUSY, **faults)
    assert causal_order.NAME in caught
    assert agreement.NAME in caught


def test_a_star_whose_centre_dies_in_mid_multicast_is_mended_and_one_that_forgets_what_was_lost_is_caught() -> None:
    """Two centres crash one after the other while all members send through them; only some have each message."""
    crashes = tuple(Fault(members=(rank,), at_ns=(2 + 3 * rank) * MS // 4) for rank in (0, 1))
    faults = {**BUSY, "members": 8, "crashes": crashes, "detect_ms": 1.0, "detect_spread_ms": 1.0}
    assert accusations("star", **faults) == set()
    assert agreement.NAME in accusations("star_early_link", **faults)


def test_an_answer_that_closes_a_gap_without_an_announcement_is_caught() -> None:
    """Links reorder, so a message of the dead may be here whose predecessor is not."""
    register_broken_timestamps()
    caught = set()
    for seed in range(60):
        scenario, network = crashing_scenario(seed, "timestamp")
        if scenario.crashes and scenario.reorder:
            report = check_all(trace_scenario(replace(scenario, protocol="discreet_timestamp"), network))
            caught |= {verdict.checker for verdict in report.verdicts if verdict.violations}
    assert caught == {agreement.NAME}


def test_survivors_of_most_of_the_cube_go_on() -> None:
    """All members but two antipodes crash, one by one; the two still hear each other (VCube order of stand-ins)."""
    crashes = tuple(Fault(members=(rank,), at_ns=rank * MS // 4) for rank in range(1, 31))
    scenario = Scenario(
        protocol="overlay",
        members=32,
        senders=32,
        network="random:degree=4,bandwidth=10e6",
        seed=3,
        messages=20,
        rate=2000.0,
        crashes=crashes,
        detect_ms=0.5,
    )
    trace = trace_scenario(scenario, build_network(scenario.network, members=32, seed=3))
    assert check_all(trace).ok, check_all(trace).lines()
    delivered = trace.events[(trace.events["event"] == 4) & (trace.events["sequence"] == 20)]
    assert {(0, 31), (31, 0)} <= {(int(row["member"]), int(row["sender"])) for row in delivered}


def test_a_full_delivery_buffer_ends_the_run_with_a_clear_error() -> None:
    def build(group: GroupState, context: Context, parameters: NoParameters) -> timestamp.TimestampState:
        return timestamp.build(group, replace(context, room=1, window=10), parameters)

    add_protocol(replace(protocol_named("timestamp"), name="tiny_timestamp", build=build))
    with pytest.raises(SimulationError, match=r"seed 0: a buffer or log of tiny_timestamp is full.*replay: "):
        simulate("tiny_timestamp", members=8, messages=10, network="star", reorder=0.5, reorder_ms=50.0)


def test_a_causal_protocol_without_messages_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="messages = 0"):
        simulate("timestamp", members=4, network="star")


@pytest.mark.parametrize(
    ("settings", "fix"),
    [
        ({"loss": 0.1}, "lose nothing"),
        ({"crashes": (Fault(members=(1,), at_ns=0, until_ns=MS),)}, "lose nothing"),
        ({"reorder": 0.1}, "FIFO"),
        ({"duplicate": 0.1}, "FIFO"),
        ({"network": "flat:delay=0-1ms"}, "FIFO"),
    ],
)
def test_overlay_refuses_links_that_would_break_it(settings: dict[str, object], fix: str) -> None:
    with pytest.raises(LocalProtocolError, match=fix):
        simulate("overlay", **({"members": 8, "messages": 1, "network": "star"} | settings))  # type: ignore[arg-type]
