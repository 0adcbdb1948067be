"""What the rasm paper says, sentence by sentence: formulas, the worked example, and the trees that grow."""

from __future__ import annotations

import itertools
import math
from statistics import fmean

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.errors import LocalProtocolError
from cubecast.models.neighbourhood import posterior_mean
from cubecast.models.reachability import (
    expected_share,
    reachability,
    reachability_with_copies,
    shared_quota,
    tree_reachability,
    tree_reachability_with_quota,
)
from cubecast.networks.network import Edges, Network, Unreliability, every_node_hosts, from_edges
from cubecast.networks.spec import build_network
from cubecast.sim.neighbourhood import estimated_link_failure
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import run_to_end
from cubecast.sim.trees import GrownTree, grow_tree
from tests.oracles.models import link_failure

SEEDS = range(8)


def test_equation_1_multiplies_over_the_links() -> None:
    """R(T) = ∏ (1 − P_pred)(1 − L)(1 − P) (rasm Eq 1); the example's path has (1 − 0.2)(1 − 0.2) = 0.64."""
    assert reachability(np.array([link_failure(0, 0.2, 0), link_failure(0, 0.2, 0)])) == pytest.approx(0.64)
    assert link_failure(0.1, 0.2, 0.3) == pytest.approx(1 - 0.9 * 0.8 * 0.7)


def test_equation_2_lets_copies_mask_losses() -> None:
    """R'(T, m) = ∏ 1 − (1 − …)^m (rasm Eq 2); with one copy each it is Eq 1."""
    failure = np.array([0.2, 0.5, 0.01])
    assert reachability_with_copies(failure, np.array([1, 1, 1])) == pytest.approx(reachability(failure))
    assert reachability_with_copies(failure, np.array([2, 3, 1])) == pytest.approx(0.96 * 0.875 * 0.99)


@given(
    failure=st.lists(st.floats(0, 0.95), min_size=1, max_size=4),
    spare=st.integers(0, 5),
)
@settings(deadline=None, max_examples=300)
def test_the_greedy_quota_is_the_best_one(failure: list[float], spare: int) -> None:
    """ "Each additional message transmission is allocated … to maximize the gain" (rasm §3.3): no split does better."""
    links, quota = len(failure), len(failure) + spare
    failures = np.array(failure)
    greedy = reachability_with_copies(failures, shared_quota(failures, quota))
    best = max(
        reachability_with_copies(failures, np.array(copies))
        for copies in itertools.product(range(1, spare + 2), repeat=links)
        if sum(copies) <= quota
    )
    assert greedy == pytest.approx(best, rel=1e-9)


def test_a_quota_must_reach_every_receiver() -> None:
    with pytest.raises(LocalProtocolError, match="quota = 1"):
        shared_quota(np.array([0.1, 0.1]), 1)


def test_parents_in_a_circle_are_no_tree() -> None:
    with pytest.raises(LocalProtocolError, match="circle"):
        tree_reachability(np.array([-1, 2, 1]), np.zeros((3, 3)))


def example_network() -> Network:
    """Figure 2: p1 is rank 0; links 1–2, 1–3 and 3–4 lose 0.2, link 1–4 loses 0.6; processes are reliable."""
    ends = np.array([[0, 1], [0, 2], [2, 3], [0, 3]])
    return from_edges(
        Edges(ends=ends, delay_ns=np.full(4, 1_000_000), bandwidth_bps=np.full(4, 1e18)),
        name="example",
        nodes=4,
        hosts=every_node_hosts(4),
        unreliability=Unreliability(loss=np.array([0.2, 0.2, 0.2, 0.6]), crash=np.zeros(4), sampled=False),
    )


def test_the_execution_example_ends_with_the_most_reliable_links() -> None:
    """Member 4 hears of the message from 1 first, then from 3 over a better path, and switches (rasm §3.3, Fig 2)."""
    network = example_network()
    for protocol, provider in (("rasm", 2), ("plumtree", 0)):
        scenario = Scenario(protocol=protocol, members=4, senders=1, network="example", messages=3, rate=20.0)
        _, simulation = run_to_end(scenario, network)
        assert simulation.data.peers.provider[:, 0].tolist() == [-1, 0, 0, provider]


def grown(protocol: str, degree: int, loss: float, crash: float) -> list[GrownTree]:
    network = f"regular:degree={degree},loss={loss},crash={crash},sampled=0"
    return [grow_tree(protocol, network, seed=seed, packets=4) for seed in SEEDS]


def reliability(protocol: str, degree: int, loss: float, crash: float) -> float:
    return fmean(tree.reliability for tree in grown(protocol, degree, loss, crash))


def test_without_faults_both_are_sure() -> None:
    """ "There is no difference between RASM and Plumtree since both provide a 100% reliability" (rasm §4.1, Fig 3)."""
    for protocol in ("rasm", "plumtree"):
        for tree in grown(protocol, 4, 0, 0):
            assert tree.reliability == 1
            assert tree.delivered == 1
            assert tree.repair_share == 0


def test_rasm_is_more_reliable_and_gains_with_the_degree_while_plumtree_does_not() -> None:
    """Plumtree "remains almost constant, whereas RASM reliability is able to increase" with the degree (Fig 3)."""
    rasm = [reliability("rasm", degree, 0.05, 0) for degree in (4, 10, 20)]
    plumtree = [reliability("plumtree", degree, 0.05, 0) for degree in (4, 10, 20)]
    assert all(one > 1.5 * other for one, other in zip(rasm, plumtree, strict=True))
    assert rasm[0] < rasm[1] < rasm[2]
    assert max(plumtree) - min(plumtree) < 0.05


def test_the_gap_grows_with_loss_and_shrinks_with_crashes() -> None:
    """ "This difference increases as the message loss probability increases … decreases as the crash probability
    increases" (rasm §4.1)."""

    def gap(loss: float, crash: float) -> float:
        return reliability("rasm", 20, loss, crash) - reliability("plumtree", 20, loss, crash)

    assert gap(0.0, 0.01) < gap(0.02, 0.01)
    assert gap(0.05, 0.0) > gap(0.05, 0.02) > gap(0.05, 0.05)


def test_a_quota_helps_most_where_the_tree_is_a_line() -> None:
    """With reliable links "the reliability provided by both … decreases as the network connectivity increases"."""
    for protocol in ("rasm", "plumtree"):
        by_degree = [
            fmean(tree.reliability_with_quota for tree in grown(protocol, degree, 0, 0.02)) for degree in (2, 4)
        ]
        assert by_degree[0] > by_degree[1]


def test_with_losses_the_quota_lets_rasm_rise_with_the_degree() -> None:
    """ "In RASM, the tree structure selects the most reliable paths which are improved" (rasm §4.1, Fig 4)."""
    by_degree = [
        fmean(tree.reliability_with_quota for tree in grown("rasm", degree, 0.05, 0)) for degree in (4, 10, 20)
    ]
    assert by_degree[0] < by_degree[1] < by_degree[2]


def test_repairs_are_rare_and_fewer_where_there_are_more_links() -> None:
    """On a ring next to none (where its two ends meet), then falling with the degree (rasm §4.2, Fig 5)."""
    share = {degree: fmean(tree.repair_share for tree in grown("rasm", degree, 0.05, 0.02)) for degree in (2, 4, 20)}
    assert share[2] < 0.003 < share[20] < share[4] < 0.1


def test_rasm_converges_a_few_rounds_after_plumtree() -> None:
    """ "RASM is able to build the spanning tree in only a few additional rounds" (rasm §4.3, Fig 6)."""
    for degree in (4, 10, 20):
        rasm = fmean(tree.rounds_to_converge for tree in grown("rasm", degree, 0.05, 0.02))
        plumtree = fmean(tree.rounds_to_converge for tree in grown("plumtree", degree, 0.05, 0.02))
        assert 0 <= rasm - plumtree < 5


def test_sampled_losses_deliver_what_the_formula_says() -> None:
    """Beyond the paper: with real losses and crashes a message reaches the share of members that Eq 1 predicts.

    R(T) is the probability to reach all members, far less than the share of members that one message reaches: that is
    the mean, over the members, of the product along each one's path.
    """
    for seed in (1, 3, 4):
        tree = grow_tree("rasm", "regular:degree=4,loss=0.02,crash=0.01", members=20, seed=seed, packets=2000)
        assert tree.cut_off == 0
        assert tree.reliability < 0.75 < tree.expected_share < 0.99
        assert tree.delivered == pytest.approx(tree.expected_share, abs=0.01)


def test_a_lost_repair_cuts_a_member_off() -> None:
    """Beyond the paper: PRUNE and REPAIR get lost too, and Algorithm 1 does not notice a REPAIR that was.

    One member is without a push here, for good, and with it all below: the formula holds for what is left.
    """
    tree = grow_tree("rasm", "regular:degree=4,loss=0.02,crash=0.01", members=20, seed=0, packets=2000)
    assert tree.cut_off == 1
    assert tree.delivered < 1 - 1 / 19
    assert tree.delivered == pytest.approx(tree.expected_share, abs=0.01)


def test_with_quota_and_reliable_links_the_two_are_close() -> None:
    """ "In this configuration RASM and Plumtree offer almost the same reachability probability" (rasm §4.1, Fig 4 (a)):
    at degree 20 and P = 2 %. If the lowest link came first in a round, Plumtree would be behind by 0.15."""
    trees = {
        name: [grow_tree(name, "regular:degree=20,crash=0.02,sampled=0", seed=seed, quota=True) for seed in range(10)]
        for name in ("plumtree", "rasm")
    }
    means = {name: fmean(tree.reliability_with_quota for tree in grown) for name, grown in trees.items()}
    assert abs(means["rasm"] - means["plumtree"]) < 0.07


def test_plumtree_mends_its_tree_where_rasm_loses() -> None:
    """Lazy push "is used on the remaining links of the overlay to handle failures" (rasm §4)."""
    network = "regular:degree=10,loss=0.05,crash=0.02"
    plumtree, rasm = (grow_tree(name, network, packets=30) for name in ("plumtree", "rasm"))
    assert plumtree.delivered > rasm.delivered
    assert plumtree.delivered > 0.99


def test_estimates_come_near_the_truth_and_rasm_runs_on_them() -> None:
    """The neighbourhood "relies on Bayesian inference" (rasm §3.1): with more heartbeats the trees are as good."""
    network = build_network("regular:degree=10,loss=0.05,crash=0.02", members=100, seed=1)
    error = [
        float(np.abs(estimated_link_failure(network, heartbeats=beats, seed=1) - network.link_failure).mean())
        for beats in (10, 100, 10_000)
    ]
    assert error[0] > error[1] > error[2]
    assert error[2] < 0.005
    known = "regular:degree=10,loss=0.05,crash=0.02,sampled=0"
    true, estimated, guessed = (
        fmean(grow_tree("rasm", known, seed=seed, packets=4, heartbeats=beats).reliability for seed in SEEDS)
        for beats in (0, 2000, 5)
    )
    assert guessed < estimated
    assert estimated > 0.9 * true


def test_the_expected_share_is_the_mean_over_the_paths() -> None:
    failure = np.full((4, 4), 0.5)
    assert expected_share(np.array([-1, 0, 1, 2]), failure) == pytest.approx((0.5 + 0.25 + 0.125) / 3)
    assert expected_share(np.array([-1, 0, 1, 2]), np.ones((4, 4))) == 0


def test_a_posterior_is_beta() -> None:
    """One failure in three trials on a uniform prior: Beta(2, 3), mean 2/5."""
    assert posterior_mean(np.array([1]), np.array([3])) == pytest.approx([0.4])
    with pytest.raises(LocalProtocolError, match="more failures than trials"):
        posterior_mean(np.array([4]), np.array([3]))


def test_a_quota_of_the_degree_is_shared_by_each_member() -> None:
    """ "The quota of messages for one packet diffusion at each process is equal to its connectivity" (rasm §4.1)."""
    failure = np.full((4, 4), 0.5)
    line = np.array([-1, 0, 1, 2])
    star = np.array([-1, 0, 0, 0])
    assert tree_reachability_with_quota(line, failure, 3) == pytest.approx((1 - 0.5**3) ** 3)
    assert tree_reachability_with_quota(star, failure, 3) == pytest.approx(0.5**3)
    assert math.isclose(tree_reachability(line, failure), 0.5**3)


def test_copies_of_one_round_come_in_random_order() -> None:
    """ "In each round, each node forwards packets received for the first time in the previous round" (rasm §4.3): all
    copies of a round come at one time, and Plumtree keeps one of them. Which one must not depend on numbers: if the
    lowest came first everywhere, few nodes would be the providers of all others."""
    lowest = chances = members_with_choice = 0.0
    for seed in range(10):
        spec = "regular:degree=12,sampled=0"
        network = build_network(spec, members=100, seed=seed)
        parents = grow_tree("plumtree", spec, seed=seed, packets=1).parents
        graph: nx.Graph[int] = nx.Graph(list(zip(network.link_from.tolist(), network.link_to.tolist(), strict=True)))
        depth = nx.single_source_shortest_path_length(graph, 0)
        for rank in range(1, 100):
            nearer = sorted(other for other in graph[rank] if depth[other] == depth[rank] - 1)
            assert parents[rank] in nearer
            if len(nearer) > 1:
                lowest += parents[rank] == nearer[0]
                chances += 1 / len(nearer)
                members_with_choice += 1
    assert members_with_choice > 500
    assert abs(lowest - chances) < 4 * members_with_choice**0.5 / 2
