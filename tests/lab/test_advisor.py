"""The advisor as a whole: what it searches, what it answers, and that a killed race continues."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from cubecast.cli.app import run as run_command
from cubecast.errors import LocalProtocolError
from cubecast.lab import advise
from cubecast.lab.advisor.candidates import candidates_of
from cubecast.lab.advisor.evidence import answer_text
from cubecast.lab.advisor.question import GroupQuestion, parse_budget, parse_rate, parse_time_ms
from cubecast.lab.advisor.workload import Workload, read_observation
from cubecast.lab.load_plan import load_plan
from cubecast.lab.pending_runs import find_pending_runs
from cubecast.lab.remote import path_of
from cubecast.lab.runs import runs_of
from cubecast.lab.store import Store
from cubecast.protocol.parameters import describe
from cubecast.protocols.catalogue import list_protocols, protocol_named
from tests.support.s3_server import own_bucket

SMALL: dict[str, Any] = {
    "members": 8,
    "network": "random:degree=3",
    "senders": 4,
    "rate": 50,
    "protocols": ["coord", "s_coord", "dissemination"],
}
CUBECAST = [sys.executable, "-c", "from cubecast.cli import main; main()"]
SECONDS_MAX = 600


# Questions.


def test_units_are_read() -> None:
    assert parse_budget("30kb/s") == 3750
    assert parse_budget("30 kB/s") == 30_000
    assert parse_rate("50/s") == 50
    assert parse_time_ms("1.5s") == 1500


@pytest.mark.parametrize("text", ["30", "kb/s", "-3kb/s", "30kb", "0kb/s", "30xb/s"])
def test_a_budget_without_a_unit_is_refused(text: str) -> None:
    with pytest.raises(LocalProtocolError, match="30kb/s or 4kB/s"):
        parse_budget(text)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"members": 1}, "at least 2"),
        ({"members": 10**29, "network": "star"}, "at most 67108863"),
        ({"optimise": "speed"}, "choose one of time-to-stable, bytes, buffer"),
        ({"network": "nowhere.graphml"}, "no such file"),
        ({"network": "nowhere"}, "unknown network"),
        ({"protocols": ["cord"]}, "unknown protocol"),
        ({"protocols": ["timestamp"]}, "does not detect stability"),
        ({"budget": 0.0}, "above 0"),
        ({"loss": 2.0}, "a probability"),
        ({"senders": 99}, "from 1 to the 8 members"),
        ({"placment": True}, "unknown setting 'placment'"),
        ({"transport": "udp"}, "unknown transport"),
        ({"transport": None}, "transport = None: write text in quotes"),
        ({"members": "8"}, "members = '8': write a whole number"),
        ({"members": 8.0}, "members = 8.0: write a whole number"),
        ({"loss": None}, "loss = None: write a number"),
        ({"network": 3}, "network = 3: write text in quotes"),
        ({"protocols": "coord"}, "protocols = 'coord': give a list of names"),
        ({"budget": [3]}, r"budget_bytes_per_s = \[3\]: give a value above 0"),
        ({"messages": 9}, "messages: the advisor determines it"),
        ({"delta_ms": 9.0}, "delta_ms: the advisor determines it"),
    ],
)
def test_a_bad_question_is_one_clear_line(asked: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        advise(**(SMALL | asked), out=tmp_path)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "--members is missing"),
        (["-n", "8", "--budget", "30"], "30kb/s or 4kB/s"),
        (["-n", "8", "--rate", "fast"], "such as 50/s"),
        (["-n", "8", "--within", "3"], "such as 200ms"),
        (["--from", "127.0.0.1:1"], "no status at this address"),
        (["--from", "two words:1"], "no status at this address"),
    ],
)
def test_a_bad_command_line_is_one_clear_line(
    words: list[str], said: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert run_command(["advise", *words, "--out", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


# Candidates.


def test_every_protocol_competes_with_each_value_that_it_declares() -> None:
    found = candidates_of(GroupQuestion(members=40, network="random:degree=5")).configurations
    assert {one.protocol for one in found} == {one.name for one in list_protocols("stability")}
    for entry in list_protocols("stability"):
        for name, info in describe(entry.parameters).items():
            tried = {dict(one.parameters).get(name, info.default) for one in found if one.protocol == entry.name}
            assert set(info.search) <= tried
            assert len(tried) == 1 + len(info.search) + len(info.search_factors)


def test_candidates_resolve_to_different_parameters() -> None:
    question = GroupQuestion(members=9, network="star")
    found = candidates_of(question).configurations
    assert len({(one.protocol, one.parameters, one.placement) for one in found}) == len(found)
    # A tree of 16 children and one of 8 are the same among 9 members, and so is the default of cascade.
    assert not any(dict(one.parameters).get("tree_degree") == 8 for one in found if one.protocol == "cascade")


def test_a_parameter_that_changes_nothing_beside_the_others_is_not_varied() -> None:
    found = candidates_of(GroupQuestion(members=40, network="star")).configurations
    for one in (one for one in found if one.protocol == "cascade"):
        given = dict(one.parameters)
        assert "radix" not in given or given["overlay"] == "dissemination"
        assert "linger" not in given or "overlay" not in given


def test_ranks_are_placed_only_where_that_can_matter() -> None:
    placed = {
        one.protocol for one in candidates_of(GroupQuestion(members=8, network="star")).configurations if one.placement
    }
    assert placed == {one.name for one in list_protocols("stability") if one.traffic is not None}
    flat = candidates_of(GroupQuestion(members=8, network="flat")).configurations
    assert not any(one.placement for one in flat)
    unasked = candidates_of(GroupQuestion(members=8, network="star", placement=False)).configurations
    assert not any(one.placement for one in unasked)


def test_a_protocol_that_cannot_serve_the_group_is_named_with_the_reason() -> None:
    needing = [one.name for one in list_protocols("stability") if one.links != "lossy"]
    found = candidates_of(GroupQuestion(members=8, network="star", loss=0.1))
    assert sorted(found.impossible) == sorted(needing)


def test_a_longer_pause_is_watched_for_longer() -> None:
    question = GroupQuestion(members=8, network="star", rate=50)
    workload = Workload(question)
    from cubecast.lab.advisor.candidates import Candidate

    one = candidates_of(question).configurations[0]
    short, long = (workload.settings(Candidate(one, delta_ms))["messages"] for delta_ms in (0.0, 500.0))
    assert long / question.rate * 1e3 >= 4 * 500
    assert short < long


def test_the_pause_after_the_last_round_counts_for_its_bytes() -> None:
    """Four rounds of 10 ms with pauses of 90 ms: 310 ms are simulated, and 400 are paid for."""
    metrics = {"tts_last_ms": 1.0, "buffer_mean": 1.0, "messages": 40.0, "bytes": 800.0, "rounds": 4.0}
    paused = read_observation(metrics | {"simulated_ms": 310.0}, members=2, delta_ms=90.0)
    assert paused is not None
    assert paused.bytes_per_s == pytest.approx(800 / 0.4 / 2)
    # A protocol that has four rounds in 40 ms does not pause for 90.
    steady = read_observation(metrics | {"simulated_ms": 40.0}, members=2, delta_ms=90.0)
    assert steady is not None
    assert steady.bytes_per_s == pytest.approx(800 / (0.04 + 0.04 / 3) / 2)


# Answers.


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a question with a budget."""
    place = tmp_path_factory.mktemp("advice")
    advise(**SMALL, budget="40kb/s", out=place)
    return place


def answer_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "advice.json").read_text("utf-8"))
    return found


def test_the_first_keeps_the_budget_and_is_about_as_fast_as_any(folder: Path) -> None:
    answer = answer_of(folder)
    assert answer["best"]["bytes_per_member_s"] <= 5000
    fitting = [row for row in answer["ranking"] if row["fits"]]
    times_ms = [row["time_to_stable_ms"] for row in fitting]
    assert times_ms[0] <= 1.05 * min(times_ms)
    dropped_ms = [row["time_to_stable_ms"] for row in fitting if row["probability_best"] is None]
    assert dropped_ms == sorted(dropped_ms)
    assert {row["protocol"] for row in answer["ranking"]} == set(SMALL["protocols"])
    assert answer["live"]["settings"].startswith(f'Settings(stability="{answer["best"]["protocol"]}"')
    chances = [row["probability_best"] for row in answer["ranking"] if row["probability_best"] is not None]
    assert sum(chances) <= 1 + 1e-9


def test_the_settings_for_a_live_group_are_valid(folder: Path) -> None:
    from cubecast.member.settings import Settings

    settings = eval(answer_of(folder)["live"]["settings"], {"Settings": Settings})
    assert settings.stability_entry is protocol_named(answer_of(folder)["best"]["protocol"])


def test_the_same_question_gives_the_same_answer_byte_for_byte(folder: Path, tmp_path: Path) -> None:
    advise(**SMALL, budget="40kb/s", out=tmp_path)
    for name in ("advice.json", "plan.toml"):
        assert (tmp_path / name).read_bytes() == (folder / name).read_bytes()


def test_another_seed_draws_other_networks(folder: Path, tmp_path: Path) -> None:
    advise(**SMALL, budget="40kb/s", seed=100, out=tmp_path)
    assert (tmp_path / "advice.json").read_bytes() != (folder / "advice.json").read_bytes()


def test_the_plan_repeats_the_final_and_its_runs_are_done_already(folder: Path) -> None:
    runs = runs_of(load_plan(folder / "plan.toml"), "quick")
    answer = answer_of(folder)
    finalists = [row for row in answer["ranking"] if row["probability_best"] is not None]
    assert len(runs) == sum(row["seeds"] for row in finalists)
    assert find_pending_runs(Store(folder), runs).pending == []


def test_the_page_shows_the_ranking_and_works_offline(folder: Path) -> None:
    page = (folder / "advice.html").read_text("utf-8")
    assert "Pareto front" in page
    assert "cubecast simulate" in page
    assert "src=" not in page.split("<script", 1)[0]


def test_asked_again_it_simulates_nothing(folder: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()}
    advise(**SMALL, budget="40kb/s", out=folder)
    assert {path: path.stat().st_mtime_ns for path in (folder / "runs").iterdir()} == files


def test_an_advice_in_a_store_is_that_of_a_folder(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    with own_bucket(tmp_path) as bucket:
        words = ["-n", "8", "--network", "random:degree=3", "-m", "4", "--rate", "50", "--budget", "40kb/s"]
        words += ["--protocols", "coord,s_coord,dissemination", "--out", bucket.format("/advice")]
        assert run_command(["advise", *words]) == 0
        assert f"report {path_of(bucket.format('/advice')) / 'advice.html'}" in capsys.readouterr().out.replace(
            "\n", ""
        )
        for name in ("advice.json", "plan.toml"):
            assert (path_of(bucket.format("/advice")) / name).read_bytes() == (folder / name).read_bytes()
        assert run_command(["advise", *words, "--from", "127.0.0.1:1"]) == 2
        assert "give a folder of this machine" in capsys.readouterr().err
    assert not (tmp_path / "s3a:").exists()


def test_a_budget_that_nothing_keeps_is_said(tmp_path: Path) -> None:
    advice = advise(**SMALL, budget=0.5, out=tmp_path)
    assert advice.verdict == "nothing fits"
    assert advice.best is None
    assert "No candidate satisfies the limits" in answer_text(advice)
    assert answer_of(tmp_path)["live"] is None


def test_what_the_group_runs_now_is_compared_with_the_advice(tmp_path: Path) -> None:
    current = {"protocol": "coord", "parameters": {}, "round_every_s": 0.1}
    advice = advise(**SMALL, current=current, out=tmp_path)
    assert advice.current is not None
    assert advice.best is not None
    assert advice.current.seeds == advice.best.seeds
    assert advice.current.time_ms.value > advice.best.time_ms.value
    assert "The group now runs Coord, Δ 100 ms" in answer_text(advice)


def test_the_fewest_bytes_within_a_time(tmp_path: Path) -> None:
    advice = advise(**SMALL, optimise="bytes", within="100ms", out=tmp_path)
    assert advice.best is not None
    assert advice.best.time_ms.value <= 100
    fitting = [row.bytes_per_s.value for row in advice.ranking if row.fits]
    assert fitting[0] <= 1.05 * min(fitting)
    dropped = [row.bytes_per_s.value for row in advice.ranking if row.fits and row.probability is None]
    assert dropped == sorted(dropped)


ASKED = ["advise", "-n", "40", "--network", "random:degree=4", "--senders", "8", "--rate", "50/s", "--loss", "0.02"]


def command(folder: Path) -> list[str]:
    return [*CUBECAST, *ASKED, "--protocols", "coord,s_coord", "--budget", "40kb/s", "--out", str(folder), "--json"]


def test_a_killed_race_continues_where_it_was(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = subprocess.run(command(whole), capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    process = subprocess.Popen(command(killed), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + SECONDS_MAX
    while process.poll() is None and not list((killed / "runs").glob("*.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    process.wait()
    kept = set((killed / "runs").glob("*.parquet"))
    assert kept
    assert not (killed / "advice.json").exists()
    again = subprocess.run(command(killed), capture_output=True, text=True, timeout=SECONDS_MAX, check=True)
    assert json.loads(again.stdout) == json.loads(done.stdout)
    assert (killed / "advice.json").read_bytes() == (whole / "advice.json").read_bytes()
    assert kept <= set((killed / "runs").glob("*.parquet"))


def test_the_command_prints_ranking_front_cost_and_evidence(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["-n", "8", "--network", "random:degree=3", "--senders", "4", "--rate", "50/s", "--budget", "40kb/s"]
    assert run_command(["advise", *words, "--protocols", ",".join(SMALL["protocols"]), "--out", str(folder)]) == 0
    printed = capsys.readouterr().out
    for word in ("probability", "live: Settings(", "costs: ", "ranking", "Pareto front", "advice.html", "plan.toml"):
        assert word in printed
