"""Sentences and formulas of guo §3.1.2, §4.2.5, §4.4, §5.3.2 and ch. 6, each with its reference."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest

from cubecast.models import complexity, trees
from cubecast.models.complexity import GroupSize, Kind, gossip_bytes, round_cost
from cubecast.models.failure import k_fail, k_fail_within
from cubecast.models.gossip_chain import GossipChain
from cubecast.models.step_search import SearchPlan, StepSearch
from cubecast.models.trigger import Feasibility, TriggerCase, trigger
from cubecast.protocol.overlays import hypercube
from tests.oracles import models as printed
from tests.oracles import printed_orders as orders
from tests.oracles.processed import messages_processed
from tests.oracles.tree_hops import tree_hops

ARRIVALS = [Fraction(1), Fraction(3, 4), Fraction(1, 10)]
CLOSE = 1e-13


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("n", [2, 3, 7, 40])
def test_increment_with_subset_one_is_formula_4_1(n: int, arrival: Fraction) -> None:
    increments = GossipChain(members=n, subset=1, arrival=float(arrival)).increments()
    for k in range(1, n + 1):
        assert increments[1, k] == pytest.approx(float(printed.p_inc_subset_one(k, n, arrival)), rel=CLOSE, abs=1e-300)


@pytest.mark.parametrize("arrival", ARRIVALS)
@pytest.mark.parametrize("n", [4, 5, 9, 40])
def test_terms_with_subset_three_are_formulas_4_4_to_4_11(n: int, arrival: Fraction) -> None:
    chain = GossipChain(members=n, subset=3, arrival=float(arrival))
    terms, increments = list(chain.arrival_terms()), chain.increments()
    named = {(3, 1): printed.p_1, (2, 1): printed.p_2, (1, 1): printed.p_3, (3, 2): printed.p_4, (2, 2): printed.p_5}
    for k in range(1, n + 1):
        for (arrivals, infected), formula in named.items():
            expected = float(formula(k, n, arrival))
            assert terms[arrivals][infected, k] == pytest.approx(expected, rel=CLOSE, abs=1e-300)
        for j in (1, 2, 3):
            expected = float(printed.p_inc_subset_three(k, j, n, arrival))
            assert increments[j, k] == pytest.approx(expected, rel=CLOSE, abs=1e-300)


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_distribution_with_subset_one_is_formula_4_2(arrival: Fraction) -> None:
    n = 8
    chain, expected = GossipChain(members=n, subset=1, arrival=float(arrival)), printed.start(n)
    for r in range(40):
        np.testing.assert_allclose(chain.distribution(r), [float(expected[k]) for k in range(n + 1)], rtol=1e-12)
        assert chain.incomplete(r) == pytest.approx(min(1.0, float(n * (1 - expected[n]))), rel=1e-12)  # 4.3
        expected = printed.next_subset_one(expected, n, arrival)


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_distribution_with_subset_three_is_formulas_4_12_to_4_14(arrival: Fraction) -> None:
    n = 9
    chain, expected = GossipChain(members=n, subset=3, arrival=float(arrival)), printed.start(n)
    for r in range(40):
        np.testing.assert_allclose(chain.distribution(r), [float(expected[k]) for k in range(n + 1)], rtol=1e-12)
        assert chain.incomplete(r) == pytest.approx(min(1.0, float(n * (1 - expected[n]))), rel=1e-12)  # 4.15
        expected = printed.next_subset_three(expected, n, arrival)


@pytest.mark.parametrize("subset", [1, 3])
def test_steps_grow_logarithmically_with_group_size(subset: int) -> None:
    """ "we can see clearly a logarithmical increase with group size" (guo §4.2.5, Fig 4.8)"""
    sizes = [50, 100, 200, 400, 800, 1600]
    steps = [GossipChain(members=n, subset=subset).steps_for(1e-3) for n in sizes]
    growth = np.diff(steps)  # per doubling
    assert np.all(growth > 0)
    assert growth.max() - growth.min() < 0.1 * growth.mean()


def test_larger_subset_needs_fewer_steps_but_more_messages() -> None:
    """ "the increase of subset size decreases the number of micro-steps and steps needed" (guo §4.2.5)"""
    needed = {p: GossipChain(members=200, subset=p).micro_steps_for(1e-3) for p in (1, 2, 3, 5)}
    assert needed[1] > needed[2] > needed[3] > needed[5]
    assert 3 * needed[3] > needed[1]  # "it is more beneficial to use a small subset size"


def test_quality_costs_few_extra_steps() -> None:
    """ "only a few extra gossip steps are necessary for better quality" (guo Figs 4.9, 4.10)"""
    chain = GossipChain(members=200)
    steps = [chain.steps_for(10.0**-digits) for digits in range(1, 10)]
    assert np.all(np.diff(steps) < 3)


def test_k_fail_grows_like_n_log_n_at_constant_bandwidth() -> None:
    """ "in order to keep the bandwidth requirement per member constant … grows in the order of n log n" (guo §3.1.2)"""
    sizes = [250, 500, 1000, 2000]
    found = [k_fail_within(members=n, p_mistake=1e-6, bytes_per_s=250.0) for n in sizes]
    for n, threshold in zip(sizes, found, strict=True):
        assert threshold.bytes_per_s == pytest.approx(250.0)
        assert threshold.step_s == pytest.approx((32 + n) / 250.0)  # the step grows like n
    # K_fail = c·log n + log(1/P_mistake) + …: a doubling of n adds a constant, up to rounding to whole steps.
    added = np.diff([threshold.k_fail for threshold in found])
    assert np.all((added >= 1) & (added <= 3))
    ratio = [t.detection_s_max / (n * math.log(n)) for t, n in zip(found, sizes, strict=True)]
    assert ratio == sorted(ratio, reverse=True)  # so n·log n times the first ratio is an upper bound


def test_gossip_message_sizes() -> None:
    """ "from 47 to 103 bytes when there is only 1 sender, and from 243 to 299 bytes" (guo §5.2)"""
    assert [gossip_bytes(50, 1), gossip_bytes(500, 1), gossip_bytes(50, 50), gossip_bytes(500, 50)] == [
        47,
        103,
        243,
        299,
    ]


@pytest.mark.parametrize(("degree", "height"), [(2, 1), (2, 5), (3, 1), (3, 4), (5, 3)])
def test_table_4_1_in_complete_trees(degree: int, height: int) -> None:
    n = sum(degree**level for level in range(height + 1))
    group = GroupSize(members=n, senders=1, degree=degree)
    steps = {name: round_cost(name, group).steps for name in ("coord", "full_dist", "train", "s_coord", "s_train")}
    assert steps == {"coord": 3, "full_dist": 2, "train": 2 * n, "s_coord": height + 2, "s_train": degree * height + 2}
    inner = np.arange(1, (n - 2) // degree + 1)
    leaves = np.arange((n - 2) // degree + 1, n)
    assert messages_processed("coord", group)[0] == n + 3
    assert set(messages_processed("coord", group)[1:]) == {3}
    assert set(messages_processed("full_dist", group)) == {n + 1}
    assert set(messages_processed("train", group)) == {4}
    s_coord, s_train = messages_processed("s_coord", group), messages_processed("s_train", group)
    assert s_coord[0] == degree + 4
    assert set(s_coord[inner]) <= {degree + 3}
    assert set(s_coord[leaves]) == {3}
    assert s_train[0] == 5
    assert set(s_train[inner]) <= {4, 5}
    assert set(s_train[leaves]) == {3, 4}


@pytest.mark.parametrize("n", [2, 3, 5, 13, 40, 41, 100])
@pytest.mark.parametrize("degree", [1, 2, 3, 7])
def test_exact_counts_are_those_of_a_round_played_out(n: int, degree: int) -> None:
    """Table 4.1 and the counts of messages in guo §4.2.1–4.2.3, §4.3.1–4.3.2, also for trees that are not complete."""
    group = GroupSize(members=n, senders=1, degree=degree)
    rounds = {
        "coord": printed.play_coord(n),
        "full_dist": printed.play_full_dist(n),
        "train": printed.play_train(n),
        "s_coord": printed.play_s_coord(n, degree),
        "s_train": printed.play_s_train(n, degree),
    }
    for name, played in rounds.items():
        cost = round_cost(name, group)
        assert cost.kind is Kind.EXACT
        assert (cost.unicasts, cost.multicasts, cost.steps) == (played.unicasts, played.multicasts, played.steps), name
        assert messages_processed(name, group).tolist() == played.processed, name


@pytest.mark.parametrize("dimension", [1, 2, 3, 4, 6])
def test_cube_full_dist_bound_is_met_by_a_complete_cube_in_lockstep(dimension: int) -> None:
    """O(n log² n) messages (cube §3.4, Fig 7): n·d neighbours, d + 1 times."""
    n = 2**dimension
    edges = [(i, i ^ (1 << bit)) for i in range(n) for bit in range(dimension) if i < i ^ (1 << bit)]
    cost = round_cost("cube_full_dist", GroupSize(members=n, senders=1))
    played = printed.play_cube_full_dist(n, edges)
    assert (cost.unicasts, cost.steps) == (played.unicasts, played.steps)


@pytest.mark.parametrize("n", [*range(2, 36), 63, 65, 100])
def test_cube_full_dist_bound_holds_in_incomplete_cubes(n: int) -> None:
    """Degree and diameter are at most ceil(log2 n) (cube §3.3)."""
    cube = hypercube(n)
    owner = np.repeat(np.arange(n), np.diff(cube.offsets))
    edges = [(int(i), int(j)) for i, j in zip(owner, cube.neighbours, strict=True) if i < j]
    cost, played = round_cost("cube_full_dist", GroupSize(members=n, senders=1)), printed.play_cube_full_dist(n, edges)
    assert played.unicasts <= cost.unicasts
    assert played.steps <= cost.steps


@pytest.mark.parametrize("row", orders.TABLE_5_2[:3] + orders.TABLE_5_2[4:6], ids=lambda row: row.protocol)
def test_table_5_2_orders_hold_for_exact_hop_counts(row: orders.HopOrder) -> None:
    ratio = []
    for n in (200, 400, 800, 1600, 3200):
        growth = {"O(n)": n, "O(n log n)": n * math.log(n), "O(n²)": n * n}[row.hops]
        ratio.append(tree_hops(row.protocol, n) / growth)
    assert max(ratio) < 1.15 * min(ratio)


def test_stated_tree_heights() -> None:
    """Group sizes 50…500 in trees with three children a node have heights 4…6 (guo ch. 5)"""
    assert [trees.height(n, 3) for n in (50, 100, 200, 300, 400, 500)] == [4, 4, 5, 5, 6, 6]


def test_tables_name_the_protocols_that_have_costs() -> None:
    assert {row.protocol for row in orders.TABLE_4_2 + orders.FIG_7} == set(complexity.PROTOCOLS)


@pytest.mark.parametrize("rate", range(10, 101, 10))
def test_special_values_of_alpha(rate: int) -> None:
    """α = 0: X = g − 2rf. α = 0.5: X = min(g − rf, 2(g − 2rf)). α = 1: X = g − rf (guo ch. 6)."""
    g, rf = 640, 2.0 * rate

    def level(alpha: float) -> float | None:
        return trigger(TriggerCase(buffer_messages=g, rate_per_s=rate, round_s=2.0, stable_fraction=alpha)).level

    assert level(0) == g - 2 * rf
    assert level(0.5) == min(g - rf, 2 * (g - 2 * rf))
    assert level(1) == g - rf


def levels_of_figure(stable_fraction: float) -> list[int]:
    cases = [
        TriggerCase(buffer_messages=640, rate_per_s=rate, round_s=2.0, stable_fraction=stable_fraction)
        for rate in range(10, 101, 10)
    ]
    return [trigger(case).level_messages for case in cases]


def test_worked_case_of_figures_6_1_and_6_2() -> None:
    """g = 320·10³/500 = 640, f = 2 s, r from 10 to 100 messages per second (guo ch. 6)."""
    assert levels_of_figure(1.0) == [620, 600, 580, 560, 540, 520, 500, 480, 460, 440]
    assert levels_of_figure(0.2) == [620, 600, 580, 560, 540, 500, 450, 400, 350, 300]


def test_twice_the_round_must_fit_the_buffer() -> None:
    """2rf ≤ g (6.3)"""
    fits = trigger(TriggerCase(buffer_messages=640, rate_per_s=160.0, round_s=2.0))
    assert (fits.verdict, fits.level) == (Feasibility.FEASIBLE, 320.0)
    over = trigger(TriggerCase(buffer_messages=640, rate_per_s=161.0, round_s=2.0))
    assert (over.verdict, over.level) == (Feasibility.INFEASIBLE, None)


@pytest.mark.parametrize("seed", range(30))
def test_step_search_is_figures_5_8_and_5_9(seed: int) -> None:
    """Inputs of the worked example: g = 2 s, a_0 = 0, b_0 = 20 s, e = 10 %, p = 1 s (guo §5.3.2)."""
    rng = np.random.default_rng(seed)
    critical, queueing, steps = rng.uniform(0.5, 15), rng.uniform(5, 50), rng.uniform(1, 8)

    def tpr(step_s: float) -> float:
        """Below the critical interval queues dominate, above it the interval itself."""
        return float(10 + steps * step_s + queueing * max(0.0, critical / step_s - 1))

    search = StepSearch(SearchPlan(shortest_s=0, longest_s=20, resolution_s=2, stride_s=1, tolerance=0.1))
    while (step_s := search.next()) is not None:
        search.report(step_s, tpr(step_s))
    window = search.result()
    best = printed.golden_search(tpr, 0, 20, 2)
    assert window.best_s == pytest.approx(best, abs=0.02)
    # The points differ by what was reused, so the windows are compared from the same s.
    low, high = printed.step_window(tpr, window.best_s, 0.1, 1, 20)
    assert (window.low_s, window.high_s) == pytest.approx((low, high))


def test_k_fail_uses_the_same_recursion_as_gossip() -> None:
    """K_fail is selected so that the probability of an erroneous detection is below P_mistake (guo §3.1.2)."""
    found = k_fail(members=100, p_mistake=1e-4, step_s=2.0, subset=2)
    chain = GossipChain(members=100, subset=2)
    assert chain.incomplete(found.micro_steps) <= 1e-4 < chain.incomplete(found.micro_steps - 1)
    assert found.k_fail == math.ceil(found.micro_steps / 100)
    assert found.p_mistake_bound <= 1e-4
    assert found.detection_s_max == 2.0 * found.k_fail
