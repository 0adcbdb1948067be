"""The examples run as they are, and the protocol written in one of them keeps its promises."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from cubecast.jit.backend import COMPILED
from cubecast.networks.spec import build_network
from cubecast.protocol.definition import Protocol
from cubecast.protocols.catalogue import load_protocol_file
from cubecast.sim.scenario import Scenario
from cubecast.sim.simulate import simulate, trace_scenario
from cubecast.trace.checkers import check_all
from tests.support.own_protocols import restored_catalogue

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def doubling() -> Iterator[Protocol]:
    """The example's protocol, known by its name while these tests run."""
    with restored_catalogue():
        (protocol,) = load_protocol_file(EXAMPLES / "doubling.py")
        yield protocol


@pytest.mark.parametrize("members", [2, 3, 8, 9, 33])
def test_doubling_sends_n_log_n_messages(doubling: Protocol, members: int) -> None:
    result = simulate("doubling", members=members, network="random:p=0.3", seed=members, rounds=2, delta_ms=50.0)
    assert result.messages == 2 * members * (members - 1).bit_length()


@pytest.mark.parametrize("seed", range(12))
def test_doubling_keeps_its_promises_where_messages_are_lost_doubled_and_overtaken(
    doubling: Protocol, seed: int
) -> None:
    scenario = Scenario(
        protocol="doubling",
        members=2 + 3 * seed,
        network=("random:p=0.2", "chain", "flat:delay=exp:1ms")[seed % 3],
        loss=0.15,
        duplicate=0.1,
        reorder=0.2,
        delta_ms=0.0,
        rounds=3,
        messages=seed % 2,
        seed=seed,
    )
    network = build_network(scenario.network, members=scenario.members, seed=seed)
    report = check_all(trace_scenario(scenario, network))
    assert report.ok, f"{scenario.command()}\n" + "\n".join(report.lines())


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_the_example_runs_and_the_second_time_without_the_compiler(tmp_path: Path) -> None:
    path = EXAMPLES / "doubling.py"
    first = subprocess.run(
        [sys.executable, path], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=True
    )
    assert "doubling" in first.stdout
    assert "broken" not in first.stdout
    assert (tmp_path / "results" / "doubling.html").is_file()
    if COMPILED:
        watched = (
            "import runpy, sys; from cubecast.jit.decorators import watch_compiler\n"
            f"sys.path.insert(0, {str(EXAMPLES)!r})\n"
            "with watch_compiler() as names:\n"
            f"    runpy.run_path({str(path)!r}, run_name='__main__')\n"
            "print(names, file=sys.stderr)\n"
        )
        second = subprocess.run(
            [sys.executable, "-c", watched], cwd=tmp_path, capture_output=True, text=True, timeout=900, check=True
        )
        assert second.stderr.strip() == "[]"
        assert second.stdout == first.stdout
