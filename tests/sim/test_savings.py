"""The savings of guo ch. 7, and error detection, in whole runs: what they change in bytes, messages and TPR.

With a saving the same S comes out; every checker stays on. That each safeguard bites is shown by savings broken on
purpose (`broken_savings`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.models.complexity import GroupSize, round_cost
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim import kernel
from cubecast.sim.build import Simulation
from cubecast.sim.faults import parse_fault
from cubecast.sim.result import Result, collect
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate, trace_scenario
from cubecast.trace.checkers import check_all
from tests.oracles.tree_hops import EXACT_PROTOCOLS
from tests.sim.plain_python import output_of
from tests.sim.runs import leaks, network_of, run_to_end

STABILITY = [protocol.name for protocol in list_protocols("stability")]
MEMBERS, SENDERS = 18, 9
DATA: dict[str, Any] = {"messages": 30, "rate": 200.0, "rounds": 1}
INTERVAL_MS = 1e3 / 200


def scenario(protocol: str, **settings: Any) -> Scenario:
    usual: dict[str, Any] = {
        "members": MEMBERS,
        "senders": SENDERS,
        "network": "random:degree=4",
        "seed": 3,
        "rounds": 4,
    }
    return Scenario.of(protocol, **usual | settings)


def run(wanted: Scenario) -> tuple[Result, Simulation]:
    status, simulation = run_to_end(wanted)
    assert status == kernel.FINISHED
    return collect(wanted, network_of(wanted), simulation, 1.0), simulation


def complaints(wanted: Scenario) -> list[str]:
    return [str(one) for one in check_all(trace_scenario(wanted, network_of(wanted))).violations]


# Changed entries only


@pytest.mark.parametrize("protocol", STABILITY)
def test_changed_entries_alone_tell_the_same_in_fewer_bytes(protocol: str) -> None:
    plain, before = run(scenario(protocol))
    saving, after = run(scenario(protocol, changed_only=True))
    assert np.array_equal(before.group.stable, after.group.stable)
    assert saving.bytes < plain.bytes
    if protocol not in ("gossip", "s_gossip", "cube_full_dist"):  # in these, time decides what is sent
        assert saving.messages == plain.messages
        assert saving.rtt_last_ms <= plain.rtt_last_ms
    assert complaints(scenario(protocol, changed_only=True)) == []


@pytest.mark.parametrize("protocol", STABILITY)
def test_changed_entries_alone_make_data_stable_too(protocol: str) -> None:
    wanted = scenario(protocol, changed_only=True, **DATA)
    _, simulation = run(wanted)
    assert (simulation.group.stable == DATA["messages"]).all()
    assert complaints(wanted) == []


def test_an_entry_that_did_not_change_costs_one_bit() -> None:
    """Coord: from the second round on an ACK carries what is beyond S, and INFO, since R stays, nothing new."""
    _, simulation = run(scenario("coord"))
    received, stable = simulation.group.received[1:], simulation.group.stable[0]
    rounds, bitmap = 4, -(-SENDERS // 8)
    whole = 32 + 4 * SENDERS
    shorter = np.minimum(4 * SENDERS, bitmap + 4 * (received != stable).sum(axis=1))
    ack = int((32 + shorter).sum())
    info = 32 + bitmap
    others = MEMBERS - 1
    first_round = others * (32 + whole + whole)
    wanted = first_round + (rounds - 1) * (others * 32 + ack + others * info)
    assert run(scenario("coord", changed_only=True))[0].bytes == wanted


def test_piggybacked_s_is_never_left_out() -> None:
    wanted = scenario("gossip", ending="piggyback", changed_only=True)
    plain, before = run(scenario("gossip", ending="piggyback"))
    saving, after = run(wanted)
    assert np.array_equal(before.group.stable, after.group.stable)
    assert saving.bytes / saving.messages < plain.bytes / plain.messages
    assert complaints(wanted) == []


# Shared sequences, total order


@pytest.mark.parametrize("protocol", EXACT_PROTOCOLS)
@pytest.mark.parametrize("sequences", [1, 4])
def test_senders_that_share_sequences_send_shorter_arrays(protocol: str, sequences: int) -> None:
    """Under total order there is one: 4 bytes a member instead of 4·m."""
    network = "wan-tree"
    plain, _ = run(scenario(protocol, rounds=1, network=network))
    sharing, _ = run(scenario(protocol, rounds=1, network=network, sequences=sequences))
    cost = round_cost(protocol, GroupSize(members=MEMBERS, senders=sequences))
    assert (sharing.messages, sharing.bytes) == (plain.messages, cost.copied_bytes)
    assert sharing.bytes < plain.bytes
    assert sharing.rtt_first_ms < plain.rtt_first_ms


# Riding on data


@pytest.mark.parametrize("protocol", STABILITY)
def test_control_messages_ride_on_data(protocol: str) -> None:
    """Fewer messages; every step of a round waits at most for the next data message."""
    wanted = scenario(protocol, **DATA, senders=MEMBERS, piggyback_control=True)
    plain, _ = run(replace(wanted, piggyback_control=False))
    piggybacks, simulation = run(wanted)
    assert plain.piggybacked == 0 < piggybacks.piggybacked
    assert piggybacks.messages / piggybacks.rounds < 0.8 * plain.messages / plain.rounds
    assert piggybacks.data_messages == plain.data_messages
    assert (simulation.group.stable == DATA["messages"]).all()
    assert complaints(wanted) == []


def test_a_piggybacked_message_saves_its_header_and_waits_for_data() -> None:
    """All three steps of Coord's first round ride, where everyone is about to send."""
    wanted = scenario("coord", **DATA, senders=MEMBERS, piggyback_control=True)
    plain, piggybacks = run(replace(wanted, piggyback_control=False))[0], run(wanted)[0]
    assert plain.per_round[0].rtt_last_ms < piggybacks.per_round[0].rtt_last_ms
    assert piggybacks.per_round[0].rtt_last_ms < plain.per_round[0].rtt_last_ms + 3 * INTERVAL_MS
    array = 4 * MEMBERS
    carried = piggybacks.data_bytes - plain.data_bytes
    # START has no array; every copy of a data message carries the piggybacked.
    assert carried % ((MEMBERS - 1) * array) == 0
    assert 0 < carried < piggybacks.piggybacked * (MEMBERS - 1) * array


@pytest.mark.parametrize("protocol", STABILITY)
def test_piggybacked_messages_are_lost_with_their_data_and_come_again(protocol: str) -> None:
    """Crashes too, of a sender with piggyback among them."""
    crash = parse_fault("0@31ms", what="crash")
    assert (
        complaints(scenario(protocol, **DATA, piggyback_control=True, loss=0.1, duplicate=0.05, crashes=(crash,))) == []
    )


@pytest.mark.parametrize("loss", [0.0, 0.1])
def test_piggybacked_messages_are_given_back(loss: float) -> None:
    wanted = scenario("gossip", **DATA, subset=2, piggyback_control=True, loss=loss, duplicate=loss)
    _, simulation = run(wanted)
    waiting: set[int] = set()
    for first in simulation.metrics.members.pending:
        slot = int(first)
        while slot > 0:
            waiting.add(slot)
            slot = int(simulation.world.piggyback[slot])
    free = simulation.mail.free[: int(simulation.mail.counts[2])].tolist()
    assert sorted([*free, *waiting]) == list(range(1, int(simulation.mail.counts[3])))
    assert [one for one in leaks(simulation) if not one.startswith("messages free")] == []


# Error detection


@pytest.mark.parametrize("protocol", STABILITY)
def test_everybody_finds_out_what_it_has_missed(protocol: str) -> None:
    """guo ch. 7: max in place of min, on the highest number seen."""
    wanted = scenario(protocol, goal="errors", rounds=2)
    result, simulation = run(wanted)
    seen = simulation.group.received
    assert (simulation.group.stable == seen.max(axis=0)).all()
    assert result.missed == int((seen.max(axis=0) - seen).sum()) > 0
    assert complaints(wanted) == []


def test_error_detection_costs_what_stability_detection_costs() -> None:
    errors, stability = run(scenario("train", goal="errors"))[0], run(scenario("train"))[0]
    assert stability.missed is None
    assert (errors.messages, errors.bytes, errors.rtt_last_ms) == (
        stability.messages,
        stability.bytes,
        stability.rtt_last_ms,
    )


def test_what_anybody_has_seen_is_not_called_stable() -> None:
    """The checker excuses such a run, and would catch one that pretends to detect stability."""
    wanted = scenario("coord", goal="errors")
    trace = trace_scenario(wanted, network_of(wanted))
    assert check_all(trace).ok
    trace.scenario["goal"] = "stability"
    assert {one.checker for one in check_all(trace).violations} == {"no premature stability"}


# Safeguards


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"sequences": 0}, "sequences = 0"),
        ({"sequences": SENDERS + 1}, "choose from 1 to the 9 senders"),
        ({"sequences": 2, "messages": 3}, "needs a transport that numbers them"),
        ({"goal": "errors", "messages": 3, "buffer_messages": 2}, "releases no messages"),
        ({"goal": "errors", "messages": 3, "trigger": "buffer"}, "releases no messages"),
        ({"goal": "errors", "messages": 3, "deliver": "stable"}, "releases no messages"),
        ({"goal": "max"}, "choose stability or errors"),
        ({"piggyback_control": True}, "piggyback_control without data"),
        ({"changed_only": True, "loss": 0.1}, "drop loss"),
        ({"changed_only": True, "reorder": 0.1}, "drop loss, reorder"),
        ({"changed_only": True, "network": "flat:delay=exp:1ms"}, "needs FIFO links"),
    ],
)
def test_a_saving_that_would_not_work_is_refused(settings: dict[str, Any], said: str) -> None:
    usual: dict[str, Any] = {"members": MEMBERS, "senders": SENDERS, "network": "random:degree=4"}
    with pytest.raises(LocalProtocolError, match=said):
        simulate("coord", **usual | settings)


@pytest.fixture(scope="module")
def noticed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    found: dict[str, list[str]] = output_of("tests.sim.broken_savings", tmp_path_factory)
    return found


@pytest.mark.parametrize(
    ("what", "by"),
    [
        ("nothing left out", []),
        ("what is left out is taken for received", ["no premature stability"]),
        ("nothing is piggybacked wrongly", []),
        ("piggyback are not read", ["every round ends"]),
        ("full buffers", []),
        ("nobody flushes", ["every round ends"]),
    ],
)
def test_broken_savings_are_noticed(noticed: dict[str, list[str]], what: str, by: list[str]) -> None:
    assert noticed[what] == by


def test_piggybacked_messages_are_read_in_the_order_they_were_sent_by_those_they_are_for(
    noticed: dict[str, list[int]],
) -> None:
    assert noticed["piggyback in order"] == [1, 3, 4]
