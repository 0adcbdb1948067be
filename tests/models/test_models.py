"""Formulas against the processes they describe, and against impossible input."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.models.complexity import GroupSize, round_cost
from cubecast.models.failure import k_fail, k_fail_within, live_array_bytes
from cubecast.models.gossip_chain import GossipChain
from cubecast.models.step_search import SearchPlan, StepSearch, StepWindow
from cubecast.models.trigger import Feasibility, TriggerCase, trigger
from tests.oracles.models import peak_course, play_gossip, play_live_arrays
from tests.oracles.tree_hops import tree_hops


@pytest.mark.parametrize(("subset", "arrival"), [(1, 1.0), (2, 0.7), (3, 0.9), (5, 1.0)])
def test_chain_agrees_with_gossip_played_out(subset: int, arrival: float) -> None:
    n, micro_steps, runs = 8, 20, 1500
    rng = np.random.default_rng(7)
    seen = np.zeros(n + 1)
    for _ in range(runs):
        heard = play_gossip(n, subset, arrival, micro_steps, rng)
        seen[int(heard[:, 0].sum())] += 1
    expected = GossipChain(members=n, subset=subset, arrival=arrival).distribution(micro_steps)
    allowed = 4.5 * np.sqrt(expected * (1 - expected) / runs) + 2 / runs
    assert np.all(np.abs(seen / runs - expected) < allowed)


@pytest.mark.parametrize("subset", [1, 3])
def test_incomplete_is_a_bound_over_all_members(subset: int) -> None:
    n, runs = 8, 400
    chain, rng = GossipChain(members=n, subset=subset), np.random.default_rng(11)
    micro_steps = chain.micro_steps_for(0.2)
    unfinished = sum(not play_gossip(n, subset, 1.0, micro_steps, rng).all() for _ in range(runs)) / runs
    assert 0 < unfinished < 0.2 + 3 * math.sqrt(0.2 * 0.8 / runs)


@pytest.mark.parametrize("arrival", [1.0, 0.5])
def test_expected_micro_steps_with_subset_one_has_a_closed_form(arrival: float) -> None:
    n = 300
    harmonic = sum(1 / k for k in range(1, n))
    assert GossipChain(members=n, arrival=arrival).expected_micro_steps() == pytest.approx(
        2 * (n - 1) * harmonic / arrival
    )


def test_everybody_at_once_needs_only_the_infected_to_speak() -> None:
    chain = GossipChain(members=10, subset=9)
    assert chain.expected_micro_steps() == pytest.approx(10)
    assert chain.distribution(3)[1] == pytest.approx(0.9**3)


def test_tiny_probabilities_keep_their_digits() -> None:
    chain = GossipChain(members=10, subset=9)
    for target in (1e-6, 1e-18, 1e-60):
        assert chain.micro_steps_for(target) == math.ceil(math.log(target / 10) / math.log(0.9))


def test_five_thousand_members_need_about_35_steps() -> None:
    chain = GossipChain(members=5000)
    steps = chain.steps_for(1e-3)
    # The slow start and the last stragglers each decay like exp(−step): 2·ln n to the mean, ln(n/P) beyond it.
    assert 2 * math.log(5000) < steps < 3 * math.log(5000) + math.log(1e3) + 4


@pytest.mark.parametrize(
    ("n", "subset", "arrival", "steps"), [(10, 1, 1.0, 4000), (16, 1, 0.8, 2500), (16, 3, 1.0, 1500)]
)
def test_k_fail_keeps_false_suspicions_rare_in_the_protocol(n: int, subset: int, arrival: float, steps: int) -> None:
    worst = np.array(play_live_arrays(n, subset, arrival, steps, np.random.default_rng(3)))[30:]
    for p_mistake in (0.1, 0.01):
        threshold = k_fail(members=n, p_mistake=p_mistake, step_s=1.0, subset=subset, arrival=arrival).k_fail
        assert (worst >= threshold).mean() < p_mistake


def test_a_threshold_of_half_the_size_would_suspect_falsely() -> None:
    worst = np.array(play_live_arrays(10, 1, 1.0, 500, np.random.default_rng(5)))[30:]
    threshold = k_fail(members=10, p_mistake=0.01, step_s=1.0).k_fail
    assert (worst >= threshold // 2).mean() > 0.5


def test_loss_and_crashed_members_raise_k_fail() -> None:
    plain = k_fail(members=60, p_mistake=1e-3, step_s=1.0).k_fail
    assert k_fail(members=60, p_mistake=1e-3, step_s=1.0, arrival=0.7).k_fail > plain
    assert k_fail(members=60, p_mistake=1e-3, step_s=1.0, crashed=20).k_fail > plain
    assert k_fail(members=60, p_mistake=1e-3, step_s=1.0, subset=3).k_fail < plain


def test_bandwidth_and_step_are_two_sides_of_one_choice() -> None:
    found = k_fail_within(members=100, p_mistake=1e-3, bytes_per_s=66.0, subset=2)
    assert found.step_s == pytest.approx(2 * (32 + 100) / 66.0)
    assert found.bytes_per_s == pytest.approx(66.0)
    assert live_array_bytes(100, 255) == 132
    assert live_array_bytes(100, 256) == 232


def test_round_costs_add_up() -> None:
    group = GroupSize(members=100, senders=50)
    coord = round_cost("coord", group)
    assert (coord.unicasts, coord.multicasts, coord.copies) == (99, 2, 99 + 2 * 99)
    assert coord.sent_bytes == 32 + 99 * 232 + 232
    assert coord.copied_bytes == 99 * 32 + 99 * 232 + 99 * 232
    full = round_cost("full_dist", group)
    assert (full.copies, full.sent_bytes) == (100 * 99, 100 * 232)
    gossip = round_cost("gossip", GroupSize(members=100, senders=50, subset=3))
    assert gossip.steps == math.ceil(GossipChain(members=100, subset=3).steps_for(1e-3))
    assert gossip.unicasts == 300 * gossip.steps


def test_s_gossip_sends_less_than_gossip_in_a_large_group_and_the_same_in_one_local_group() -> None:
    large = GroupSize(members=500, senders=50)
    assert round_cost("s_gossip", large).unicasts < round_cost("gossip", large).unicasts
    small = GroupSize(members=50, senders=50)
    assert round_cost("s_gossip", small).unicasts == round_cost("gossip", small).unicasts


def test_tree_hops_of_a_small_tree_by_hand() -> None:
    # Root 0 with children 1, 2, 3; member 4 below 1.
    assert tree_hops("coord", 5) == (1 + 1 + 1 + 2) + 2 * 4
    assert tree_hops("full_dist", 5) == 5 * 4
    assert tree_hops("train", 5) == 2 * (1 + 2 + 2 + 3 + 2)
    assert tree_hops("s_coord", 5) == 4 + 2 * 4
    assert tree_hops("s_train", 5) == (1 + 2 + 2 + 1) + 2 * 4


def test_trigger_that_lasts_two_rounds_only_has_its_own_verdict() -> None:
    case = TriggerCase(buffer_messages=640, rate_per_s=100.0, round_s=2.0, stable_fraction=0.2)
    answer = trigger(case)
    assert answer.verdict is Feasibility.OVERFLOWS_LATER
    assert "take a buffer of 1200 messages" in answer.sentence
    assert answer.level is not None
    peaks = peak_course(case, answer.level, 30)
    assert max(peaks[:2]) <= 640 < max(peaks)
    assert max(peaks) == pytest.approx(1200, rel=0.01)


def test_trigger_lasts_up_to_the_level_that_back_to_back_rounds_tend_to() -> None:
    """r·f·(1 + 1/α) = 300 for r·f = 100, α = 0.5; the buffer that just holds it and one a little too small."""

    def answer(rate: float) -> tuple[Feasibility, float]:
        case = TriggerCase(buffer_messages=300, rate_per_s=rate, round_s=1.0, stable_fraction=0.5)
        found = trigger(case)
        assert found.level is not None
        return found.verdict, max(peak_course(case, found.level, 100))

    verdict, peak = answer(100.0)
    assert verdict is Feasibility.FEASIBLE
    assert peak == pytest.approx(300)
    verdict, peak = answer(101.0)
    assert verdict is Feasibility.OVERFLOWS_LATER
    assert peak > 300


def test_trigger_without_release_never_lasts() -> None:
    answer = trigger(TriggerCase(buffer_messages=640, rate_per_s=10.0, round_s=2.0, stable_fraction=0.0))
    assert answer.verdict is Feasibility.OVERFLOWS_LATER


def test_infeasible_trigger_says_what_to_change() -> None:
    answer = trigger(TriggerCase(buffer_messages=100, rate_per_s=50.0, round_s=2.0))
    assert answer.sentence == (
        "2·r·f = 200 messages do not fit a buffer of 100: take a buffer of 200 messages, or send at most 25/s, "
        "or make a round faster than 1 s"
    )
    with pytest.raises(LocalProtocolError, match="2·r·f = 200"):
        _ = answer.level_messages


PLAN = SearchPlan(shortest_s=0, longest_s=20, resolution_s=0.5, stride_s=0.25, tolerance=0.1)


def run_search(plan: SearchPlan, tpr: Callable[[float], float]) -> StepWindow:
    search = StepSearch(plan)
    for _ in range(10_000):
        step_s = search.next()
        if step_s is None:
            return search.result()
        search.report(step_s, tpr(step_s))
    raise AssertionError("the search does not end")


def test_search_measures_one_new_point_an_iteration() -> None:
    window = run_search(PLAN, lambda x: 10 + (x - 4) ** 2)
    points = {measured.step_s for measured in window.measurements}
    assert len(points) == len(window.measurements)
    # Two points at first, one more each further iteration, s itself, and at most one miss on each leg of the window.
    assert len(points) <= window.golden_iterations + 2 + window.window_iterations + 4


def test_search_to_the_edge_reaches_further_than_as_printed() -> None:
    def tpr(x: float) -> float:
        return 10.0 if 3 <= x <= 12.9 else 20.0 + abs(x - 8)

    printed = run_search(PLAN, tpr)
    edge = run_search(SearchPlan(**{**vars(PLAN), "to_the_edge": True}), tpr)
    assert edge.low_s <= printed.low_s
    assert edge.high_s >= printed.high_s
    assert 3 <= edge.low_s < 3 + PLAN.stride_s
    assert 12.9 - PLAN.stride_s < edge.high_s <= 12.9


def test_search_doubles_its_strides_and_then_halves_them() -> None:
    plan = SearchPlan(shortest_s=0, longest_s=100, resolution_s=1, stride_s=1, tolerance=0.1)
    window = run_search(plan, lambda x: 10.0 if x >= 30 else 40.0 - x)
    asked = [window.best_s - measured.step_s for measured in window.measurements]
    below = asked[asked.index(0.0) + 1 :]
    # Strides of 1 to 32 s stay above 30 s; 64 would leave the range; then 32 misses, and the printed loop ends.
    assert below[:6] == pytest.approx([1, 3, 7, 15, 31, 63])
    assert window.low_s == pytest.approx(window.best_s - 63)


def test_search_averages_noise_away() -> None:
    plan = SearchPlan(**{**vars(PLAN), "resolution_s": 1.0, "repeats": 4, "repeats_max": 60})
    misses = []
    for seed in range(20):
        rng = np.random.default_rng(seed)
        window = run_search(plan, lambda x, rng=rng: (20 + 2 * abs(x - 6)) * rng.normal(1, 0.07))  # type: ignore[misc]
        misses.append(abs(window.best_s - 6))
    assert np.median(misses) < 1.0
    assert max(misses) < 3.0


def test_search_measures_again_only_when_it_is_close() -> None:
    plan = SearchPlan(**{**vars(PLAN), "repeats": 2, "repeats_max": 50})
    window = run_search(plan, lambda x: 10 + (x - 4) ** 2)
    assert len(window.measurements) == 2 * len({measured.step_s for measured in window.measurements})


def test_search_walks_away_from_intervals_where_no_round_ends() -> None:
    window = run_search(PLAN, lambda x: math.inf if x < 9 else 10 + x)
    assert 9 <= window.low_s <= window.best_s < 10
    with pytest.raises(LocalProtocolError, match="no round ended"):
        run_search(PLAN, lambda _: math.inf)


def test_search_accepts_only_the_requested_interval() -> None:
    search = StepSearch(PLAN)
    asked = search.next()
    assert asked is not None
    assert asked == search.next()
    with pytest.raises(LocalProtocolError, match="the search asked for"):
        search.report(asked + 1, 10.0)
    with pytest.raises(LocalProtocolError, match="give a time above 0"):
        search.report(asked, math.nan)
    with pytest.raises(LocalProtocolError, match="still waits"):
        search.result()


@pytest.mark.parametrize(
    ("call", "line"),
    [
        (lambda: GossipChain(members=1), "members=1: give a whole number, 2 or more"),
        (lambda: GossipChain(members=5, subset=5), "subset=5: give a whole number, 1 to 4"),
        (lambda: GossipChain(members=5, arrival=0.0), "arrival=0.0: give a probability in (0, 1]"),
        (lambda: GossipChain(members=5, arrival=math.nan), "arrival=nan: give a probability in (0, 1]"),
        (lambda: GossipChain(members=5).micro_steps_for(1.0), "p_incomplete=1.0: give a probability in (0, 1)"),
        (lambda: GossipChain(members=5).distribution(-1), "micro_steps=-1: give a whole number, 0 or more"),
        (lambda: GossipChain(members=3000, arrival=1e-6).steps_for(0.1), "take fewer members or a higher arrival"),
        (lambda: GossipChain(members=5000, subset=4000), "subset=4000: too large to compute"),
        (lambda: k_fail(members=5, p_mistake=0.1, step_s=0.0), "step_s=0.0: give a finite number above 0"),
        (lambda: k_fail(members=5, p_mistake=0.1, step_s=1.0, crashed=4), "leave at least two alive"),
        (lambda: GroupSize(members=5, senders=6), "senders=6: give a whole number, 1 to 5"),
        (lambda: round_cost("bus", GroupSize(members=5, senders=1)), "protocol='bus': choose one of coord"),
        (lambda: TriggerCase(buffer_messages=0, rate_per_s=1, round_s=1), "buffer_messages=0"),
        (lambda: SearchPlan(**{**vars(PLAN), "shortest_s": 20.0}), "shortest_s=20.0: give 0 or more, below"),
        (lambda: SearchPlan(**{**vars(PLAN), "stride_s": 1e-9}), "would never end"),
        (lambda: SearchPlan(**{**vars(PLAN), "repeats": 3}), "repeats_max=1: give a whole number, 3 or more"),
    ],
)
def test_impossible_values_get_one_clear_line(call: Callable[[], object], line: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        call()
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
