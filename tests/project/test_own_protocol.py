"""A custom protocol in one file outside of the package: simulated, checked, and live between processes."""

from __future__ import annotations

import json
import os
import pickle
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from cubecast.cli.app import run
from cubecast.lab.source_hash import source_hash
from cubecast.lab.spark.own_code import shipped_files
from cubecast.live.demo import fetch_status
from cubecast.live.local import free_addresses
from cubecast.networks.spec import build_network
from cubecast.protocols.catalogue import ENVIRONMENT, load_protocol_file
from cubecast.sim.simulate import simulate, trace_scenario
from cubecast.trace.checkers import check_all
from tests.sim.causal_runs import broken_promises, crashing_scenario
from tests.sim.random_scenarios import random_scenario
from tests.support.own_protocols import restored_catalogue
from tests.support.pledge import round_messages, write_pledge

WAIT_S = 120
MEMBERS = 4
LINES = 25
EXAMPLES = Path(__file__).parents[2] / "examples"
COMMAND = [sys.executable, "-c", "from cubecast.cli import main; main()"]
LIGHT = {**os.environ, "CUBECAST_JIT": "off"}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The file; its registration is undone after the test."""
    monkeypatch.setenv(ENVIRONMENT, "")
    with restored_catalogue():
        yield write_pledge(tmp_path / "own")


@pytest.fixture(scope="module")
def examples() -> Iterator[None]:
    """The protocols of the examples, registered while these tests run."""
    with restored_catalogue():
        for path in EXAMPLE_FILES:
            load_protocol_file(path)
        yield


def test_it_is_simulated_and_checked_with_its_parameter(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "pledge", "--protocol-file", str(own), "-n", "9", "--copies", "3", "--rounds", "2"]
    assert run([*words, "--network", "star", "--check", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["messages"] == 2 * round_messages(9, 3)
    assert result["check"]["ok"]


def test_a_parameter_before_the_protocol_is_known_from_the_file(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--copies", "2", "pledge", "--protocol-file", str(own), "-n", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["messages"] == round_messages(5, 2)


def test_the_command_that_replays_a_run_names_its_file(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["simulate", "pledge", "--protocol-file", str(own), "-n", "5", "--copies", "2"]
    with restored_catalogue():
        assert run([*words, "--packets-max", "1"]) == 1
    replay = shlex.split(capsys.readouterr().err.partition("replay: ")[2])
    assert run(replay[1:]) == 1, "the file makes the protocol known again"
    assert shlex.split(capsys.readouterr().err.partition("replay: ")[2]) == replay
    assert replay.count("--protocol-file") == 1
    assert run(["simulate", "coord", "-n", "5", "--packets-max", "1"]) == 1
    assert "--protocol-file" not in capsys.readouterr().err


def test_its_parameter_is_held_to_its_range(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "pledge", "--protocol-file", str(own), "-n", "5", "--copies", "9"]) == 2
    assert "copies = 9 of pledge: choose from 1 to 8" in capsys.readouterr().err


@pytest.mark.usefixtures("own")
def test_a_parameter_with_the_name_of_a_setting_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_pledge(tmp_path / "named", ("    copies: int = parameter(", "    rounds: int = parameter("))
    assert run(["simulate", "pledge", "--protocol-file", str(path), "-n", "5"]) == 2
    expected = "cubecast: parameter rounds of pledge has the name of a setting of every run: rename it\n"
    assert capsys.readouterr().err == expected


def test_it_stands_beside_the_others_in_a_comparison(own: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "-n", "8", "--protocols", "pledge,coord", "--protocol-file", str(own), "--network", "star"]
    assert run([*words, "--copies", "2", "--json"]) == 0
    assert '"pledge"' in capsys.readouterr().out


def test_processes_started_later_know_it(own: Path) -> None:
    assert run(["protocols", "pledge", "--protocol-file", str(own)]) == 0
    child = subprocess.run(
        [*COMMAND, "protocols", "pledge"], env={**os.environ}, capture_output=True, text=True, check=False
    )
    assert child.returncode == 0, child.stderr
    assert "copies" in child.stdout


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("missing.py", None, "there is no such file"),
        ("notes.txt", "PROTOCOL = 1", "give it the name of a Python module"),
        ("two.words.py", "PROTOCOL = 1", "give it the name of a Python module"),
        ("empty_one.py", "", "has no PROTOCOL"),
        ("number_one.py", "PROTOCOL = 1", "has PROTOCOL = 1"),
        (
            "single_one.py",
            "from cubecast.protocols.catalogue import list_protocols\nPROTOCOLS = list_protocols()[0]",
            "has one protocol in PROTOCOLS",
        ),
        ("strange_one.py", "x = 1\ny = strange\n", "cannot be imported: name 'strange' is not defined (line 2)"),
        ("open_one.py", "x = (", "cannot be imported"),
        ("json.py", "", "another module is called 'json'"),
    ],
)
@pytest.mark.usefixtures("own")
def test_a_missing_or_wrong_file_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, text: str | None, expected: str
) -> None:
    if text is not None:
        (tmp_path / name).write_text(text)
    assert run(["simulate", "pledge", "-n", "4", "--protocol-file", str(tmp_path / name)]) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert error.count("\n") == 1


def _hash_of(folder: Path, *edits: tuple[str, str], **settings: object) -> str:
    with restored_catalogue():
        load_protocol_file(write_pledge(folder, *edits))
        return source_hash({"protocol": "pledge", "members": 8, "seed": 0, **settings})


@pytest.mark.parametrize("settings", [{}, {"churn_per_s": 1.0}])
@pytest.mark.usefixtures("own")
def test_the_content_of_the_file_is_part_of_the_key_of_a_run(tmp_path: Path, settings: dict[str, object]) -> None:
    """Its program is; its comments, its docstrings and its place are not."""
    first = _hash_of(tmp_path / "a", **settings)
    assert _hash_of(tmp_path / "zz", ('"""Pledge: everybody', '"""Here everybody'), **settings) == first
    assert _hash_of(tmp_path / "b", ("at_most=8", "at_most=9"), **settings) != first


def test_a_machine_without_the_file_runs_what_was_shipped(own: Path, tmp_path: Path) -> None:
    """Another process, another working directory, the file gone: with the module that it imports."""
    (own.parent / "pledge_names.py").write_text('TITLE = "Pledge"\n')
    own.write_text(own.read_text().replace("import cubecast\n", "import cubecast\nimport pledge_names\n", 1))
    load_protocol_file(own)
    shipped = tmp_path / "shipped"
    shipped.write_bytes(pickle.dumps(shipped_files()))
    shutil.rmtree(own.parent)
    program = (
        "import pickle, sys, cubecast; from pathlib import Path\n"
        "from cubecast.lab.spark.own_code import load_shipped\n"
        "for _ in range(2): load_shipped(pickle.loads(Path(sys.argv[1]).read_bytes()))\n"
        "print(cubecast.simulate('pledge', members=5, copies=2).messages)\n"
    )
    (tmp_path / "elsewhere").mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program, str(shipped)],
        cwd=tmp_path / "elsewhere",
        env={**LIGHT, "CUBECAST_CACHE_DIR": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.strip() == str(round_messages(5, 2)), done.stderr


def test_a_worker_refuses_other_content_under_the_same_name(own: Path, tmp_path: Path) -> None:
    load_protocol_file(own)
    [shipped] = shipped_files()
    changed = shipped._replace(files=tuple((name, content + b"\n") for name, content in shipped.files))
    (tmp_path / "both").write_bytes(pickle.dumps([[shipped], [changed]]))
    program = (
        "import pickle, sys; from pathlib import Path\n"
        "from cubecast.lab.spark.own_code import load_shipped\n"
        "for one in pickle.loads(Path(sys.argv[1]).read_bytes()): load_shipped(one)\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path / "both")]
    done = subprocess.run(words, env=LIGHT, capture_output=True, text=True, check=False)
    assert "pledge.py has changed since this worker loaded it" in done.stderr


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("seed", [*range(60), 102, 248, 461])
def test_doubling_keeps_its_promises_whatever_happens(seed: int) -> None:
    """Loss, duplicates, reordering, crashes, recoveries, suspicions and joins."""
    scenario = replace(random_scenario(seed, ["doubling"]), parameters={"radix": 2 + seed % 5})
    network = build_network(scenario.network, members=scenario.members, seed=seed)
    report = check_all(trace_scenario(scenario, network))
    assert report.ok, f"{scenario.command()}\n" + "\n".join(report.lines())


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("radix", [2, 3, 4, 16])
def test_doubling_sends_radix_less_one_messages_in_a_step(radix: int) -> None:
    result = simulate("doubling", members=radix**2, radix=radix, network="star")
    assert result.messages == radix**2 * 2 * (radix - 1)


@pytest.mark.usefixtures("examples")
@pytest.mark.parametrize("both_ways", [False, True])
def test_ring_keeps_causal_order_and_agreement_while_members_crash(both_ways: bool) -> None:
    for seed in range(60):
        scenario, network = crashing_scenario(seed, "ring")
        assert broken_promises(replace(scenario, parameters={"both_ways": both_ways}), network) == []


@pytest.mark.usefixtures("examples")
def test_ring_sends_one_copy_per_delivery_and_two_more_where_both_ways_meet() -> None:
    """A message does not go back to its sender, nor to where it came from."""
    one, two = (simulate("ring", members=9, senders=1, messages=1, both_ways=way) for way in (False, True))
    assert one.data_messages == 8
    assert 8 <= two.data_messages <= 10
    assert (two.delay_max_ms or 0) < (one.delay_max_ms or 0)


PLEDGE = ("--stability", "pledge", "--stability-parameter", "copies=2")
EXAMPLE_FILES = [EXAMPLES / "doubling.py", EXAMPLES / "ring.py"]
RING_AND_DOUBLING = (
    *("--data", "ring", "--data-parameter", "both_ways=true"),
    *("--stability", "doubling", "--stability-parameter", "radix=3"),
)


@pytest.mark.live
@pytest.mark.parametrize("chosen", [PLEDGE, RING_AND_DOUBLING, RING_AND_DOUBLING[:2]])
def test_it_runs_live_between_four_processes_and_everything_becomes_stable(
    own: Path, tmp_path: Path, chosen: tuple[str, ...]
) -> None:
    nodes, pages = _start_nodes([own] if chosen == PLEDGE else EXAMPLE_FILES, chosen, tmp_path)
    try:
        for place, node in enumerate(nodes):
            assert node.stdin is not None
            node.stdin.write("".join(f"{place} {line}\n" for line in range(LINES)).encode())
            node.stdin.flush()
        everything = {f"{place} {line}" for place in range(MEMBERS) for line in range(LINES)}
        for place in range(MEMBERS):
            _wait_until(lambda place=place: _delivered(tmp_path, place) >= everything, tmp_path)
            _wait_until(lambda place=place: _unstable(pages[place]) == 0, tmp_path)
        for node in nodes:
            assert node.stdin is not None
            node.stdin.close()
        assert [node.wait(WAIT_S) for node in nodes] == [0] * MEMBERS, _said(tmp_path)
    finally:
        for node in nodes:
            node.kill()
            node.wait()


def _start_nodes(
    files: list[Path], chosen: tuple[str, ...], folder: Path
) -> tuple[list[subprocess.Popen[bytes]], list[str]]:
    addresses = free_addresses(2 * MEMBERS)
    members, pages = addresses[:MEMBERS], addresses[MEMBERS:]
    common = ["--plaintext", "--suspect-after", "20", *chosen]
    common += [word for one in files for word in ("--protocol-file", str(one))]
    common += [word for one in members for word in ("--peer", one)]
    nodes = []
    for place, (address, page) in enumerate(zip(members, pages, strict=True)):
        words = [*COMMAND, "node", "own", "--listen", address, "--status", page, *common]
        with (folder / f"{place}.out").open("wb") as out, (folder / f"{place}.err").open("wb") as err:
            nodes.append(subprocess.Popen(words, stdin=subprocess.PIPE, stdout=out, stderr=err, env=LIGHT))
    return nodes, pages


def _delivered(folder: Path, place: int) -> set[str]:
    """The payloads; a line is "sender sequence payload"."""
    lines = (folder / f"{place}.out").read_text().splitlines()
    return {line.split(" ", 2)[2] for line in lines if line.count(" ") >= 3}


def _unstable(page: str) -> int:
    return int(fetch_status(page)["stats"]["unstable_messages"])


def _wait_until(is_so: object, folder: Path) -> None:
    assert callable(is_so)
    end_s = time.monotonic() + WAIT_S
    while not is_so():
        assert time.monotonic() < end_s, _said(folder)
        time.sleep(0.1)


def _said(folder: Path) -> str:
    return "\n".join(path.read_text()[-500:] for path in sorted(folder.glob("*.err")))
