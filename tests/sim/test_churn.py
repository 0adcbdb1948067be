"""Groups with views in the packet-level simulator: every promise is kept, and broken agreement is caught."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cubecast.cli.app import run as run_command
from cubecast.errors import LocalProtocolError, SimulationError
from cubecast.lab.experiments import experiment_named
from cubecast.lab.load_plan import load_plan
from cubecast.lab.runs import runs_of
from cubecast.networks.spec import build_network
from cubecast.protocol.mail import HEADER_BYTES
from cubecast.protocols.membership.messages import (
    Accept,
    Accepted,
    ChangeReport,
    Decide,
    Flush,
    Flushed,
    Gone,
    Join,
    Message,
    Missing,
    Prepare,
    Present,
    Probe,
    Promise,
    Proposal,
    Pull,
    Refusal,
)
from cubecast.protocols.membership.views import MemberId, founding_view, next_view
from cubecast.sim.faults import Fault, parse_fault
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario, simulate, trace_scenario
from cubecast.sim.views.group import SimulatedGroup
from cubecast.sim.views.simulated_member import SimulatedMember
from cubecast.sim.views.sizes import size_of
from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace, read_trace
from cubecast.trace.schema import CRASH, EXCLUDED, INSTALL, LEAVE, MULTICAST, RESTORE, SENT
from cubecast.wire.membership import encode_message
from tests.sim.churn_runs import DATA, STABILITY, broken_promises, random_churn
from tests.support.scenarios import shared_scenario

ROOT = Path(__file__).parents[2]
SMALL: dict[str, Any] = {
    "members": 6,
    "network": "random:degree=3",
    "churn_per_s": 0.0,
    "churn_ms": 600.0,
    "rate": 30.0,
    "until_ms": 30_000.0,
    "packets_max": 1 << 16,
}


def traced(protocol: str = "timestamp", **settings: Any) -> Trace:
    scenario = shared_scenario(protocol=protocol, **SMALL | settings)
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    return trace_scenario(scenario, network)


def members_with(trace: Trace, event: int) -> list[int]:
    return sorted(set(trace.events["member"][trace.events["event"] == event].tolist()))


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_random_runs_keep_every_promise(first: int) -> None:
    found = [line for seed in range(first, first + 20) for line in broken_promises(random_churn(seed))]
    assert not found, "\n".join(found)


@pytest.mark.parametrize("loss", [0.0, 0.01, 0.05])
@pytest.mark.parametrize("data", DATA)
def test_every_data_protocol_survives_churn_and_loss(data: str, loss: float) -> None:
    trace = traced(
        data, loss=loss, churn_per_s=6.0, churn_ms=1000.0, partitions=(parse_fault("5@300ms-400ms", what=""),)
    )
    assert check_all(trace).ok
    assert trace.metrics["views"] > 2


@pytest.mark.parametrize("stability", STABILITY)
def test_every_stability_protocol_finds_all_messages_stable(stability: str) -> None:
    trace = traced(stability, data="tree", churn_per_s=4.0, churn_ms=1000.0, step_s=0.01)
    assert check_all(trace).ok
    assert trace.metrics["stable_p50_ms"] > 0


def test_a_crash_during_a_change_joins_it_or_follows_it() -> None:
    """Member 5 leaves; 1.5 ms later, while the others have promised, the coordinator crashes."""
    crash = (Fault(members=(0,), at_ns=121_500_000),)
    trace = traced(leaves=(Fault(members=(5,), at_ns=100_000_000),), crashes=crash, network="flat:delay=1ms")
    assert check_all(trace).ok
    assert members_with(trace, LEAVE) == [5]
    assert members_with(trace, CRASH) == [0]
    last = trace.events[trace.events["event"] == INSTALL][-1]
    assert last["sequence"] == 4


def test_members_that_crash_together_are_excluded_together() -> None:
    trace = traced(members=9, crashes=(Fault(members=(3, 4, 7), at_ns=200_000_000),))
    assert check_all(trace).ok
    assert trace.metrics["views"] == 2


def test_a_crashed_process_returns_as_a_new_member_with_the_groups_state() -> None:
    trace = traced(crashes=(parse_fault("2@200ms-400ms", what=""),))
    assert check_all(trace).ok
    assert members_with(trace, CRASH) == [2]
    assert members_with(trace, RESTORE) == [6]
    assert trace.scenario["names"][6] == [2, 1]


def test_a_minority_that_is_cut_off_is_excluded_and_comes_back() -> None:
    trace = traced(partitions=(parse_fault("4-5@100ms-500ms", what=""),), churn_ms=1000.0)
    assert check_all(trace).ok
    assert members_with(trace, EXCLUDED) == [4, 5]
    assert trace.metrics["excluded_wrongly"] == 2
    last = trace.events[trace.events["event"] == INSTALL][-1]
    assert last["sequence"] == 6


def test_what_is_multicast_during_a_change_follows_in_order() -> None:
    trace = traced(crashes=(Fault(members=(5,), at_ns=200_000_000),), rate=500.0, network="flat:delay=3ms")
    assert check_all(trace).ok
    late = trace.events[trace.events["event"] == SENT]["time_ns"].max()
    assert trace.metrics["pause_p50_ms"] > 1
    assert (trace.events["event"] == MULTICAST).sum() == (trace.events["event"] == SENT).sum()
    assert late > 200_000_000


def test_a_group_without_changes_is_never_paused() -> None:
    result = simulate("overlay", **SMALL)
    assert (result.changes, result.views, result.paused_share, result.pause_p50_ms) == (0, 1, 0.0, None)
    assert result.membership_bytes == 0


def test_a_run_that_loses_its_quorum_says_so() -> None:
    with pytest.raises(SimulationError, match=r"too few members are left for a quorum.*replay: cubecast simulate"):
        simulate("overlay", crashes=(Fault(members=(0, 1, 2), at_ns=0),), **SMALL | {"until_ms": 3000.0})


# Broken agreement is caught.


def caught(seeds: int = 60) -> bool:
    """Does one of the first seeds find something wrong?"""
    return any(broken_promises(random_churn(seed)) for seed in range(seeds))


def test_a_member_that_goes_on_delivering_after_its_promise_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedGroup, "freeze", lambda self, one: None)
    assert caught()


def test_a_flush_that_recovers_nothing_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedMember, "lacks", lambda self, cut: False)
    monkeypatch.setattr(SimulatedMember, "recovered_up_to", lambda self, cut: [])
    assert caught()


def test_deliveries_beyond_the_cut_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubecast.protocols.membership.propose.Proposer.cut", _lowest_cut)
    assert caught()


def _lowest_cut(proposer: Any) -> tuple[int, ...]:
    vectors = [promise.delivered for promise in proposer.promises.values()]
    return tuple(min(column) for column in zip(*vectors, strict=True))


def test_two_sides_that_both_decide_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubecast.protocols.membership.propose.is_quorum", lambda *_: True)
    assert caught()


def test_recovery_in_another_order_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SimulatedGroup, "end_view", _reversed_end_view(SimulatedGroup.end_view))
    assert caught(200)


def _reversed_end_view(honest: Any) -> Any:
    def end_view(self: SimulatedGroup, one: SimulatedMember, cut: tuple[int, ...]) -> None:
        order = one.stack.tables.order
        order *= -1
        honest(self, one, cut)
        order *= -1

    return end_view


# One seed, one result; what is counted.

PROGRAM = """
import hashlib, json, sys
from tests.sim.churn_runs import random_churn
from tests.sim.runs import network_of
from cubecast.sim.simulate import trace_scenario
found = []
for seed in map(int, sys.argv[1:]):
    scenario = random_churn(seed)
    trace = trace_scenario(scenario, network_of(scenario))
    columns = b"".join(trace.events[name].tobytes() for name in trace.events.dtype.names)
    found.append(hashlib.sha256(columns).hexdigest())
print(json.dumps(found))
"""
SEEDS = [seed for seed in range(60) if random_churn(seed).members <= 5 and random_churn(seed).churn_ms <= 1000][:5]


def test_compiled_and_plain_runs_give_the_same_bits() -> None:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM, *map(str, SEEDS)],
        env={**os.environ, "PYTHONPATH": paths, "CUBECAST_JIT": "off"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    here = []
    for seed in SEEDS:
        scenario = random_churn(seed)
        network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
        events = trace_scenario(scenario, network).events
        columns = b"".join(events[name].tobytes() for name in events.dtype.names or ())
        here.append(hashlib.sha256(columns).hexdigest())
    assert here == json.loads(ran.stdout)


def test_a_trace_changes_no_metric_and_is_judged_from_its_file(tmp_path: Path) -> None:
    scenario = random_churn(2)
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    alone = run_scenario(scenario, network).to_dict()
    result = run_scenario(scenario, network, trace=tmp_path / "run.parquet").to_dict()
    for name in ("wall_seconds", "packet_hops_per_second", "rtt_first_ms", "rtt_last_ms"):
        del alone[name], result[name]
    assert alone == result
    assert check_all(read_trace(tmp_path / "run.parquet")).ok


def _messages(members: int) -> list[Message]:
    everybody = [MemberId(f"10.20.30.{rank:02}:7000", 1) for rank in range(members)]
    first = founding_view(everybody)
    cut, far = tuple(range(300, 300 + members)), (0, 70_000, *range(members - 2))
    view = next_view(first, set(everybody[2:]), [MemberId("10.20.31.01:7000", 1)], cut, {everybody[0]})
    proposal = Proposal(view, cut)
    here, ballot = first.id, (3, 1)
    return [
        Join(here, everybody[3]),
        ChangeReport(here, 1 << members - 1, 0, tuple(everybody[:2]), leaves=True, renews=False),
        Prepare(here, ballot),
        Promise(here, ballot, far, ballot, proposal, everybody[2], ready=True, leaves=False),
        Promise(here, ballot, (0,) * members, ballot, None, everybody[2], ready=True, leaves=False),
        Refusal(here, ballot),
        Flush(here, ballot, cut, (0,) * (members - 1) + (9,)),
        Flushed(here, ballot),
        Pull(here, ballot, cut, far),
        Accept(here, ballot, proposal),
        Accepted(here, ballot),
        Decide(here, proposal),
        Gone(here),
        Probe(here),
        Present(here),
    ]


@pytest.mark.parametrize("message", _messages(40), ids=lambda message: type(message).__name__)
def test_bytes_are_counted_as_the_wire_writes_them(message: Message) -> None:
    base = founding_view([MemberId(f"10.20.30.{rank:02}:7000", 1) for rank in range(40)])
    for view in (None, base):
        assert size_of(message, 0, view) == HEADER_BYTES + len(encode_message(message, view))


def test_recovered_messages_count_their_records() -> None:
    records = np.array([0, 3, 5, 2, 9, 9], np.int32).tobytes()
    message = Missing(founding_view([MemberId("a", 1)]).id, records)
    assert size_of(message, 132) - size_of(message, 0) == 4 * 132


# Settings, command line, study.


@pytest.mark.parametrize(
    ("wrong", "complaint"),
    [
        ({"churn_per_s": -1.0}, "churn_per_s = -1"),
        ({"churn_mix": "join=1,die=2"}, "churn_mix"),
        ({"churn_mix": "join=0"}, "not all of them 0"),
        ({"churn_ms": 0.0}, "churn_ms = 0"),
        ({"members": 2}, "members = 2"),
        ({"messages": 5}, "messages under churn"),
        ({"duplicate": 0.1}, "duplicate under churn"),
        ({"stability": "tree"}, "stability = 'tree'"),
        ({"protocol": "coord", "data": "pc_overlay"}, "data = 'pc_overlay'"),
        ({"protocol": "plumtree"}, "data = 'plumtree'"),
        ({"state_bytes": -1}, "state_bytes = -1"),
        ({"churn_per_s": None, "stability": "coord"}, "churn_ms = 600.0 without churn"),
    ],
)
def test_settings_that_make_no_sense_are_refused(wrong: dict[str, Any], complaint: str) -> None:
    with pytest.raises(LocalProtocolError, match=complaint):
        Scenario(**{"protocol": "overlay"} | SMALL | wrong)


def test_the_command_simulates_churn_and_its_replay_is_the_same_run(capsys: pytest.CaptureFixture[str]) -> None:
    words = "simulate tree -n 5 --churn 4 --churn-ms 800 --rate 20 --stability coord --loss 0.01 --json --check"
    assert run_command(words.split()) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["views"] > 1
    assert said["check"]["ok"]
    assert run_command([*words.replace("--json --check", "").split()]) == 0
    assert "paused by view changes" in capsys.readouterr().out
    scenario = Scenario(protocol="tree", members=5, churn_per_s=4.0, churn_ms=800.0, rate=20.0, stability="coord")
    assert "--churn 4.0 " in scenario.command()


def test_the_study_of_churn_loads_and_runs() -> None:
    plan = load_plan(ROOT / "plans" / "own-churn.toml")
    assert not plan.missing
    run = next(iter(runs_of(plan, "quick")))
    metrics = experiment_named("simulate").run(run.settings | {"churn_ms": 500.0})
    assert {"paused_share", "stable_p50_ms", "membership_bytes_per_member_s"} <= set(metrics)
