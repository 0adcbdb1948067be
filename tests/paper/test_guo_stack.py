"""The whole stack of guo's dissertation: reliable multicast (ch. 2), TTS (§5.2) and the trigger (ch. 6), simulated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.choose_trigger import choose_trigger
from cubecast.networks.spec import build_network
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.result import Result
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_scenario, simulate, trace_scenario
from tests.oracles.time_to_stable import read_times

TRANSPORTS = [one.name for one in list_protocols("transport")]
MEMBERS, SENDERS, MESSAGES = 12, 3, 40


def stack(transport: str = "nak", **settings: Any) -> Scenario:
    usual: dict[str, Any] = {
        "protocol": "coord",
        "members": MEMBERS,
        "senders": SENDERS,
        "network": "random:degree=3",
        "messages": MESSAGES,
        "rate": 200.0,
        "transport": transport,
        "seed": 4,
    }
    return Scenario.of(**usual | settings)


def run(scenario: Scenario) -> Result:
    return run_scenario(scenario, build_network(scenario.network, members=scenario.members, seed=scenario.seed))


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_message_is_stable_at_most_delivery_and_a_wait_and_a_round_after_it_was_sent(
    transport: str, loss: float
) -> None:
    """Delivered everywhere within D, a round every F, known within TPR: TTS is at most D + F + TPR (guo §5.2)."""
    scenario = stack(transport, loss=loss)
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    times = read_times(trace_scenario(scenario, network))
    assert len(times.tts) == SENDERS * MESSAGES
    assert max(times.tts.values()) <= times.delivery_max + times.between_rounds_max + times.round_max
    assert all(times.tts[message] <= bound for message, bound in times.own_bound.items())


def test_every_receiver_acknowledges_every_message_where_the_sender_is_responsible() -> None:
    """ACK implosion: the sender processes an ACK of every receiver for each message (guo §2.1.1)."""
    result = run(stack("ack"))
    acks = SENDERS * MESSAGES * (MEMBERS - 1)
    assert result.overhead_messages >= acks
    assert (result.overhead_messages - acks) % (MEMBERS - 1) == 0  # announcements of a release are multicasts


@pytest.mark.parametrize("transport", ["nak", "nak_multicast", "srm"])
def test_receivers_send_nothing_where_nothing_is_lost(transport: str) -> None:
    """In receiver-initiated protocols receivers need not return status reports or acknowledgments (guo §2.1.2)."""
    result = run(stack(transport))
    assert result.overhead_messages == 0
    assert result.duplicates == 0
    assert result.data_messages == SENDERS * MESSAGES * (MEMBERS - 1)


def test_fewer_acknowledgements_with_partitions_and_fewer_still_reach_the_sender_of_a_hierarchy() -> None:
    """The hybrid ACKs partitions (guo §2.1.3); a hierarchy reduces the ACKs collected by the sender (§2.1.4)."""
    every, partitions = run(stack("ack")), run(stack("hybrid"))
    assert partitions.overhead_messages < every.overhead_messages / 4
    assert run(stack("hierarchical")).overhead_messages < every.overhead_messages / 4


def test_a_repair_for_everybody_brings_duplicates_and_one_for_the_asker_hardly_any() -> None:
    """r1 ignores the message since it is a duplicate (guo Fig 2.3)."""
    for_all, for_one = (run(stack("nak", loss=0.03, transport_repair=repair)) for repair in ("multicast", "unicast"))
    assert for_all.duplicates > 5 * for_one.duplicates
    assert for_all.data_messages > for_one.data_messages


def test_a_buffer_is_full_after_b_over_r_k() -> None:
    """After B/(r·k) seconds the buffer of a sender is full (guo §2.2); with no round before, it stops there."""
    scenario = stack(buffer_messages=20, delta_ms=10_000.0, series_ms=5.0, rounds=1, senders=1, rate=100.0)
    result = run(scenario)
    held = [mean * 1 for mean in result.buffer_series]
    full_ms = 20 / 100 * 1e3
    before = [value for k, value in enumerate(held) if 5 * k < full_ms - 20]
    after = [value for k, value in enumerate(held) if full_ms + 20 < 5 * k < 5_000]
    assert max(before) < 20
    assert set(after) == {20.0}
    assert result.overflows >= 1


TRIGGERED = [
    {"buffer_messages": 40, "rate": 400.0},
    {"buffer_messages": 200, "rate": 200.0, "loss": 0.02},
    {"buffer_messages": 30, "rate": 400.0, "network": "flat:delay=0.2-3ms"},
]


@pytest.mark.parametrize("case", TRIGGERED, ids=["reliable", "lossy", "no links"])
@pytest.mark.parametrize("protocol", ["coord", "cube_full_dist"])
def test_with_x_no_buffer_overflows_and_without_it_they_do(protocol: str, case: dict[str, Any]) -> None:
    """X is chosen so that stable messages are released before buffers overflow (guo ch. 6)."""
    scenario = stack(protocol=protocol, **case | {"messages": 250})
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    with_x = replace(scenario, trigger="buffer", trigger_messages=choose_trigger(scenario, network).level_messages)
    assert 0 < with_x.trigger_messages < scenario.buffer_messages
    result = run_scenario(with_x, network)
    assert (result.overflows, result.input_overflows, result.blocked_ms) == (0, 0, 0.0)
    # "If X is too large, group members will constantly be forced to stop sending data messages."
    careless = run_scenario(replace(with_x, trigger_messages=scenario.buffer_messages), network)
    assert careless.overflows > 0
    assert careless.blocked_ms > 0
    # "If X is too small, the stability detection protocol will be triggered too often."
    hasty = run_scenario(replace(with_x, trigger_messages=with_x.trigger_messages // 4), network)
    assert hasty.rounds > result.rounds
    assert hasty.overflows == 0


def test_a_group_for_which_no_x_exists_is_told_so() -> None:
    """2·r·f ≤ g is needed (guo ch. 6)."""
    scenario = stack(buffer_messages=4, rate=400.0)
    network = build_network(scenario.network, members=scenario.members, seed=scenario.seed)
    with pytest.raises(LocalProtocolError, match="do not fit a buffer of 4: take a buffer of"):
        choose_trigger(scenario, network)


def test_rounds_go_on_after_the_last_message_although_the_buffer_never_fills_again() -> None:
    result = simulate(
        "coord", members=6, senders=2, network="star", messages=5, trigger="buffer", trigger_messages=50, rounds=4
    )
    assert result.rounds >= 4
    assert result.tts_first_ms is not None
