"""The event loop: time runs forward, nothing leaks, a run can pause anywhere and reports why it cannot continue."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError, SimulationError
from cubecast.sim import kernel, simulate
from cubecast.sim.build import build_simulation
from cubecast.sim.faults import Fault
from cubecast.sim.result import Result
from cubecast.sim.runner import runner
from cubecast.sim.scenario import Scenario
from cubecast.sim.world import ROUNDS_FULL
from cubecast.trace.schema import DROP, RECEIVE, SEND
from tests.sim.random_scenarios import random_scenario
from tests.sim.runs import leaks, network_of, run_to_end, traced, wired

SMALL: dict[str, Any] = {"members": 8, "network": "random:degree=3", "seed": 4}


@pytest.mark.parametrize("seed", range(40))
def test_a_finished_run_gives_everything_back_once(seed: int) -> None:
    scenario = random_scenario(seed)
    status, simulation = run_to_end(scenario)
    assert status == kernel.FINISHED, scenario.command()
    assert leaks(simulation) == [], scenario.command()


@pytest.mark.parametrize("network", ["flat", "star"])
def test_a_multicast_survives_the_loss_of_its_first_copies(network: str) -> None:
    """A copy can be lost in the very act of sending; the message must outlive it for the sake of the others."""
    lossy: dict[str, Any] = {"loss": 0.6, "repeat_ms": 5} if network == "flat" else {"queue_limit": 1, "repeat_ms": 5}
    scenario = Scenario(protocol="full_dist", members=9, network=network, rounds=3, seed=1, **lossy)
    status, simulation = run_to_end(scenario)
    assert status == kernel.FINISHED
    assert leaks(simulation) == []
    assert (simulation.group.stable == simulation.group.received.min(axis=0)).all()


@pytest.mark.parametrize("disturbance", [{"duplicate": 0.5}, {"reorder": 0.5, "reorder_ms": 5.0}])
def test_time_never_runs_backwards(disturbance: dict[str, Any]) -> None:
    trace = traced(protocol="coord", rounds=3, **SMALL, **disturbance)
    assert (np.diff(trace.events["time_ns"]) >= 0).all()


def test_duplicates_do_not_overtake() -> None:
    trace = traced(protocol="coord", members=12, network="random:degree=3", seed=2, rounds=3, duplicate=0.4)
    received = trace.events[trace.events["event"] == RECEIVE]
    for source in range(12):
        for to in range(12):
            numbers = received["message"][(received["peer"] == source) & (received["member"] == to)]
            assert (np.diff(numbers) >= 0).all()


@pytest.mark.parametrize("protocol", ["cascade", "dissemination"])
def test_more_rounds_than_there_is_room_for_write_no_other_memory(protocol: str) -> None:
    """The metrics get a part of a table of rounds; compiled code does not check an index by itself."""
    scenario = Scenario(
        protocol=protocol, members=6, network="flat", seed=1, rounds=300, messages=20, senders=1, rate=100, loss=0.2
    )
    simulation = build_simulation(scenario, network_of(scenario), tracing=False)
    table: Any = simulation.metrics.rounds
    part = simulation._replace(metrics=simulation.metrics._replace(rounds=table[:20]))
    assert runner(part)(10**12, 10**6) == kernel.FAILED
    assert part.world.scalars[0].error == ROUNDS_FULL
    assert (table[20:].done == 0).all()
    assert (table[20:].last_ns == -1).all()


@pytest.mark.parametrize("settings", [{}, {"loss": 0.1}, {"queue_limit": 6, "messages": 5, "rate": 500}])
@pytest.mark.parametrize("budget", [1, 7, 1000])
def test_pausing_changes_nothing(settings: dict[str, Any], budget: int) -> None:
    scenario = Scenario(protocol="cube_full_dist", rounds=3, **SMALL, **settings)
    (status, whole), (paused_status, paused) = run_to_end(scenario), run_to_end(scenario, budget=budget)
    assert status == paused_status == kernel.FINISHED
    for one, other in ((whole.world.scalars, paused.world.scalars), (whole.metrics.totals, paused.metrics.totals)):
        assert one.tobytes() == other.tobytes()
    assert whole.metrics.rounds.tobytes() == paused.metrics.rounds.tobytes()
    assert (whole.group.stable == paused.group.stable).all()


def test_a_long_run_looks_at_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two slices progress is reported and Ctrl-C is noticed: a slice has a bounded number of calls."""
    seen: list[Result] = []
    monkeypatch.setattr(simulate, "SLICE", 50)
    result = simulate.simulate("full_dist", members=12, network="star", rounds=4, progress=seen.append)
    calls = result.messages + 12
    assert len(seen) >= calls // 50 - 1
    assert all(one.messages <= other.messages for one, other in itertools.pairwise(seen))


def test_measuring_does_not_change_what_happens() -> None:
    for seed in range(60, 90):
        scenario = random_scenario(seed)
        status, with_metrics = run_to_end(dataclasses.replace(scenario, measure=True))
        other_status, without = run_to_end(dataclasses.replace(scenario, measure=False))
        assert status == other_status
        assert with_metrics.metrics.rounds.tobytes() == without.metrics.rounds.tobytes(), scenario.command()
        for name in ("now_ns", "hops", "data_hops", "drops", "packet_number"):
            assert with_metrics.world.scalars[0][name] == without.world.scalars[0][name], (name, scenario.command())


@pytest.mark.parametrize("protocol", ["full_dist", "cube_full_dist"])
def test_a_short_queue_drops_the_same_without_metrics(protocol: str) -> None:
    """Waiting packets of a link are counted for its limit, even if the queue is not sampled."""
    settings: dict[str, Any] = {"members": 16, "network": "star:bandwidth=2e6", "queue_limit": 5}
    scenario = Scenario(protocol=protocol, seed=3, repeat_ms=20, rounds=3, delta_ms=0.5, **settings)
    _, with_metrics = run_to_end(scenario)
    _, without = run_to_end(dataclasses.replace(scenario, measure=False))
    assert int(with_metrics.world.scalars[0].drops) == int(without.world.scalars[0].drops) > 20
    assert with_metrics.metrics.rounds.tobytes() == without.metrics.rounds.tobytes()


def test_every_copy_sent_is_received_or_dropped() -> None:
    crashes = (Fault(members=(3,), at_ns=0), Fault(members=(5,), at_ns=2_000_000))
    trace = traced(protocol="coord", rounds=4, crashes=crashes, **SMALL)
    events = trace.events
    ended = events[(events["event"] == RECEIVE) | (events["event"] == DROP)]
    sent = events["message"][events["event"] == SEND]
    assert len(np.unique(ended["message"])) == len(ended)
    assert set(ended["message"]) <= set(sent)
    late = set(sent) - set(ended["message"])
    last_ns = int(events["time_ns"][events["event"] == RECEIVE].max())
    sent_at = dict(zip(sent, events["time_ns"][events["event"] == SEND], strict=True))
    assert all(last_ns - sent_at[message] < 10_000_000 for message in late), "only what was under way at the end"
    assert trace.metrics["drops"] == (events["event"] == DROP).sum() > 0


def test_a_cut_off_member_drops_what_reaches_it() -> None:
    partition = Fault(members=(1,), at_ns=0, until_ns=30_000_000)
    trace = traced(network=wired((0, 1, 1000, 1e9)), protocol="coord", members=2, partitions=(partition,))
    drops = trace.events[trace.events["event"] == DROP]
    assert len(drops) == 2  # START at 0 and its repetition at 20 ms
    assert trace.metrics["drops"] == 2


def test_a_tree_multicast_needs_links() -> None:
    with pytest.raises(LocalProtocolError, match="multicast = tree on network flat: it has no links, choose copies"):
        simulate.simulate("coord", members=4, network="flat", multicast="tree")


def test_a_run_out_of_time_says_so_and_how_to_replay_it() -> None:
    with pytest.raises(SimulationError, match="seed 4: 1 ms of simulated time are over but round 1 of coord"):
        simulate.simulate("coord", until_ms=1.0, rounds=9, **SMALL)


def test_a_duplicate_at_the_end_of_all_events_does_not_look_like_the_end_of_time() -> None:
    trace = traced(network=wired((0, 1, 1000, 1e9)), protocol="full_dist", members=2, duplicate=0.9, rounds=2, seed=1)
    assert trace.metrics["rounds"] == 2


def test_too_few_packets_end_the_run_with_a_clear_error() -> None:
    with pytest.raises(SimulationError, match="more packets in flight than packets_max = 5; raise it"):
        simulate.simulate("full_dist", packets_max=5, **SMALL)


def test_a_copy_too_far_in_the_future_ends_the_run_also_when_it_waits_behind_another() -> None:
    """Of the two STARTs on the one edge from node 0, the first arrives just within the clock."""
    clock_ns = 1 << 59  # keys of the four directed links leave that much
    slow = 8 * 32 * 1e9 / (0.6 * clock_ns)  # bit/s: 32 B take 0.6 of it
    network = wired((0, 1, 1000, slow), (1, 2, 1000, 1e9))
    with pytest.raises(SimulationError, match="simulated time overflows"):
        traced(network=network, protocol="coord", members=3)


def test_what_would_come_after_the_end_is_no_part_of_the_run() -> None:
    """A crash an hour later neither lengthens the run nor thins out its averages."""
    settings: dict[str, Any] = {"protocol": "coord", "messages": 20, "rate": 500, **SMALL}
    late = Fault(members=(7,), at_ns=3_600_000_000_000)
    one, other = traced(**settings).metrics, traced(crashes=(late,), **settings).metrics
    for name in ("simulated_ms", "buffer_mean", "load_mean", "rtt_last_ms", "tts_last_ms"):
        assert one[name] == other[name], name


def test_time_is_over_while_packets_still_fly() -> None:
    whole = simulate.simulate("coord", members=6, network="chain", seed=1)
    with pytest.raises(SimulationError, match=r"0\.001 ms of simulated time are over"):
        simulate.simulate("coord", members=6, network="chain", seed=1, until_ms=0.001)
    assert (
        simulate.simulate("coord", members=6, network="chain", seed=1, until_ms=whole.rtt_last_ms + 1).hops
        == whole.hops
    )
