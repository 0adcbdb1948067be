"""`cubecast model` and `cubecast tune`: the answers of the formulas, as text, as JSON and as one line of error."""

from __future__ import annotations

import json
from typing import Any

import pytest

from cubecast.cli.app import run
from cubecast.models.failure import k_fail
from cubecast.models.gossip_chain import GossipChain


def run_json(capsys: pytest.CaptureFixture[str], *words: str, code: int = 0) -> Any:
    assert run([*words, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_gossip_steps_are_those_of_the_chain(capsys: pytest.CaptureFixture[str]) -> None:
    chain = GossipChain(members=60, subset=2, arrival=0.9)
    answer = run_json(
        capsys, "model", "gossip", "-n", "60", "--subset", "2", "--arrival", "0.9", "--p-incomplete", "0.01"
    )
    assert answer["steps"] == pytest.approx(chain.steps_for(0.01))
    assert answer["p_incomplete_by_step"][-1] <= 0.01 < answer["p_incomplete_by_step"][-2]
    assert run(["model", "gossip", "-n", "60"]) == 0
    assert "steps" in capsys.readouterr().out


def test_trigger_names_x_and_says_when_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("model", "trigger", "--buffer", "640", "--rate", "50", "--round-s", "2")
    assert run_json(capsys, *words)["level"] == 540
    assert run([*words]) == 0
    assert "540 of 640" in capsys.readouterr().out
    answer = run_json(capsys, "model", "trigger", "--buffer", "100", "--rate", "50", "--round-s", "2", code=1)
    assert answer["verdict"] == "infeasible"


def test_kfail_is_that_of_the_model(capsys: pytest.CaptureFixture[str]) -> None:
    answer = run_json(capsys, "model", "kfail", "-n", "50", "--step-s", "2", "--p-mistake", "1e-4")
    assert answer["k_fail"] == k_fail(members=50, p_mistake=1e-4, step_s=2.0).k_fail
    assert answer["detection_s_max"] == 2 * answer["k_fail"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["model", "gossip", "-n", "1"], "members=1"),
        (["model", "gossip", "-n", "x"], "'x' is not a whole number"),
        (["model", "kfail", "-n", "9", "--step-s", "0"], "step_s=0"),
        (["tune", "coord", "-n", "9"], "no step interval"),
        (["tune", "gossip", "-n", "9", "--subset", "0"], "subset = 0 of gossip: choose 1 or more"),
    ],
)
def test_a_mistake_is_one_line(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert said in error


def test_the_window_lies_around_the_fastest_step(capsys: pytest.CaptureFixture[str]) -> None:
    words = ("tune", "gossip", "-n", "30", "--network", "wan-tree", "--senders", "1", "--seeds", "2")
    answer = run_json(capsys, *words)
    assert 0 < answer["low_s"] <= answer["best_s"] <= answer["high_s"]
    inside = [one["tpr_s"] for one in answer["course"] if answer["low_s"] <= one["step_s"] <= answer["high_s"]]
    assert max(inside) < 1.5 * answer["tpr_s"]
    assert answer["runs"] >= len(answer["course"]) * 2
    assert run([*words]) == 0
    assert "any step from" in capsys.readouterr().out
