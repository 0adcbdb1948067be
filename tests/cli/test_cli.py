"""The output and the exit codes of the command line."""

from __future__ import annotations

import json
import math
import shlex
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cubecast import __version__
from cubecast.cli.app import run
from cubecast.cli.output import print_json
from cubecast.trace.files import TraceWriter, read_trace
from cubecast.trace.schema import STABLE

SIMULATE = ["simulate", "coord", "--members", "5", "--network", "star"]
COMPARE = ["compare", "--members", "6", "--network", "chain"]
REQUIRED = {
    *("protocol", "members", "senders", "network", "seed", "rounds", "rtt_first_ms", "rtt_last_ms", "messages", "hops"),
    *("bytes", "load_mean", "queue_mean", "queue_max", "packet_hops_per_second", "wall_seconds"),
}


def run_json(capsys: pytest.CaptureFixture[str], arguments: list[str], *, code: int = 0) -> Any:
    """Run a command with --json and return what it printed."""
    assert run([*arguments, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def test_protocols_lists_family_paper_and_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    found = {protocol["name"]: protocol for protocol in run_json(capsys, ["protocols", "--family", "stability"])}
    assert {"coord", "full_dist", "s_coord", "cube_full_dist"} <= set(found)
    assert found["cube_full_dist"]["paper"] == "cube §3.2"
    assert all(protocol["summary"] for protocol in found.values())
    assert run(["protocols"]) == 0
    assert "hypercube neighbours" in capsys.readouterr().out


def test_networks_shows_every_spelling_in_full(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, ["networks"])
    assert run(["networks"]) == 0
    printed = capsys.readouterr().out
    for kind in found:
        assert kind["spelling"] in printed
        assert kind["description"] in printed


def test_simulate_prints_every_figure_that_programs_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, [*SIMULATE, "--senders", "2", "--seed", "4", "--rounds", "3"])
    assert set(result) >= REQUIRED
    assert (result["members"], result["senders"], result["seed"], result["rounds"]) == (5, 2, 4, 3)
    # Coord: a START, an ACK and an INFO for each of the other four, each round.
    assert result["messages"] == 3 * 3 * 4


def test_simulate_prints_a_table_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*SIMULATE, "--messages", "2"]) == 0
    printed = capsys.readouterr().out
    for line in ("RTT, last member", "packet-hops", "time to stable", "M packet-hops/s"):
        assert line in printed


def test_simulate_can_be_checked_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    result = run_json(capsys, [*SIMULATE, "--loss", "0.1", "--check"])
    assert result["check"]["ok"] is True
    assert run([*SIMULATE, "--check"]) == 0
    assert "no premature stability" in capsys.readouterr().out


def test_a_number_that_does_not_exist_is_null(capsys: pytest.CaptureFixture[str]) -> None:
    print_json({"rtt": math.nan, "more": [math.inf, 1.5], "none": None})
    assert json.loads(capsys.readouterr().out) == {"rtt": None, "more": [None, 1.5], "none": None}


def test_a_kept_trace_passes_and_a_broken_one_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kept, broken = tmp_path / "kept.parquet", tmp_path / "broken.parquet"
    assert run([*SIMULATE, "--trace", str(kept)]) == 0
    capsys.readouterr()
    assert run_json(capsys, ["check", str(kept)])["ok"] is True

    trace = read_trace(kept)
    events = trace.events.copy()
    row = int(np.flatnonzero(events["event"] == STABLE)[0])
    events["sequence"][row] = 1000
    with TraceWriter(broken, trace.scenario) as writer:
        writer.append(events)
        writer.finish(trace.metrics)
    report = run_json(capsys, ["check", str(broken)], code=1)
    premature = next(one for one in report["verdicts"] if one["checker"] == "no premature stability")
    assert premature["status"] == "broken"
    assert premature["violations"][0]["rows"][0] == row
    assert run(["check", str(broken)]) == 1
    assert f"row {row}" in capsys.readouterr().out


def test_unreadable_traces_of_a_folder_are_named_and_the_others_judged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept, cut, noise = (tmp_path / f"{name}.parquet" for name in ("kept", "cut", "noise"))
    assert run([*SIMULATE, "--trace", str(kept)]) == 0
    cut.write_bytes(kept.read_bytes()[:500])
    noise.write_bytes(b"no trace")
    capsys.readouterr()
    found = run_json(capsys, ["check", str(tmp_path)], code=1)
    assert found["ok"] is False
    by_name = {Path(one["trace"]).name: one for one in found["traces"]}
    assert {name: one["ok"] for name, one in by_name.items()} == {
        "kept.parquet": True,
        "cut.parquet": False,
        "noise.parquet": False,
    }
    assert "not a whole Parquet file" in by_name["cut.parquet"]["error"]
    assert run(["check", str(tmp_path)]) == 1
    told = capsys.readouterr()
    assert "no premature stability" in told.out
    assert str(noise) in told.err
    kept.unlink()
    assert run(["check", str(tmp_path)]) == 1
    assert str(cut) in capsys.readouterr().err


def test_compare_puts_all_protocols_of_a_family_side_by_side(capsys: pytest.CaptureFixture[str]) -> None:
    found = run_json(capsys, [*COMPARE, "--members", "4,8", "--repeat", "2"])
    cells = {(one["protocol"], one["members"]): one for one in found["summary"]}
    names = [protocol["name"] for protocol in run_json(capsys, ["protocols", "--family", "stability"])]
    assert set(cells) == {(name, members) for name in names for members in (4, 6, 8)}
    assert cells["full_dist", 8]["messages"] == {"mean": 8 * 7, "ci95": 0}
    assert {run["seed"] for run in found["runs"]} == {0, 1}


def test_compare_writes_tables_and_plots_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    picture, folder = tmp_path / "deep" / "plot.svg", tmp_path / "out"
    assert run([*COMPARE, "--protocols", "coord,full-dist", "--plot", str(picture), "--out", str(folder)]) == 0
    printed = capsys.readouterr().out
    assert "FullDist" in printed
    assert "CubeFullDist" not in printed
    written = [picture, *(folder / name for name in ("runs.csv", "summary.csv", "compare.html", "compare.png"))]
    for path in written:
        assert path.stat().st_size > 100
        assert f"wrote {path}" in printed
    assert sorted(folder.iterdir()) == sorted(written[1:]), "something half-written was left"


def test_a_run_that_cannot_end_leaves_with_1_and_its_replay_command(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["simulate", "full_dist", "--members", "12", "--packets-max", "3", "--seed", "5"]
    assert run(arguments) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    replay = shlex.split(error.split("replay: ")[1])
    assert replay[:5] == ["cubecast", "simulate", "full_dist", "--members", "12"]
    assert run(replay[1:]) == 1
    assert capsys.readouterr().err == error


def test_compare_reports_runs_that_cannot_end_and_continues(capsys: pytest.CaptureFixture[str]) -> None:
    found = [*COMPARE, "--members", "12", "--protocols", "full_dist,coord", "--packets-max", "40"]
    assert run([*found, "--json"]) == 1
    captured = capsys.readouterr()
    report = json.loads(captured.out)
    failed = {(one["protocol"], one["members"]): one["failed"] for one in report["summary"]}
    assert failed == {("full_dist", 6): 0, ("coord", 6): 0, ("full_dist", 12): 1, ("coord", 12): 0}
    assert len(report["failures"]) == 1
    assert captured.err == f"cubecast: {report['failures'][0]}\n"


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["simulate", "paxos", "-n", "5"], ["'paxos'", "coord"]),
        (["simulate", "coord", "-n", "1"], ["members = 1", "at least 2"]),
        (["simulate", "coord", "-n", "five"], ["--members", "'five'"]),
        (["simulate", "coord"], ["--members"]),
        (["simulate", "coord", "-n", "5", "-m", "9"], ["senders = 9", "5"]),
        (["simulate", "coord", "-n", "5", "--network", "random:p=2"], ["p=2", "0 to 1"]),
        (["simulate", "coord", "-n", "5", "--network", "lattice"], ["'lattice'", "random"]),
        (["simulate", "coord", "-n", "5", "--network", "file:none.txt"], ["none.txt"]),
        (["simulate", "coord", "-n", "5", "--loss", "1.5"], ["loss = 1.5"]),
        (["simulate", "coord", "-n", "5", "--loss", "nan"], ["loss = nan"]),
        (["node", "g", "--listen", "127.0.0.1:1", "--found", "--plaintext", "--rate", "nan"], ["--rate nan", "1e+06"]),
        (["node", "g", "--listen", "127.0.0.1:1", "--found", "--plaintext", "--rate", "-5"], ["--rate -5", "0 to"]),
        (["node", "g", "--listen", "127.0.0.1:1", "--plaintext"], ["--peer, --contact, --found", "none of them"]),
        (["node", "--found", "--plaintext"], ["'GROUP'", "cubecast node --help"]),
        (["status", "127.0.0.1:9"], ["127.0.0.1:9: Connection refused; start it with --status"]),
        (["status", "http://127.0.0.1:9/"], ["no member answers at 127.0.0.1:9: Connection refused"]),
        (["status", "127.0.0.1"], ["write host:port"]),
        (["demo", "--trace", "no-such-folder/run.parquet"], ["--trace no-such-folder/run.parquet", "no folder"]),
        (["keys", "issue", "127.0.0.1:1", "--folder", "none"], ["cubecast keys init --folder none"]),
        (["demo", "--seconds", "inf"], ["--seconds inf", "1e+06"]),
        (["simulate", "coord", "-n", "5", "--delta-ms", "inf"], ["delta_ms = inf"]),
        (["simulate", "coord", "-n", "5", "--seed", "-1"], ["seed = -1"]),
        (["simulate", "coord", "-n", "5", "--rounds", "0"], ["rounds = 0"]),
        (["simulate", "coord", "-n", "1000000000", "--network", "star"], ["members = 1000000000", "at most 67108863"]),
        (["simulate", "coord", "-n", "5", "--multicast", "radio"], ["--multicast", "'radio'", "copies"]),
        (["simulate", "coord", "-n", "5", "--crash", "7@1ms"], ["member 7", "0 to 4"]),
        (["simulate", "coord", "-n", "5", "--crash", "later"], ["'later'", "3@2ms"]),
        (["simulate", "coord", "-n", "5", "--crash", "3@5ms-2ms"], ["'3@5ms-2ms'"]),
        (["simulate", "coord", "-n", "5", "--crash", "3-1@5ms"], ["'3-1'"]),
        (["simulate", "coord", "-n", "5", "--suspect", "2@1ms-2ms"], ["suspicion"]),
        (["simulate", "coord", "-n", "5", "--partition", "2@1ms"], ["partition '2@1ms'"]),
        (["simulate", "coord", "-n", "5", "--trace", "no-such-folder/run.parquet"], ["no-such-folder/run.parquet"]),
        (["simulate", "coord", "-n", "5", "--what"], ["--what"]),
        (["simulate", "coord", "-n", "5", "--messages", "2000000000"], ["memory"]),
        (["compare", "-n", "5,many"], ["5,many"]),
        (["compare", "-n", "5", "--plot", "plot.gif"], ["plot.gif", ".svg"]),
        (["compare", "-n", "5", "--protocols", "coord,paxos"], ["'paxos'"]),
        (["compare", "-n", "5", "--family", "magic"], ["'magic'", "stability"]),
        (["compare", "-n", "5", "--repeat", "0"], ["0 seeds"]),
        (["compare", "-n", "5", "--out", "pyproject.toml/x"], ["pyproject.toml"]),
        (["compare", "-n", "5", "--out", "s3://bucket/x"], ["s3:/bucket/x", "a folder of this machine"]),
        (["check", "none.parquet"], ["none.parquet"]),
        (["check", "README.md"], ["README.md", "Parquet"]),
        (["bench", "--repeat", "0"], ["--repeat 0"]),
        (["protocols", "--family", "magic"], ["'magic'"]),
        (["simulte"], ["'simulte'"]),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_bad_input_is_one_line_that_names_it(
    arguments: list[str], named: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(Path(__file__).parents[2])
    assert run(arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("cubecast: ")
    assert captured.err.count("\n") == 1
    for word in named:
        assert word in captured.err


@pytest.mark.parametrize("command", ["protocols", "networks", "simulate", "compare", "check", "bench"])
def test_the_help_of_a_command_shows_how_to_use_it(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([command, "--help"]) == 0
    assert f"cubecast {command}" in capsys.readouterr().out.split("Example", 1)[1]


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["--version"]) == 0
    assert capsys.readouterr().out == f"cubecast {__version__}\n"
