"""What the cube paper says, sentence by sentence, on networks small enough for a test.

The paper does not say how its edge probability went with n; each test names the graphs on which it shows the claim, and
where the claim ends. Nothing is tuned: links carry 100 Mb/s with delays of 0…1 ms, m = min(n, 50), n−1 unicasts make a
multicast, and a figure is the mean of six topologies, as in §4.1.
"""

from __future__ import annotations

import math
from functools import cache
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from cubecast.models.complexity import GroupSize, round_cost
from cubecast.protocol.overlays import hypercube
from cubecast.sim.faults import Fault
from cubecast.sim.result import Result
from cubecast.sim.simulate import simulate
from cubecast.trace.schema import SEND
from tests.sim.runs import traced

PROTOCOLS = ("coord", "full_dist", "s_coord", "cube_full_dist")
TOPOLOGIES = range(6)
SIZES = (10, 16, 17, 33, 64, 100)


@cache
def run(protocol: str, members: int, network: str, seed: int) -> Result:
    return simulate(protocol, members=members, network=network, seed=seed)


def mean(metric: str, protocol: str, members: int, network: str) -> float:
    return fmean(getattr(run(protocol, members, network, seed), metric) for seed in TOPOLOGIES)


# Messages (§2, §3.4, Fig 7, Fig 11)


@pytest.mark.parametrize("members", SIZES)
@pytest.mark.parametrize("protocol", ["coord", "s_coord"])
def test_start_ack_and_info_make_three_messages_for_every_other_member(protocol: str, members: int) -> None:
    """ "Coord and S_Coord have linear message count." (cube §4.2.3)"""
    result = run(protocol, members, "random:degree=5", 1)
    assert result.messages == 3 * (members - 1)
    others = members - 1
    assert (result.unicasts, result.multicasts) == ((others, 2) if protocol == "coord" else (3 * others, 0))


def test_each_member_of_s_coord_sends_and_receives_only_log_n_messages() -> None:
    """ "In S_Coord, on the other hand, the average queue length is very low because each node sends and receives only
    log(n) messages." (cube §4.2.2)

    True where START and INFO are relayed down the logical tree: one START and one INFO to each of log n children, and
    an ACK from each. Multicast from the root as n−1 unicasts they make the root send 2(n−1).
    """
    members, degree = 100, math.ceil(math.log2(100))
    busiest = {}
    for relayed in (True, False):
        parameters = {"relayed": relayed}
        trace = traced(protocol="s_coord", members=members, network="random:degree=5", seed=1, parameters=parameters)
        busiest[relayed] = int(np.bincount(trace.events["member"][trace.events["event"] == SEND]).max())
    assert busiest[True] == 2 * degree + 1
    assert busiest[False] == 2 * (members - 1)


@pytest.mark.parametrize("members", SIZES)
def test_everybody_tells_everybody(members: int) -> None:
    """ "FullDist has an enormous message count, O(n²)." (cube §4.2.3)"""
    result = run("full_dist", members, "random:degree=5", 1)
    assert result.messages == members * (members - 1)
    assert (result.unicasts, result.multicasts) == (0, members)


@pytest.mark.parametrize("members", [*SIZES, 200])
def test_each_member_tells_its_neighbours_in_at_most_log_n_iterations(members: int) -> None:
    """ "CubeFullDist uses O(n log²(n)) messages." (cube §4.2.3)"""
    dimension = math.ceil(math.log2(members))
    for seed in TOPOLOGIES:
        messages = run("cube_full_dist", members, "random:degree=5", seed).messages
        degrees = len(hypercube(members).neighbours)
        assert 2 * degrees <= messages <= members * dimension * (dimension + 1)


def test_the_bound_is_reached_when_all_links_are_equally_slow() -> None:
    """Every iteration of every member, and one last message: n · d · (d+1). (cube §3.2)"""
    for dimension in (1, 2, 3, 4, 5):
        result = simulate("cube_full_dist", members=2**dimension, network="flat:delay=1ms")
        assert result.messages == 2**dimension * dimension * (dimension + 1)


@pytest.mark.parametrize("members", [7, 16, 40])
@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_counts_are_those_of_the_table(protocol: str, members: int) -> None:
    """Fig 7, "Analytical comparison of the protocols": exact where the model is exact, else below its bound."""
    result = run(protocol, members, "random:degree=5", 2)
    cost = round_cost(protocol, GroupSize(members=members, senders=min(members, 50)))
    if protocol == "cube_full_dist":
        assert result.messages <= cost.copies
        assert result.bytes <= cost.copied_bytes
    else:
        assert protocol == "s_coord" or (result.unicasts, result.multicasts) == (cost.unicasts, cost.multicasts)
        assert (result.messages, result.bytes) == (cost.copies, cost.copied_bytes)


def test_growth_of_the_message_counts() -> None:
    """ "In all protocols, the theoretical analysis of message count is reflected." (cube §4.2.3)"""
    small, large = 64, 256
    growth = {
        name: run(name, large, "random:p=0.04", 0).messages / run(name, small, "random:p=0.04", 0).messages
        for name in PROTOCOLS
    }
    assert growth["coord"] == growth["s_coord"] == 255 / 63
    assert growth["full_dist"] == 256 * 255 / (64 * 63)
    assert growth["cube_full_dist"] == pytest.approx(4 * (8 / 6) ** 2, rel=0.2)


# Hops (§4.2.3, Fig 11)


@pytest.mark.parametrize("network", ["random:degree=3", "random:degree=5", "random:p=0.04"])
@pytest.mark.parametrize("members", [100, 200])
def test_hops_go_with_messages_where_members_are_placed_at_random(members: int, network: str) -> None:
    """ "In S_Coord, the hop count is less than in Coord because most protocol messages are only sent from a node to its
    parent in the tree." (cube §4.2.3)

    With ranks placed at random a parent is as far away as the coordinator, and both protocols send 3(n−1) messages:
    over six topologies the two hop counts agree within 10 %. S_Coord is below where the coordinator happens to lie
    further from the others than they lie from each other, and above where it is a hub.
    """
    coord, s_coord = (mean("hops", name, members, network) for name in ("coord", "s_coord"))
    assert s_coord == pytest.approx(coord, rel=0.1)


def test_a_tree_that_fits_the_network_saves_hops() -> None:
    """ "It is not too difficult to embed a logical tree on an arbitrary physical topology [...] and therefore the
    actual number of hops could be even lower." (cube §4.2.3)"""
    network: dict[str, Any] = {"members": 40, "network": "wan-tree", "multicast": "tree"}
    fitting = simulate("s_coord", tree_degree=3, **network)
    assert fitting.hops == 3 * 39
    assert fitting.hops < simulate("coord", **network).hops


def test_full_dist_crosses_most_links() -> None:
    """ "FullDist has an enormous message count, O(n²), which is reflected in both graphs." (cube §4.2.3)"""
    hops = {name: mean("hops", name, 100, "random:degree=5") for name in PROTOCOLS}
    assert hops["full_dist"] > 2 * hops["cube_full_dist"] > 2 * max(hops["coord"], hops["s_coord"])


# Round trip times (§4.2.1, Fig 8)


def test_full_dist_falls_behind_where_links_are_few() -> None:
    """ "The RTT of FullDist increases dramatically as the number of nodes increases [...] because the total load
    imposed by FullDist on the network is too high." (cube §4.2.1)

    On graphs of degree 3: from 50 to 400 members the last RTT of FullDist grows more than sixfold and is the
    longest; that of the others grows less than threefold. At degree 5 FullDist draws level with the others at 400
    members, and at p = 0.04, where the degree grows with n, it stays the fastest.
    """
    growth, last = {}, {}
    for name in PROTOCOLS:
        small, large = (fmean(last_rtts(name, members, "random:degree=3")) for members in (50, 400))
        growth[name], last[name] = large / small, large
    assert growth.pop("full_dist") > 6
    assert max(growth.values()) < 3
    assert last.pop("full_dist") > 1.25 * max(last.values())
    dense = {name: fmean(last_rtts(name, 400, "random:p=0.04")) for name in PROTOCOLS}
    assert min(dense, key=lambda name: dense[name]) == "full_dist"


def last_rtts(protocol: str, members: int, network: str) -> list[float]:
    """Three topologies: 400 members send 160,000 messages in a round of FullDist."""
    return [run(protocol, members, network, seed).rtt_last_ms for seed in range(3)]


def test_the_others_grow_slower_than_the_group() -> None:
    """ "For both S_Coord and CubeFullDist, RTT remains almost flat as the number of nodes increases. [...] The RTT in
    Coord increases linearly with n." (cube §4.2.1)

    At degree 3, four times the members take 1.5 to 2.2 times as long with all three: neither flat nor linear, because
    ways get longer as the logarithm of n, and a coordinator with three edges sends 100 messages in 2 ms.
    """
    for name in ("coord", "s_coord", "cube_full_dist"):
        grown = mean("rtt_first_ms", name, 400, "random:degree=3") / mean("rtt_first_ms", name, 100, "random:degree=3")
        assert 1.2 < grown < 2.6, (name, grown)


def test_no_jumps_at_powers_of_two() -> None:
    """ "The graphs do not have any major jitters near and at system sizes that are power of two." (cube §4.2.1)

    Shown for first and last RTT around 64 and 128 members: neighbouring sizes differ by less than 25 %.
    """
    for metric in ("rtt_first_ms", "rtt_last_ms"):
        for sizes in ((60, 63, 64, 65, 68), (120, 127, 128, 129, 136)):
            values = [mean(metric, "cube_full_dist", members, "random:degree=5") for members in sizes]
            assert max(values) < 1.25 * min(values), (metric, sizes, values)


@pytest.mark.parametrize("members", [50, 100, 200])
@pytest.mark.parametrize("protocol", ["coord", "s_coord"])
def test_first_and_last_are_one_info_apart(protocol: str, members: int) -> None:
    """ "For both Coord and S_Coord there is hardly any difference between first node and last node RTT. This is because
    the coordinator/root informs everyone after it finishes each protocol round." (cube §4.2.1)

    The difference is the way of INFO to the furthest member; it is shorter than what START and ACK took before it. In
    S_Coord INFO goes from member to member down the logical tree.
    """
    for seed in TOPOLOGIES:
        result = run(protocol, members, "random:degree=5", seed)
        assert result.rtt_last_ms - result.rtt_first_ms < result.rtt_first_ms


def test_full_dist_ends_at_different_times_under_load() -> None:
    """ "FullDist, on the other hand, shows a significant difference between first node and last node RTT when the
    system load is high." (cube §4.2.1)

    Degree 3: the difference more than doubles from 50 to 200 members, and exceeds that of CubeFullDist.
    """

    def apart(name: str, members: int) -> float:
        first, last = (mean(metric, name, members, "random:degree=3") for metric in ("rtt_first_ms", "rtt_last_ms"))
        return last - first

    assert apart("full_dist", 200) > 2 * apart("full_dist", 50)
    assert apart("full_dist", 200) > apart("cube_full_dist", 200)


# Queues and load (§4.2.2, Figs 9, 10)


def test_the_order_of_the_longest_queues() -> None:
    """ "FullDist has the largest queue size. [...] In Coord, the maximum queue size grows linearly with the system
    size. [...] The maximum queue size of S_Coord is somewhat better than CubeFullDist." (cube §4.2.2)

    FullDist > Coord > CubeFullDist > S_Coord at degrees 3 and 5, where S_Coord relays START and INFO. Sent by its root
    as n−1 unicasts each, they would queue as in Coord.
    """
    for network in ("random:degree=3", "random:degree=5"):
        queue = {name: mean("queue_max", name, 200, network) for name in PROTOCOLS}
        assert queue["full_dist"] > queue["coord"]
        assert queue["cube_full_dist"] > queue["s_coord"]
        assert queue["coord"] > queue["cube_full_dist"]
        growth = queue["coord"] / mean("queue_max", "coord", 100, network)
        assert 1.5 < growth < 3


def test_full_dist_loads_the_network_most() -> None:
    """ "[FullDist] results in high network load and large message queues." (cube §4.2.2)"""
    load = {name: mean("load_mean", name, 100, "random:degree=5") for name in PROTOCOLS}
    assert max(load, key=lambda name: load[name]) == "full_dist"
    assert load["coord"] < load["cube_full_dist"]


# Sensitivity (§4.2.4, Fig 12)


def test_coord_depends_on_where_its_coordinator_is() -> None:
    """ "The performance of Coord is very much affected by the underlining network topology. If [...] the coordinator
    has many connections, Coord achieves quite good performance." (cube §4.2.4)

    Worst minus best queue over twelve graphs of degree 3, 200 members, relative to the mean.
    """
    spread = {}
    for name in ("coord", "cube_full_dist"):
        queues = [run(name, 200, "random:degree=3", seed).queue_max for seed in range(12)]
        spread[name] = (max(queues) - min(queues)) / fmean(queues)
    assert spread["coord"] > spread["cube_full_dist"]


# Failures (§4.2.5, Figs 13, 14)


@pytest.mark.parametrize("members", [64, 100])
def test_failures_hardly_matter_to_cube_full_dist(members: int) -> None:
    """ "We test the protocol with 0–5 node failures; faulty nodes are chosen randomly among node 0's neighbors. [...]
    its performance is hardly affected by a small number of failures." (cube §4.2.5)

    Crashed from the start and reported at once; mean first RTT of six topologies within 30 % of that without failures.
    """
    overlay = hypercube(members)
    near = overlay.neighbours[: overlay.offsets[1]].tolist()

    def first_rtt(failures: int) -> float:
        values = []
        for seed in TOPOLOGIES:
            gone = np.random.default_rng(seed).choice(near, size=failures, replace=False)
            crashes = (Fault(members=tuple(int(rank) for rank in gone), at_ns=0),) if failures else ()
            settings: dict[str, Any] = {"detect_ms": 0.0, "detect_spread_ms": 0.0, "crashes": crashes, "seed": seed}
            values.append(
                simulate("cube_full_dist", members=members, network="random:degree=5", **settings).rtt_first_ms
            )
        return fmean(values)

    calm = first_rtt(0)
    for failures in range(1, 6):
        assert first_rtt(failures) == pytest.approx(calm, rel=0.3)


def test_every_node_plays_the_same_role() -> None:
    """ "Regularity: [...] in our protocol every node plays exactly the same role. Thus, no node is more loaded than
    others." (cube §1) With equal links every member of a complete hypercube sends the same number of messages."""
    trace = traced(protocol="cube_full_dist", members=32, network="flat:delay=1ms")
    senders = trace.events["member"][trace.events["event"] == SEND]
    assert np.unique(np.bincount(senders)).tolist() == [5 * 6]
