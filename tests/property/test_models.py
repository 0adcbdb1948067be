"""What must hold of the formulas for every group."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cubecast.models import trees
from cubecast.models.gossip_chain import GossipChain
from cubecast.models.gossip_kernel import unfinished_course
from cubecast.models.step_search import SearchPlan, StepSearch
from cubecast.models.trigger import Feasibility, TriggerCase, trigger
from tests.oracles.models import peak_course
from tests.oracles.processed import child_counts
from tests.oracles.tree_hops import EXACT_PROTOCOLS, distance, tree_hops


@st.composite
def chains(draw: st.DrawFn) -> GossipChain:
    members = draw(st.integers(2, 40))
    return GossipChain(
        members=members,
        subset=draw(st.integers(1, members - 1)),
        arrival=draw(st.floats(0.05, 1.0)),
        crashed=draw(st.integers(0, members - 2)),
    )


@given(chains())
def test_increments_of_every_state_sum_to_one_and_the_last_state_absorbs(chain: GossipChain) -> None:
    increments = chain.increments()
    assert np.all(increments >= 0)
    np.testing.assert_allclose(increments[:, 1:].sum(axis=0), 1.0, rtol=1e-12)
    assert increments[0, chain.live] == 1.0
    for j in range(1, chain.subset + 1):
        assert np.all(increments[j, max(0, chain.live - j + 1) :] == 0)  # only live members can be infected


@given(chains(), st.integers(0, 200))
def test_distribution_sums_to_one_and_agrees_with_the_backward_equation(chain: GossipChain, micro_steps: int) -> None:
    distribution = chain.distribution(micro_steps)
    assert abs(distribution.sum() - 1) < 1e-10
    unfinished = distribution[:-1].sum()
    assert abs(chain.incomplete(micro_steps) - min(1.0, chain.live * unfinished)) < 1e-10


@given(chains(), st.integers(1, 300))
def test_incomplete_never_grows(chain: GossipChain, micro_steps: int) -> None:
    course = chain.incomplete_course(micro_steps)
    assert np.all(np.diff(course) <= 1e-15)


@settings(deadline=None)
@given(chains(), st.floats(1e-6, 0.5))
def test_micro_steps_for_is_the_first_that_suffices(chain: GossipChain, target: float) -> None:
    found = chain.micro_steps_for(target)
    course = chain.incomplete_course(found)
    assert course[-1] <= target * (1 + 1e-12)
    assert found == 0 or course[-2] > target * (1 - 1e-12)


@settings(deadline=None)
@given(chains())
def test_expected_micro_steps_is_the_sum_of_the_tail(chain: GossipChain) -> None:
    mean = chain.expected_micro_steps()
    # Beyond 40 means less than 2^-20 of the mean is left (Markov's inequality, twice the mean at a time).
    tail = unfinished_course(chain.increments(), math.ceil(40 * mean))
    assert tail.sum() == pytest.approx(mean, rel=1e-5)


@given(st.integers(2, 400), st.integers(1, 9))
def test_tree_helpers_agree_with_walking_the_tree(members: int, degree: int) -> None:
    depths = trees.depths(members, degree)
    assert all(depths[rank] == distance(0, rank, degree) for rank in range(members))
    assert child_counts(members, degree).sum() == members - 1
    assert trees.height(members, degree) == depths.max()
    assert trees.train_steps(members, degree) <= degree * depths.max() + 2
    assert min(tree_hops(protocol, members, degree) for protocol in EXACT_PROTOCOLS) >= members - 1


@given(st.integers(1, 2000), st.floats(0.1, 500), st.floats(0.01, 10), st.floats(0, 1))
def test_feasible_trigger_never_overflows(buffer: int, rate: float, round_s: float, fraction: float) -> None:
    case = TriggerCase(buffer_messages=buffer, rate_per_s=rate, round_s=round_s, stable_fraction=fraction)
    answer = trigger(case)
    assert "\n" not in answer.sentence
    if answer.verdict is Feasibility.INFEASIBLE:
        assert 2 * rate * round_s > buffer
        return
    assert answer.level is not None
    if answer.level <= 0:
        return
    room = buffer * (1 + 1e-9)
    assert max(peak_course(case, answer.level, 2)) <= room
    if answer.verdict is Feasibility.FEASIBLE:
        assert max(peak_course(case, answer.level, 200)) <= room


@settings(deadline=None)
@given(
    st.floats(0.1, 19.9),
    st.floats(0.1, 10),
    st.floats(0.1, 10),
    st.floats(0.1, 3),
    st.floats(0.05, 3),
    st.booleans(),
)
def test_search_finds_a_near_minimum_and_a_window_within_the_tolerance(
    least: float, left: float, right: float, resolution: float, stride: float, to_the_edge: bool
) -> None:
    def tpr(x: float) -> float:
        return 10 + (left * (least - x) if x < least else right * (x - least))

    plan = SearchPlan(
        shortest_s=0, longest_s=20, resolution_s=resolution, stride_s=stride, tolerance=0.1, to_the_edge=to_the_edge
    )
    search = StepSearch(plan)
    for _ in range(2000):
        step_s = search.next()
        if step_s is None:
            break
        assert 0 < step_s <= 20
        search.report(step_s, tpr(step_s))
    window = search.result()
    assert abs(window.best_s - least) <= resolution
    assert 0 < window.low_s <= window.best_s <= window.high_s <= 20
    for edge in (window.low_s, window.high_s):
        # A reused point may lie a hundredth of the resolution beside the edge.
        slack = max(left, right) * 0.01 * resolution
        assert abs(tpr(edge) - window.best_value) <= 0.1 * window.best_value + slack + 1e-9
