"""Every command of the pages is run: here as it stands, here in a smaller size, or by the test that is named.

What is not run at all is listed with the reason. A command that is on no page any more fails here too.
"""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
import urllib.request
from pathlib import Path

import pytest

from cubecast.cli.app import run as run_command
from cubecast.live.local import free_ports
from tests.docs.pages import PAGES, ROOT, command_lines, place_of
from tests.support.own_protocols import restored_catalogue
from tests.support.processes import LineProcess

_COMPARE = "cubecast compare --protocols coord,full_dist,s_coord,cube_full_dist --repeat 5 "
_OWN = "--protocol-file examples/doubling.py --protocol-file examples/ring.py --stability doubling "
_CHURN = "cubecast simulate cube_full_dist -n 1000 --data tree --churn 2 --churn-ms 5000 "
_CHURN += "--network random:degree=5,bandwidth=1e9 --senders 10 --rate 2 --detect-ms 200 --detect-spread-ms 50 --seed 1"

SMALLER = {
    _COMPARE + "--members 25,50,100,200,400 --network random:degree=5 --plot docs/images/compare.svg": (
        _COMPARE + "--members 8,16 --network random:degree=5 --plot compare.svg"
    ),
    "cubecast compare --members 25,50,100 --network random:degree=5": (
        "cubecast compare --members 8,16 --network random:degree=5"
    ),
    "cubecast compare --members 50,100,200 --network random:degree=5 --repeat 5 --out results": (
        "cubecast compare --members 8,16 --network random:degree=5 --repeat 2 --out results"
    ),
    "cubecast simulate timestamp -n 50 --churn 2 --rate 5 --check": (
        "cubecast simulate timestamp -n 8 --churn 2 --rate 5 --check"
    ),
    "cubecast simulate coord -n 50 --churn 2 --data tree --loss 0.01 --rate 2": (
        "cubecast simulate coord -n 8 --churn 2 --data tree --loss 0.01 --rate 2"
    ),
    _CHURN: _CHURN.replace("-n 1000", "-n 16").replace("--churn-ms 5000", "--churn-ms 1000"),
    "cubecast simulate cube_full_dist --members 256 --network random:degree=5 --placement search": (
        "cubecast simulate cube_full_dist --members 32 --network random:degree=5 --placement search"
    ),
    "cubecast simulate s_coord --members 1000000 --network flat": (
        "cubecast simulate s_coord --members 1000 --network flat"
    ),
}
"""A command, and what is run in its place: the same with smaller numbers."""

_DEMO = "tests/live/test_tools.py::test_the_demonstration_ends_with_a_verdict"
_ADVISE = "tests/lab/test_advisor.py::test_the_command_prints_ranking_front_cost_and_evidence"
_COMPARED = "tests/project/test_own_protocol.py::test_it_stands_beside_the_others_in_a_comparison"
_LIVE = "tests/project/test_own_protocol.py::test_it_runs_live_between_four_processes_and_everything_becomes_stable"
_WORKERS = "tests/contrib/test_examples.py::test_clients_of_all_workers_see_each_other_and_a_killed_worker_is_replaced"
_DAPHNE = "tests/contrib/test_examples.py::test_daphne_processes_share_a_room_and_a_killed_one_starts_again"
_TERMINALS = "tests/docs/test_commands.py::test_what_is_typed_in_one_terminal_of_the_tutorial_is_printed_in_all"
_KEYS = "tests/docs/test_commands.py::test_the_members_with_keys_of_the_tutorial_reach_each_other"
_STORES = "tests/docs/test_commands.py::test_the_stores_of_the_tutorial_share_their_keys"
_NODE = "cubecast node chat --listen 127.0.0.1:700"
ELSEWHERE = {
    "cubecast demo --members 8 --kills 2": _DEMO,
    "cubecast demo --members 8 --kills 2 --trace run.parquet": _DEMO,
    "cubecast advise --members 100 --network random:degree=5 --loss 0.02 --rate 50/s --budget 30kb/s": _ADVISE,
    "cubecast compare --protocol-file examples/doubling.py --members 32,64 --network random:degree=5 --repeat 3 "
    "--radix 4 --plot doubling.html": _COMPARED,
    _NODE + f"1 --peer 127.0.0.1:7002 --plaintext {_OWN}--stability-parameter radix=4 --data ring": _LIVE,
    _NODE + f"2 --peer 127.0.0.1:7001 --plaintext {_OWN}--stability-parameter radix=4 --data ring": _LIVE,
    "cubecast check run.parquet --checker-file examples/ladder.py": (
        "tests/lab/test_own_code.py::test_check_takes_a_file_of_checkers"
    ),
    "WORKERS=4 uvicorn examples.bus_starlette:app --workers 4": _WORKERS,
    "WORKERS=2 daphne --port 8001 examples.bus_channels:app": _DAPHNE,
    "WORKERS=2 daphne --port 8002 examples.bus_channels:app": _DAPHNE,
    _NODE + "1 --found --keep all --plaintext --status 127.0.0.1:9001": _TERMINALS,
    _NODE + "2 --contact 127.0.0.1:7001 --keep all --plaintext": _TERMINALS,
    _NODE + "3 --contact 127.0.0.1:7001 --keep all --plaintext": _TERMINALS,
    "cubecast keys init --folder keys": _KEYS,
    "cubecast keys issue 127.0.0.1:7001 --folder keys --name one": _KEYS,
    "cubecast keys issue 127.0.0.1:7002 --folder keys --name two": _KEYS,
    _NODE + "1 --found --credentials keys/one.pem --ca keys/group.pem": _KEYS,
    _NODE + "2 --contact 127.0.0.1:7001 --credentials keys/two.pem --ca keys/group.pem": _KEYS,
    "python examples/kv_store.py --listen 127.0.0.1:7001 --found --plaintext --journal one.journal": _STORES,
    "python examples/kv_store.py --listen 127.0.0.1:7002 --contact 127.0.0.1:7001 --plaintext --journal two.journal": (
        _STORES
    ),
    "cubecast simulate cube_full_dist --members 1000000 --network flat": (
        "tests/sim/test_scale.py::test_a_quadratic_state_is_refused_before_it_is_allocated"
    ),
}
"""A command, and the test that runs it, some in another size."""

NOT_RUN = {
    r"make .*": "a target of the Makefile; `make test` runs this test",
    r"docker .*": "there is no Docker; tests/project/test_container.py carries out the Dockerfile and the health check",
    r"pip install .*": "tests/project/test_install.py installs the wheel with its extras",
    r"cubecast study (run|status|check|follow) .*": "minutes of Spark; tests/lab runs small studies of each kind",
    r"cubecast study calibrate .*": "minutes of Spark; tests/spark/test_calibrate_killed.py calibrates a small plan",
    r"cubecast study verdicts .*": "it reads the results of such a run; tests/lab/test_verdict_table.py prints tables",
    r"SPARK_HOME=.*|\$SPARK_HOME/.*|export HADOOP.*": "a cluster of its own",
    r"cubecast advise --members 600 --network wan\.graphml .*": "the reader's own network",
    r"cubecast advise --from .*": "a group that has run for a while; tests/lab/test_advisor.py reads such a status",
    r"python scripts/protocol_\w+\.py .*": "it rewrites docs/images; tests/docs/test_pages.py runs its parts",
    r"mkdir -p traces|cubecast node .* --trace traces/.*": "for `study follow`, which needs Spark",
}
"""Patterns of commands that no test runs, and why."""

LINES = {line for page in PAGES for line in command_lines(page)}


def is_listed(line: str) -> bool:
    """Is the command run elsewhere, or not at all?"""
    return line in ELSEWHERE or any(re.fullmatch(pattern, line) for pattern in NOT_RUN)


HERE = [
    (place_of(page), [line for line in command_lines(page) if not is_listed(line)])
    for page in PAGES
    if any(not is_listed(line) for line in command_lines(page))
]


def test_the_lists_name_commands_that_are_on_a_page_and_tests_that_exist() -> None:
    assert not (set(SMALLER) | set(ELSEWHERE)) - LINES
    assert not [pattern for pattern in NOT_RUN if not any(re.fullmatch(pattern, line) for line in LINES)]
    for test in set(ELSEWHERE.values()):
        file, name = test.split("::")
        assert f"def {name}(" in (ROOT / file).read_text("utf-8"), test


@pytest.mark.parametrize(("page", "lines"), HERE, ids=[page for page, _ in HERE])
def test_the_commands_of_a_page_succeed_in_their_order(
    page: str, lines: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    if page == "tutorial.md":  # its demonstration is run elsewhere, and leaves this trace
        run_command(shlex.split("simulate coord --members 8 --trace run.parquet"))
    with restored_catalogue():
        for line in lines:
            words = shlex.split(SMALLER.get(line, line))
            assert words[0] == "cubecast", line
            assert run_command(words[1:]) == 0, f"{line}\n{capsys.readouterr().err}"


def moved(line: str, ports: dict[str, int]) -> list[str]:
    """The words of a command with free ports in place of those of the page."""
    return shlex.split(re.sub(r"127\.0\.0\.1:(\d+)", lambda found: f"127.0.0.1:{ports[found[1]]}", line))


def tutorial(pattern: str) -> list[str]:
    """The commands of the tutorial that match."""
    page = next(page for page in PAGES if page.name == "tutorial.md")
    return [line for line in command_lines(page) if re.search(pattern, line)]


def terminals(lines: list[str], ports: dict[str, int], folder: Path) -> list[LineProcess]:
    """Each command in a process of its own, in the order of the page; they wait for each other."""
    started: list[LineProcess] = []
    for line in lines:
        program, *words = moved(line, ports)
        python = [sys.executable, "-c", "from cubecast.cli import main; main()"]
        if program == "python":
            python, words = [sys.executable, str(ROOT / words[0])], words[1:]
        log = folder / f"{len(started)}.log"
        with log.open("wb") as errors:
            started.append(LineProcess([*python, *words], folder=folder, errors=errors, light=True))
    return started


PORTS = ("7001", "7002", "7003", "9001")


@pytest.mark.live
def test_what_is_typed_in_one_terminal_of_the_tutorial_is_printed_in_all(tmp_path: Path) -> None:
    ports = dict(zip(PORTS, free_ports(4), strict=True))
    nodes = terminals(tutorial("^cubecast node .*--keep all"), ports, tmp_path)
    try:
        nodes[0].write_line("hello")
        assert [node.read_line() for node in nodes] == [f"127.0.0.1:{ports['7001']} 1 hello"] * 3
        for path in ("", "metrics"):
            with urllib.request.urlopen(f"http://127.0.0.1:{ports['9001']}/{path}", timeout=10) as answer:
                assert answer.status == 200
        assert run_command(["status", f"127.0.0.1:{ports['9001']}"]) == 0
        nodes[1].process.send_signal(signal.SIGINT)  # Ctrl-C
        assert nodes[1].process.wait(60) == 0
    finally:
        for node in nodes:
            node.close()


@pytest.mark.live
def test_the_members_with_keys_of_the_tutorial_reach_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    ports = dict(zip(PORTS, free_ports(4), strict=True))
    for line in tutorial("^cubecast keys "):
        assert run_command(moved(line, ports)[1:]) == 0
    nodes = terminals(tutorial("^cubecast node .*--credentials"), ports, tmp_path)
    try:
        nodes[1].write_line("hello")
        assert nodes[1].read_line() == f"127.0.0.1:{ports['7002']} 1 hello"
        assert nodes[0].read_line() == f"127.0.0.1:{ports['7002']} 1 hello"
    finally:
        for node in nodes:
            node.close()


@pytest.mark.live
def test_the_stores_of_the_tutorial_share_their_keys(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{os.environ.get('PYTHONPATH', '')}")
    ports = dict(zip(PORTS, free_ports(4), strict=True))
    stores = terminals(tutorial("kv_store.py"), ports, tmp_path)
    try:
        assert [store.read_line() for store in stores] == ["ready", "ready"]
        stores[0].write_line("set colour green")
        said = ""
        while said != "green":
            stores[1].write_line("get colour")
            said = stores[1].read_line()
            assert said in ("None", "green")
        assert (tmp_path / "one.journal").exists()
        assert (tmp_path / "two.journal").exists()
    finally:
        for store in stores:
            store.close()
