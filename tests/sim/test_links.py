"""Physics by hand: every time below was computed on paper from sizes, bandwidths and delays.

Sizes: START 32 B, ACK and INFO 32 + 4m B. `MICRO` is a bandwidth at which a byte takes a microsecond.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from cubecast.networks.network import NodeCosts
from cubecast.networks.spec import build_network
from cubecast.networks.wan_tree import COSTS
from cubecast.sim.faults import Fault
from cubecast.sim.scenario import Scenario
from cubecast.trace.files import Trace
from cubecast.trace.schema import CRASH, DELIVER, DONE, DROP, EVERYONE, HOP, RECEIVE, ROUND, SEND, STABLE
from tests.sim.runs import network_of, traced, wired

MICRO = 8e6  # bit/s
PAIR = wired((0, 1, 5_000, MICRO))
ROW = wired((0, 1, 5_000, MICRO), (1, 2, 5_000, MICRO), (2, 3, 5_000, MICRO))


def times(trace: Trace, event: int, **columns: int) -> list[int]:
    """When such events happened, in ns."""
    rows = trace.events[trace.events["event"] == event]
    for name, value in columns.items():
        rows = rows[rows[name] == value]
    return [int(time) for time in rows["time_ns"]]


def coord(network: Any, **settings: Any) -> Trace:
    return traced(protocol="coord", network=network, senders=1, **{"members": network.members, **settings})


def test_a_message_takes_transmission_and_propagation() -> None:
    trace = coord(PAIR)
    assert times(trace, RECEIVE) == [37_000, 78_000, 119_000]  # 32 µs + 5 µs, then twice 36 µs + 5 µs
    assert trace.metrics["rtt_first_ms"] == 0.078
    assert trace.metrics["rtt_last_ms"] == 0.119
    assert (trace.metrics["messages"], trace.metrics["hops"], trace.metrics["bytes"]) == (3, 3, 104)


def test_copies_queue_in_order_and_are_stored_and_forwarded() -> None:
    """0 sends START to 1, 2 and 3 over its one edge; each goes on when it has arrived whole and the next is free."""
    trace = coord(ROW, rounds=1)
    starts = {rank: times(trace, RECEIVE, member=rank, peer=0)[0] for rank in (1, 2, 3)}
    assert starts == {1: 37_000, 2: 69_000 + 37_000, 3: 101_000 + 37_000 + 37_000}
    first = trace.events[(trace.events["event"] == HOP) & (trace.events["link"] == 0)][:3]
    assert first["time_ns"].tolist() == [37_000, 69_000, 101_000]
    assert first["entered_ns"].tolist() == [0, 0, 0]


def test_a_busy_link_delays_what_arrives_meanwhile() -> None:
    """At node 1, START for 2 leaves at 69 µs and START for 3 arrives at 101 µs, just when the edge is free."""
    trace = coord(ROW)
    link = int(network_link(ROW, 1, 2))
    hops = trace.events[(trace.events["event"] == HOP) & (trace.events["link"] == link)][:2]
    assert hops["entered_ns"].tolist() == [69_000, 101_000]
    assert hops["time_ns"].tolist() == [106_000, 138_000]


def network_link(network: Any, source: int, to: int) -> int:
    return int(np.flatnonzero((network.link_from == source) & (network.link_to == to))[0])


def test_delay_and_bandwidth_belong_to_the_edge() -> None:
    network = wired((0, 1, 1_000, 8e6), (0, 2, 700_000, 8e9))
    trace = coord(network)
    assert times(trace, RECEIVE, member=1, peer=0)[0] == 33_000
    assert times(trace, RECEIVE, member=2, peer=0)[0] == 700_032


def test_a_full_queue_drops_the_newest() -> None:
    """One copy is on the wire, one may wait: of three copies at once the third is dropped."""
    trace = coord(ROW, queue_limit=1, repeat_ms=1)
    dropped = trace.events[trace.events["event"] == DROP]
    lost = set(dropped["message"][dropped["time_ns"] == 0])
    sent = trace.events[(trace.events["event"] == SEND) & (trace.events["time_ns"] == 0)]
    assert sent["peer"].tolist() == [1, 2, 3]
    assert lost == {int(sent["message"][2])}
    assert times(trace, RECEIVE, member=3, peer=0)[0] == 1_000_000 + 3 * (36_000 + 5_000)
    assert trace.metrics["queue_max"] == 1


def test_without_a_limit_nothing_is_dropped() -> None:
    assert coord(ROW).metrics["drops"] == 0
    assert coord(ROW).metrics["queue_max"] == 2


def test_a_tree_multicast_crosses_each_link_once() -> None:
    trace = coord(ROW, multicast="tree")
    start = trace.events[(trace.events["event"] == SEND) & (trace.events["peer"] == EVERYONE)][0]
    hops = trace.events[(trace.events["event"] == HOP) & (trace.events["message"] == start["message"])]
    assert hops["link"].tolist() == [network_link(ROW, 0, 1), network_link(ROW, 1, 2), network_link(ROW, 2, 3)]
    assert times(trace, RECEIVE, peer=0)[:3] == [37_000, 74_000, 111_000]
    assert trace.metrics["messages"] == 9  # a multicast counts n−1
    assert trace.metrics["hops"] == 3 + (1 + 2 + 3) + 3


@pytest.mark.parametrize("members", [2, 5, 12])
def test_a_tree_multicast_reaches_every_member_once_over_a_tree_of_links(members: int) -> None:
    degree = min(3, members - 1)
    settings: dict[str, Any] = {"protocol": "full_dist", "members": members, "network": f"random:degree={degree}"}
    trace = traced(multicast="tree", seed=5, **settings)
    for send in trace.events[trace.events["event"] == SEND]:
        mine = trace.events[trace.events["message"] == send["message"]]
        received = mine[mine["event"] == RECEIVE]
        assert sorted(received["member"]) == [rank for rank in range(members) if rank != send["member"]]
        links = mine["link"][mine["event"] == HOP]
        assert len(set(links)) == len(links) == members - 1


def test_branches_without_members_are_left_out() -> None:
    """Members at 0, 1, 2 of a row 0–1–2–3–4: nothing goes on to 3 and 4."""
    row = wired(*((node, node + 1, 1_000, MICRO) for node in range(4)), members=3)
    trace = traced(protocol="full_dist", network=row, members=3, senders=1, multicast="tree")
    assert trace.metrics["hops"] == 2 + 2 + 2


# Nodes that take time (guo §5.1)


def test_hosts_take_time_to_send_and_to_receive() -> None:
    """Three leaves under the root of a WAN tree; t_s(32) = 341.76 µs, t_s(36) = 342.23 µs, t_r = 1.1 t_s."""
    network = build_network("wan-tree", members=4, seed=0)
    trace = traced(protocol="coord", network=network, members=4, senders=1, multicast="copies")
    wire_32, wire_36, delay = 8_533_333, 9_600_000, 5_000_000
    sent = [341_760 * copies for copies in (1, 2, 3)]
    arrived = [time + wire_32 + delay + 375_936 for time in sent]
    assert times(trace, RECEIVE, peer=0)[:3] == arrived
    at_root = [time + 342_230 + wire_36 + delay for time in arrived]
    first = at_root[0] + 376_453
    second = max(first, at_root[1]) + 376_453
    third = max(second, at_root[2]) + 376_453
    assert times(trace, RECEIVE, member=0) == [first, second, third] == [29_569_712, 29_946_165, 30_322_618]
    assert trace.metrics["rtt_first_ms"] == pytest.approx(30.322618)
    assert trace.metrics["rtt_last_ms"] == pytest.approx((third + 3 * 342_230 + wire_36 + delay + 376_453) / 1e6)


def test_routers_take_time_in_between() -> None:
    """0 – 1 – 2: a message from 0 to 2 is routed at 1, after 1 has received its own copy, for exactly 1 ms."""
    costs = NodeCosts(
        router_ns=1_000_000, send_ns=100_000, send_ns_per_byte=0, receive_ns=200_000, receive_ns_per_byte=0
    )
    row = wired((0, 1, 0, 8e9), (1, 2, 0, 8e9), costs=costs)
    trace = traced(protocol="coord", network=row, members=3, senders=1)
    to_one, to_two = times(trace, RECEIVE, peer=0)[:2]
    assert to_one == 100_000 + 32 + 200_000
    # The copy for 2 leaves its host at 200 µs and is at 1 at 200.032 µs, while 1 receives until 300.032 µs.
    assert to_two == 300_032 + 1_000_000 + 32 + 200_000


def test_a_member_that_passes_a_multicast_on_does_both_and_the_last_one_only_receives() -> None:
    """A node that is both does both (MODELS §8)."""
    row = wired((0, 1, 0, 8e9), (1, 2, 0, 8e9), costs=COSTS)
    trace = traced(protocol="coord", network=row, members=3, senders=1, multicast="tree")
    at_one = 341_760 + 32 + 1_000_000 + 375_936
    assert times(trace, RECEIVE, peer=0)[:2] == [at_one, at_one + 32 + 375_936]


# What is measured (MODELS §9)


def test_queue_and_load_by_hand() -> None:
    """Two members: each of three messages is sampled when sent and when received, alone; on the wire at 0 ms."""
    metrics = coord(PAIR).metrics
    assert (metrics["queue_mean"], metrics["queue_max"]) == (0, 0)
    slow = wired((0, 1, 1_400_000, 8e9))  # START until 1.4 ms, ACK until 2.8 ms, INFO until 4.2 ms
    assert coord(slow).metrics["load_mean"] == 1.0  # samples at 0, 1, 2, 3 and 4 ms


def test_queue_average_by_hand() -> None:
    """START to 1 and 2 over one edge: the second waits when it is sent, none when they arrive."""
    row = wired((0, 1, 0, MICRO), (1, 2, 0, MICRO))
    trace = traced(protocol="coord", network=row, members=3, senders=1)
    # Samples (send, receive) a hop: START 0→1: 0, 0 (the second began at 32 µs, when the first arrived);
    # START 0→2: 1, 0 and 0, 0; the same for INFO; ACKs 1→0: 0, 0 and 2→1→0: 0, 0 and 0, 0.
    assert trace.metrics["queue_mean"] == pytest.approx(2 / 18)
    assert trace.metrics["queue_max"] == 1


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("protocol", ["coord", "full_dist", "s_coord", "cube_full_dist"])
def test_metrics_are_those_of_the_trace(protocol: str, seed: int) -> None:
    """Queue and load computed again from the hop, send and receive rows."""
    settings: dict[str, Any] = {"members": 17, "network": "random:degree=3,bandwidth=2e6", "rounds": 2, "seed": seed}
    trace = traced(protocol=protocol, delta_ms=4.0, **settings)
    samples = queue_samples(trace, settings)
    assert trace.metrics["queue_max"] == max(samples)
    # One joins and another leaves in the same nanosecond now and then: then either order is right.
    assert trace.metrics["queue_mean"] == pytest.approx(np.mean(samples), abs=3 / len(samples))
    assert trace.metrics["load_mean"] == pytest.approx(np.mean(load_samples(trace)))


def queue_samples(trace: Trace, settings: dict[str, Any]) -> list[int]:
    """How many wait on a link, when one joins it (that one included) and when one leaves it."""
    network = network_of(Scenario(protocol="coord", **settings))
    found = []
    hops = trace.events[trace.events["event"] == HOP]
    for link in np.unique(hops["link"]):
        mine = hops[hops["link"] == link]
        busy_ns = np.floor(mine["size"] * (8e9 / network.bandwidth_bps[link]) + 0.5).astype(np.int64)
        begun = mine["time_ns"] - network.delay_ns[link] - busy_ns
        for place, row in enumerate(mine):
            joins, leaves = row["entered_ns"], row["time_ns"]
            found.append(int(((mine["entered_ns"] <= joins) & (begun > joins))[: place + 1].sum()))
            found.append(int(((mine["entered_ns"] < leaves) & (begun > leaves)).sum()))
    return found


FREE = NodeCosts(router_ns=0, send_ns=0, send_ns_per_byte=0, receive_ns=0, receive_ns_per_byte=0)


@pytest.mark.parametrize("seed", range(4))
def test_a_node_queues_what_waits_for_all_its_links(seed: int) -> None:
    """guo §5.2, computed again from the hop rows; the processors take no time, so that nothing waits for them."""
    network = build_network("random:degree=3,bandwidth=2e6", members=17, seed=seed)
    one_by_one = {"step_s": 0.0005, "ending": "piggyback"}
    slow = replace(network, costs=FREE)
    trace = traced(protocol="gossip", network=slow, members=17, seed=seed, rounds=2, parameters=one_by_one)
    hops = trace.events[trace.events["event"] == HOP]
    busy_ns = np.floor(hops["size"] * (8e9 / network.bandwidth_bps[hops["link"]]) + 0.5).astype(np.int64)
    begun = hops["time_ns"] - network.delay_ns[hops["link"]] - busy_ns
    samples = []
    for node in range(network.nodes):
        leaves = network.link_from[hops["link"]] == node
        sends = hops["entered_ns"][leaves]
        receives = hops["time_ns"][network.link_to[hops["link"]] == node]
        entered, waits_until = hops["entered_ns"][leaves], begun[leaves]
        samples += [int(((entered <= now) & (waits_until > now)).sum()) for now in sends]
        # What is received is sent on in the same nanosecond, after the sample.
        samples += [int(((entered < now) & (waits_until > now)).sum()) for now in receives]
    assert trace.metrics["node_queue_max"] == max(samples)
    assert trace.metrics["node_queue_mean"] == pytest.approx(np.mean(samples), abs=3 / len(samples))
    assert trace.metrics["node_queue_mean"] > 1.5 * trace.metrics["queue_mean"] > 0


def test_a_node_queues_what_waits_for_its_processor_too() -> None:
    """0 takes 1 ms to send each START; that to 1 then takes 10 ms on its link, and that to 2 waits for it.

    After 1 ms two copies wait for the processor, after 2 ms one for it and one for the link, then only that one.
    """
    slow = NodeCosts(router_ns=0, send_ns=1_000_000, send_ns_per_byte=0, receive_ns=0, receive_ns_per_byte=0)
    tree = wired((0, 1, 0, 32 * 8e3 / 10), (0, 3, 0, 8e9), (1, 2, 0, 8e9), (3, 4, 0, 8e9), costs=slow)
    metrics = traced(protocol="coord", network=tree, members=5, senders=1, rounds=1).metrics
    assert metrics["node_queue_max"] == 2
    assert coord(PAIR).metrics["node_queue_max"] is None


def load_samples(trace: Trace) -> list[int]:
    """Copies under way at every whole millisecond of a round."""
    events = trace.events
    last = int(events["time_ns"][-1])
    under_way = []
    for now in range(0, last + 1, 1_000_000):
        if now <= last and any(begun <= now < ended for begun, ended in spans(trace)):
            sent = (events["event"] == SEND) & (events["time_ns"] <= now)
            over = np.isin(events["event"], (RECEIVE, DROP)) & (events["time_ns"] <= now)
            under_way.append(int(sent.sum()) - int(over.sum()))
    return under_way


def spans(trace: Trace) -> list[tuple[int, int]]:
    events = trace.events
    rounds = np.unique(events["round"][events["event"] == ROUND])
    return [(times(trace, ROUND, round=number)[0], times(trace, DONE, round=number)[-1]) for number in rounds]


def test_time_to_stable_and_buffer_by_hand() -> None:
    """One sender, one message at the phase that the seed draws; Coord with Δ = 0.1 ms on two members 5 µs apart."""
    trace = traced(
        protocol="coord", network=PAIR, members=2, senders=1, messages=1, rate=2_000, payload_bytes=18, delta_ms=0.1
    )
    sent = times(trace, DELIVER, member=0)[0]
    assert times(trace, DELIVER, member=1)[0] >= sent + 55_000  # 50 B and 5 µs, behind a START or INFO perhaps
    first, last = times(trace, STABLE)
    assert trace.metrics["tts_first_ms"] == pytest.approx((first - sent) / 1e6)
    assert trace.metrics["tts_last_ms"] == pytest.approx((last - sent) / 1e6)
    assert trace.metrics["buffer_max"] == 1
    assert trace.metrics["data_messages"] == 1
    assert trace.metrics["data_bytes"] == 50
    held = [(sent, last if times(trace, STABLE, member=0)[0] == last else first)]
    held.append((times(trace, DELIVER, member=1)[0], times(trace, STABLE, member=1)[0]))
    end = int(trace.events["time_ns"][-1])
    samples = [sum(begin <= now < over for begin, over in held) for now in range(0, end + 1, 1_000_000)]
    assert trace.metrics["buffer_mean"] == pytest.approx(np.mean(samples) / 2)


def test_what_crashed_members_hold_no_longer_counts() -> None:
    """Two of three members hold a message that never becomes stable at the third, which is down: it frees nothing."""
    crash = Fault(members=(2,), at_ns=20_000_000)
    settings: dict[str, Any] = {"members": 3, "senders": 1, "messages": 40, "rate": 1_000, "crashes": (crash,)}
    trace = traced(protocol="coord", network="star", detect_ms=30.0, rounds=1, delta_ms=2.0, **settings)
    assert times(trace, CRASH) == [20_000_000]
    rows = trace.events
    held = dict.fromkeys(range(3), 0)
    up = set(range(3))
    stable: dict[int, int] = dict.fromkeys(range(3), 0)
    samples, place = [], 0
    for now in range(0, int(rows["time_ns"][-1]) + 1, 1_000_000):
        while place < len(rows) and rows["time_ns"][place] <= now:
            row = rows[place]
            if row["event"] == DELIVER:
                held[int(row["member"])] += 1
            elif row["event"] == STABLE:
                held[int(row["member"])] -= int(row["sequence"]) - stable[int(row["member"])]
                stable[int(row["member"])] = int(row["sequence"])
            elif row["event"] == CRASH:
                up.discard(int(row["member"]))
            place += 1
        samples.append(sum(held[rank] for rank in up))
    assert trace.metrics["buffer_mean"] == pytest.approx(np.mean(samples) / 3)
