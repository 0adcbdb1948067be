"""Senders that share sequences while data flows (guo ch. 7): one entry per sequence, and total order with one."""

from __future__ import annotations

from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate, trace_scenario
from cubecast.trace.checkers import check_all
from cubecast.trace.schema import DELIVER, STABLE
from tests.sim.runs import network_of

MEMBERS, SENDERS, MESSAGES = 10, 7, 12
FLOW: dict[str, Any] = {
    "members": MEMBERS,
    "senders": SENDERS,
    "network": "random:degree=3",
    "messages": MESSAGES,
    "rate": 200.0,
    "delta_ms": 5.0,
    "transport": "sequenced",
}
LOSSY: dict[str, Any] = {"loss": 0.1, "duplicate": 0.05, "reorder": 0.05}
STABILITY = [protocol.name for protocol in list_protocols("stability")]


def scenario(protocol: str = "coord", **settings: Any) -> Scenario:
    return Scenario.of(protocol, **FLOW | settings)


def deliveries(wanted: Scenario) -> tuple[list[list[tuple[int, int]]], list[str]]:
    """What each member delivered, in order, and what the checkers say."""
    trace = trace_scenario(wanted, network_of(wanted))
    found: list[list[tuple[int, int]]] = [[] for _ in range(wanted.members)]
    for row in trace.events[trace.events["event"] == DELIVER]:
        found[int(row["member"])].append((int(row["sender"]), int(row["sequence"])))
    return found, [str(one) for one in check_all(trace).violations]


@pytest.mark.parametrize("faults", [{}, LOSSY], ids=["lossless", "lossy"])
@pytest.mark.parametrize("sequences", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_every_message_of_every_sender_becomes_stable_everywhere(seed: int, sequences: int, faults: Any) -> None:
    wanted = scenario(sequences=sequences, seed=seed, **faults)
    found, complaints = deliveries(wanted)
    assert complaints == []
    for delivered in found:
        assert len(delivered) == SENDERS * MESSAGES
        for sequence in range(sequences):
            sharing = len(range(sequence, SENDERS, sequences))
            assert [number for one, number in delivered if one == sequence] == list(range(1, sharing * MESSAGES + 1))


@pytest.mark.parametrize("seed", range(4))
def test_one_sequence_is_a_total_order(seed: int) -> None:
    found, complaints = deliveries(scenario(sequences=1, seed=seed, **LOSSY))
    assert complaints == []
    assert all(delivered == found[0] for delivered in found)


@pytest.mark.parametrize("protocol", STABILITY)
def test_every_stability_protocol_sends_shorter_arrays(protocol: str) -> None:
    settings = FLOW | {"seed": 2, "messages": 4}
    alone = simulate(protocol, **settings)
    sharing = simulate(protocol, **settings, sequences=1)
    assert sharing.bytes / sharing.messages < alone.bytes / alone.messages
    assert sharing.delivered_share == alone.delivered_share == 1.0
    assert sharing.tts_first_ms is not None


def test_the_time_to_stable_counts_from_the_senders_multicast() -> None:
    """Over links of 10 ms: to the sequencer, to all, and the two steps of a round that began at once."""
    found = simulate("coord", **FLOW | {"network": "flat:delay=10ms", "delta_ms": 0.0, "messages": 3}, sequences=1)
    assert found.delay_mean_ms is not None
    assert found.delay_max_ms == pytest.approx(20.0)
    assert 10.0 < found.delay_mean_ms < 20.0, "the sequencer's own messages take one hop"
    assert found.tts_max_ms is not None
    assert found.tts_max_ms >= 20.0 + 10.0


def test_members_learn_what_exists_of_shared_sequences_too() -> None:
    wanted = scenario("cube_full_dist", sequences=2, goal="errors", loss=0.1, seed=3)
    trace = trace_scenario(wanted, network_of(wanted))
    assert check_all(trace).ok
    known = trace.events[trace.events["event"] == STABLE]
    most = {sequence: int(known["sequence"][known["sender"] == sequence].max()) for sequence in range(2)}
    assert most == {0: 4 * MESSAGES, 1: 3 * MESSAGES}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"transport": "nak"}, "transport = sequenced"),
        ({"transport": "auto"}, "transport = sequenced"),
        ({"crashes": "3@2ms"}, "drop crashes"),
        ({"crashes": "0@2ms"}, "drop crashes"),
        ({"crashes": "0@2ms-5ms"}, "drop crashes"),
        ({"leaves": "0@2ms"}, "drop leaves"),
        ({"suspicions": "0@2ms"}, "drop suspicions"),
        ({"joins": "9@2ms"}, "drop joins"),
        ({"deliver": "stable"}, "drop deliver"),
        ({"buffer_messages": 4}, "drop buffer_messages"),
        ({"piggyback_control": True}, "drop piggyback_control"),
    ],
)
def test_what_cannot_be_with_shared_sequences_is_refused(settings: dict[str, Any], said: str) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        simulate("coord", **FLOW | {"sequences": 2} | settings)
