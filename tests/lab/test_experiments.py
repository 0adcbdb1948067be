"""What a run can be: formulas, searches, bad samples, and networks spelled with parameters."""

from __future__ import annotations

import math
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError, OutOfTimeError, SimulationError
from cubecast.lab.experiments import check_run, experiment_named, scenario_of
from cubecast.lab.packing import costs_of
from cubecast.lab.runs import Run

GOSSIP = {"protocol": "gossip", "members": 20, "network": "wan-tree", "senders": 5, "seed": 0}


def test_words_in_braces_are_taken_from_the_parameters() -> None:
    settings = {"protocol": "coord", "members": 8, "network": "random:degree={degree},delay={delay}", "seed": 0}
    scenario = scenario_of({**settings, "degree": 3, "delay": "5ms"})
    assert scenario.network == "random:degree=3,delay=5ms"
    with pytest.raises(LocalProtocolError, match="no parameter 'delay'"):
        scenario_of({**settings, "degree": 3})


def test_a_run_that_takes_too_long_is_a_bad_sample_only_where_the_plan_says_so() -> None:
    run = experiment_named("simulate").run
    with pytest.raises(OutOfTimeError):
        run({**GOSSIP, "until_ms": 10.0})
    assert run({**GOSSIP, "until_ms": 10.0, "bad_samples": True}) == {"ended": 0.0}
    assert run({**GOSSIP, "bad_samples": True})["ended"] == 1.0


def test_a_run_that_fails_for_another_reason_is_no_bad_sample() -> None:
    with pytest.raises(SimulationError, match="packets_max") as caught:
        experiment_named("simulate").run({**GOSSIP, "packets_max": 1, "bad_samples": True})
    assert not isinstance(caught.value, OutOfTimeError)


@pytest.mark.parametrize(
    ("wrong", "setting"),
    [
        ({"members": 1}, "members"),
        ({"protocol": "carrier_pigeon"}, "protocol"),
        ({"transport": "carrier_pigeon"}, "transport"),
        ({"subset": 0}, "subset"),
        ({"detector": "gossip", "detector_step_ms": -1.0}, "detector_step_ms"),
        ({"crashes": "never"}, "crashes"),
        ({"crashes": "99@2ms"}, "crashes"),
        ({"network": "randon"}, "network"),
        ({"bad_samples": 1}, "bad_samples"),
        ({"membres": 8}, "membres"),
    ],
)
def test_an_error_names_its_setting(wrong: dict[str, object], setting: str) -> None:
    with pytest.raises(LocalProtocolError) as caught:
        check_run("simulate", {**GOSSIP, **wrong}, set())
    assert caught.value.setting == setting


def test_the_formula_of_a_round_is_what_the_simulator_counts() -> None:
    settings = {"protocol": "full_dist", "members": 16, "network": "random:degree=3", "seed": 0}
    found = experiment_named("round_cost").run(settings)
    assert found["messages"] == found["measured_messages"] == 16 * 15
    assert found["sent_bytes"] == found["measured_bytes"]


def test_causal_costs_cross_where_the_formula_says() -> None:
    cost = experiment_named("causal_cost").run
    at = cost({"protocol": "overlay", "members": 100, "payload_bytes": 0})["crossover_bytes"]
    for payload, cheaper in ((math.floor(at), "overlay"), (math.ceil(at) + 1, "timestamp")):
        sent = {
            name: cost({"protocol": name, "members": 100, "payload_bytes": payload})["sent_bytes"]
            for name in ("overlay", "timestamp")
        }
        assert min(sent, key=lambda name: sent[name]) == cheaper
    with pytest.raises(LocalProtocolError, match="choose one of timestamp, overlay"):
        check_run("causal_cost", {"protocol": "coord", "members": 8, "payload_bytes": 0}, set())


def test_the_search_finds_a_window_around_its_best_step() -> None:
    settings = {**GOSSIP, "seeds": 1, "longest_s": 2.0, "resolution_s": 0.5, "stride_s": 0.25}
    found = experiment_named("step_search").run(settings)
    assert 0 < found["low_s"] <= found["best_s"] <= found["high_s"] <= 2.0
    assert found["window_s"] == pytest.approx(found["high_s"] - found["low_s"])
    with pytest.raises(LocalProtocolError, match="has no step interval"):
        check_run("step_search", {**settings, "protocol": "coord"}, set())


def test_a_tree_without_paths_from_the_source_reaches_no_member() -> None:
    ring = {"protocol": "plumtree", "members": 100, "degree": 2, "loss": 0.02, "hubs": 0.2}
    found = [experiment_named("grow_tree").run({**ring, "seed": seed}) for seed in range(3, 5)]
    torn = [one for one in found if one["attached"] == 0]
    assert torn
    assert all(one["reliability"] == 0 for one in torn)


@pytest.mark.parametrize(
    ("experiment", "settings", "message"),
    [
        ("causal_cost", {"protocol": "overlay", "members": 16}, "payload_bytes is missing"),
        ("causal_cost", {"protocol": ["overlay"], "members": 16, "payload_bytes": 1}, r"protocol = \['overlay'\]"),
        ("causal_cost", {"protocol": "overlay", "members": 10**12, "payload_bytes": 1}, "at most 67108863"),
        ("gossip_chain", {"members": 16}, "p_incomplete is missing"),
        ("gossip_chain", {"members": "x", "p_incomplete": 0.1}, "members = 'x': write a number"),
        ("overlay_shape", {}, "members is missing"),
        ("overlay_shape", {"members": 8.5}, "a whole number, at least 3"),
        ("failure_threshold", {"members": 16, "p_mistake": 0.1}, "bytes_per_s is missing"),
        ("trigger", {"buffer_messages": 10, "rate_per_s": 1.0}, "round_s is missing"),
        ("trigger", {"buffer_messages": 10, "rate_per_s": True, "round_s": 1.0}, "rate_per_s = True: write a number"),
        ("grow_tree", {"members": 100}, "protocol is missing"),
        ("grow_tree", {"protocol": "plumtree", "packets": 2.5}, "packets = 2.5: write a whole number"),
        ("step_search", {"protocol": "gossip", "members": 8, "longest_s": ""}, "longest_s = '': write a number"),
    ],
)
def test_a_setting_that_is_missing_or_of_a_wrong_type_is_named(
    experiment: str, settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(LocalProtocolError, match=message):
        check_run(experiment, settings | {"seed": 0}, set())


def test_the_estimated_time_has_no_routes_where_the_network_has_none() -> None:
    cost = experiment_named("simulate").cost
    large = {"protocol": "dissemination", "members": 20_000, "rounds": 1, "seed": 0}
    assert cost(large | {"network": "flat"}) < 1
    assert cost(large | {"network": "random:degree=5"}) > 10


def test_the_runs_of_a_point_have_one_estimate() -> None:
    common = {"protocol": "coord", "members": 8, "network": "random:degree=3"}
    runs = [Run(study="", experiment="simulate", common=common, seed=seed, point={}) for seed in range(5)]
    slower = Run(study="", experiment="simulate", common=common | {"rounds": 50}, seed=0, point={})
    estimates = costs_of([*runs, slower])
    assert len(set(estimates[:5])) == 1
    assert estimates[5] > estimates[0]
