"""Protocols, networks, metrics and checkers of the user's own, by a file that a plan names."""

from __future__ import annotations

import json
import pickle
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import cubecast
from cubecast.cli.app import run
from cubecast.errors import LocalProtocolError, PlanError
from cubecast.lab.experiments import experiment_named
from cubecast.lab.load_plan import load_plan, plan_of_table
from cubecast.lab.metric_titles import title_of
from cubecast.lab.own_code import load_code_file
from cubecast.lab.runs import runs_of
from cubecast.lab.spark.own_code import shipped_files
from cubecast.trace.checkers import check_all
from tests.support.own_protocols import restored_catalogue

EXAMPLES = Path(__file__).parents[2] / "examples"
METRIC = """\
from cubecast.lab.own_metrics import OwnMetric
METRIC = OwnMetric(name="twice", measure=lambda result: 2.0 * result.messages)
"""
NETWORK = """\
from cubecast.networks.spec import NetworkKind
NETWORKS = {"mine": NetworkKind(len, (), "", "")}
"""
PLAN = """\
id = "own"
paper = "own"
title = "own"
protocols = ["coord"]
metrics = ["twice", "hops"]
[code]
files = ["mine.py"]
[fixed]
members = 4
network = "star"
[quick]
repeats = 1
[full]
repeats = 1
"""


@pytest.fixture(autouse=True)
def _forget() -> Iterator[None]:
    with restored_catalogue():
        yield


@pytest.fixture
def ladder(tmp_path: Path) -> Path:
    """The plan of the examples, with its file, in a folder of its own."""
    for name in ("ladder.py", "ladder.toml"):
        shutil.copy(EXAMPLES / name, tmp_path)
    return tmp_path / "ladder.toml"


def _fresh_code(plan: Path) -> tuple[str, str]:
    """Name and code of the first run, in a process of its own: sources are read once in each."""
    program = (
        "import sys; from pathlib import Path\n"
        "from cubecast.lab.load_plan import load_plan; from cubecast.lab.runs import runs_of\n"
        "run = runs_of(load_plan(Path(sys.argv[1])), 'quick')[0]; print(run.id, run.code)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, str(plan)], capture_output=True, text=True, check=True)
    name, code = done.stdout.split()
    return name, code


def test_a_run_has_the_metrics_and_the_network_of_the_file(ladder: Path) -> None:
    plan = load_plan(ladder)
    settings = runs_of(plan, "quick")[0].settings
    assert settings["own_metrics"] == ["busiest_share", "gap_ms", "violations_no_burst"]
    found = experiment_named("simulate").run(settings)
    assert found["gap_ms"] == pytest.approx(found["rtt_last_ms"] - found["rtt_first_ms"])
    assert 0 < found["busiest_share"] < 1
    assert found["violations_no_burst"] == 0.0
    assert title_of("gap_ms") == "last member after the first (ms)"


def test_metrics_of_the_file_leave_the_others_as_they_are(ladder: Path) -> None:
    settings = runs_of(load_plan(ladder), "quick")[0].settings
    without = {name: value for name, value in settings.items() if name != "own_metrics"}
    own, plain = experiment_named("simulate").run(settings), experiment_named("simulate").run(without)
    assert {name: own[name] for name in plain} == plain


def test_a_broken_promise_of_ones_own_is_counted_and_found_in_traces(ladder: Path, tmp_path: Path) -> None:
    file = ladder.with_name("ladder.py")
    file.write_text(file.read_text().replace("COPIES_MAX = 256", "COPIES_MAX = 2"))
    settings = next(one for one in runs_of(load_plan(ladder), "quick") if one.settings["protocol"] == "coord").settings
    assert experiment_named("simulate").run(settings)["violations_no_burst"] > 0
    trace = tmp_path / "run.parquet"
    cubecast.simulate("coord", members=8, network="ladder", trace=trace)
    report = check_all(cubecast.read_trace(trace))
    assert {one.checker for one in report.violations} == {"no burst"}


def test_check_takes_a_file_of_checkers(ladder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "run.parquet"
    cubecast.simulate("coord", members=8, network="star", trace=trace)
    assert run(["check", str(trace), "--checker-file", str(ladder.with_name("ladder.py")), "--json"]) == 0
    verdicts = {one["checker"]: one["status"] for one in json.loads(capsys.readouterr().out)["verdicts"]}
    assert verdicts["no burst"] == "kept"


def test_the_content_of_the_file_is_in_the_key_of_runs_that_use_it(tmp_path: Path) -> None:
    plan, file = tmp_path / "plan.toml", tmp_path / "mine.py"
    plan.write_text(PLAN)
    file.write_text(METRIC)
    name, code = _fresh_code(plan)
    file.write_text(METRIC + "# a comment\n")
    assert _fresh_code(plan) == (name, code)
    file.write_text(METRIC.replace("2.0", "3.0"))
    other, changed = _fresh_code(plan)
    assert other == name
    assert changed != code
    plan.write_text(PLAN.replace('"twice", ', ""))
    unused, plain = _fresh_code(plan)
    assert unused != name
    file.write_text(METRIC)
    assert _fresh_code(plan) == (unused, plain)


def test_the_content_of_a_network_of_ones_own_is_in_the_key(ladder: Path) -> None:
    ladder.write_text(ladder.read_text().replace('["gap_ms", "busiest_share"]', '"hops"').split("[[claim]]")[0])
    before = _fresh_code(ladder)
    file = ladder.with_name("ladder.py")
    file.write_text(file.read_text().replace("members - 2)", "members - 2) if node >= 0"))
    after = _fresh_code(ladder)
    assert after[0] == before[0]
    assert after[1] != before[1]


def test_a_machine_without_the_file_measures_what_was_shipped(ladder: Path, tmp_path: Path) -> None:
    settings = runs_of(load_plan(ladder), "quick")[0].settings
    expected = experiment_named("simulate").run(settings)["gap_ms"]
    (tmp_path / "shipped").write_bytes(pickle.dumps((shipped_files(), settings)))
    for path in (ladder, ladder.with_name("ladder.py")):
        path.unlink()
    program = (
        "import pickle, sys; from pathlib import Path\n"
        "from cubecast.lab.experiments import experiment_named\n"
        "from cubecast.lab.spark.own_code import load_shipped\n"
        "files, settings = pickle.loads(Path(sys.argv[1]).read_bytes()); load_shipped(files)\n"
        "print(repr(experiment_named('simulate').run(settings)['gap_ms']))\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "shipped")]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == repr(expected), done.stderr


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "declares nothing"),
        ("METRIC = 3", "METRIC = 3: it is not a metric"),
        ("CHECKER = 3", "CHECKER = 3: it is not a checker"),
        ("NETWORKS = ['x']", "write NETWORKS = {name: NetworkKind"),
        (METRIC.replace("twice", "messages"), "metric 'messages': choose a name"),
        (METRIC.replace("measure=", "reads='x', measure="), "choose result or trace"),
        (
            "from cubecast.networks.spec import NetworkKind\nNETWORKS = {'star': NetworkKind(len, (), '', '')}",
            "other than",
        ),
        ("1 / 0", "cannot be imported: division by zero"),
    ],
)
def test_a_file_that_declares_something_wrong_is_named_with_its_line(tmp_path: Path, source: str, message: str) -> None:
    (tmp_path / "plan.toml").write_text(PLAN)
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(PlanError, match=message) as caught:
        load_plan(tmp_path / "plan.toml")
    assert "plan.toml:7: " in str(caught.value)


def test_a_file_that_changed_since_it_was_loaded_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(METRIC)
    assert load_code_file(file) is load_code_file(file)
    file.write_text(METRIC.replace("2.0", "3.0"))
    with pytest.raises(LocalProtocolError, match="has changed since it was loaded: restart Python"):
        load_code_file(file)


def test_an_unknown_metric_of_ones_own_fails_the_run() -> None:
    settings = {"protocol": "coord", "members": 3, "network": "star", "seed": 0, "own_metrics": ["nothing"]}
    with pytest.raises(LocalProtocolError, match="unknown metric 'nothing': name the file"):
        experiment_named("simulate").run(settings)


def test_a_plan_without_a_file_names_the_key_that_is_wrong() -> None:
    table = {"id": "x", "paper": "own", "title": "x", "protocols": ["coord"], "fixed": {"members": 3}}
    sizes = {"quick": {"repeats": 0}, "full": {"repeats": 1}}
    with pytest.raises(PlanError, match=r"^plan: quick\.repeats: repeats = 0: choose from 1"):
        plan_of_table(table | sizes)
