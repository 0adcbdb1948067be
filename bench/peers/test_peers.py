"""Every peer must simulate the same storm: checked on networks small enough to compute by hand.

232 B at 100 Mb/s take 18.56 µs on the wire.

    pytest bench/peers
"""

from __future__ import annotations

import dataclasses
import json
import subprocess
from pathlib import Path

import pytest

from bench.peers.make_storm import make_storm
from bench.peers.run import HERE, PEERS, PeerError, PeerResult, check_agreement, missing_peers, run_peers
from cubecast.errors import LocalProtocolError

# The edge 0-2 is the path of fewest hops from 0 to 2, the path over 1 that of least delay.
TRIANGLE = "0 1 {delay_ms} 100e6  # comment\n1 2 0.2 100e6\n\n0 2 0.5 100e6\n"


@pytest.fixture(params=list(PEERS))
def peer(request: pytest.FixtureRequest) -> str:
    name = str(request.param)
    if missing_peers([name]):
        pytest.skip(f"{name} is not installed: {PEERS[name].how_to_install}")
    return name


def write_storm(folder: Path, network: str, pairs: str) -> tuple[Path, Path]:
    files = folder / "network", folder / "pairs"
    for file, text in zip(files, (network, pairs), strict=True):
        file.write_text(text)
    return files


@pytest.mark.peers
@pytest.mark.parametrize(
    ("delay_ms", "last_arrival_ms"),
    [
        # Two packets 0 to 2 leave node 0 at 18.56 and 37.12 µs, the second waits for the first again at node 1.
        ("0.1", 1 + 0.1 + 0.2 + 3 * 0.01856),
        ("0", 1 + 0.2 + 3 * 0.01856),
    ],
)
def test_packets_take_the_route_of_least_delay_and_queue_first_in_first_out(
    peer: str, delay_ms: str, last_arrival_ms: float, tmp_path: Path
) -> None:
    files = write_storm(tmp_path, TRIANGLE.format(delay_ms=delay_ms), "0 2\n0 2\n1 2\n")
    (result,) = run_peers(*files, bursts=2, peers=[peer], repeat=1)
    assert result.hops == 2 * (2 + 2 + 1)
    assert result.last_arrival_ms == pytest.approx(last_arrival_ms, abs=1e-6)
    assert result.hops_per_s == pytest.approx(result.hops / result.run_s)


@pytest.mark.peers
def test_installed_peers_agree_on_a_random_storm(tmp_path: Path) -> None:
    files = tmp_path / "network", tmp_path / "pairs"
    make_storm(members=40, probability=0.1, seed=3, network_file=files[0], pairs_file=files[1])
    results = run_peers(*files, bursts=3, repeat=1)
    assert len(results) == len(PEERS) - len(missing_peers(list(PEERS)))
    for result in results:
        assert result.last_arrival_ms == pytest.approx(results[0].last_arrival_ms, abs=1e-6)


@pytest.mark.peers
@pytest.mark.skipif("ns2" in missing_peers(["ns2"]), reason="ns2 is not installed")
def test_hops_of_ns2_routes_are_those_its_queue_monitors_count(tmp_path: Path) -> None:
    files = tmp_path / "network", tmp_path / "pairs"
    make_storm(members=40, probability=0.1, seed=4, network_file=files[0], pairs_file=files[1])
    (result,) = run_peers(*files, bursts=3, peers=["ns2"], repeat=1)
    command = ["ns", str(HERE / "storm.tcl"), *map(str, files), "3", "Heap", "all", "monitor"]
    counted = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    assert counted["hops"] == result.hops


def test_peers_that_crossed_different_numbers_of_links_are_refused() -> None:
    one = PeerResult(name="one", version="1", setup_s=0.0, run_s=1.0, hops=10, last_arrival_ms=1.0, hops_per_s=10.0)
    with pytest.raises(PeerError, match="one 10, two 11"):
        check_agreement([one, dataclasses.replace(one, name="two", hops=11)])


@pytest.mark.parametrize(
    ("network", "pairs", "message"),
    [
        ("0 1\n1 2\n", "0 3\n", "line 1: 0 3, name two different nodes from 0 to 2"),
        ("0 1\n1 2\n", "0 1\n2 2\n", "line 2: 2 2, name two different nodes"),
        ("0 1\n1 2\n", "0 1 2\n", "line 1: '0 1 2' is not: from to"),
        ("0 1\n1 2\n", "# nothing\n", "no pairs"),
        ("0 1\n2 3\n", "0 1\n", "not connected"),
    ],
)
def test_a_bad_storm_is_refused_before_any_peer_runs(network: str, pairs: str, message: str, tmp_path: Path) -> None:
    files = write_storm(tmp_path, network, pairs)
    with pytest.raises(LocalProtocolError, match=message):
        run_peers(*files, bursts=1, peers=[], repeat=1)


def test_an_unknown_peer_is_refused() -> None:
    with pytest.raises(LocalProtocolError, match="unknown peer 'ns4': choose from ns2"):
        missing_peers(["ns4"])
