"""Run the hypercube-neighbour storm on other simulators, one after another, and compare their speeds.

    python bench/peers/run.py --network FILE --pairs FILE --bursts B [--peers ns2,ns3,simpy] [--repeat 3] [--json]

The network file has a line per edge, `from to delay_ms bandwidth_bps`; the pair file a line per packet of a burst,
`from to`. Every peer reads both, routes by least total delay, sends a 232 B packet for each pair in each burst (one
burst per millisecond) and prints one JSON line. Repetitions alternate between the peers, so that a disturbance of the
machine affects all alike; the best set-up and the best run of each peer count. The peers must agree on the number of
packet-hops, otherwise they did not do the same work.
"""

from __future__ import annotations

import argparse
import dataclasses
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.networks.edge_list import save_edge_list
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network

HERE = Path(__file__).resolve().parent
BUILD = HERE / ".build"
# ns-2 takes over a minute to set up a thousand nodes; ten times that means it hangs.
RUN_SECONDS_MAX = 1200


class PeerError(CubecastError):
    """A peer that fails, or peers that disagree."""


@dataclass(frozen=True, kw_only=True)
class PeerResult:
    """The best of several runs of one simulator. One packet-hop is one packet crossing one link."""

    name: str
    version: str
    setup_s: float
    run_s: float
    hops: int
    last_arrival_ms: float
    hops_per_s: float


@dataclass(frozen=True, kw_only=True)
class Peer:
    """How to start a simulator: the command before `NETWORK PAIRS BURSTS` and the arguments after it."""

    command: Callable[[], list[str]]
    options: tuple[str, ...] = ()
    is_installed: Callable[[], bool]
    how_to_install: str


def ns3_version() -> str | None:
    """The version of ns-3's development files, or None without them or without a compiler for them."""
    if not shutil.which("g++") or not shutil.which("pkg-config"):
        return None
    answer = subprocess.run(["pkg-config", "--modversion", "ns3-point-to-point"], capture_output=True, text=True)
    return answer.stdout.strip() if answer.returncode == 0 else None


def build_ns3() -> list[str]:
    """Compile the ns-3 program unless it is newer than its source. The libraries are named here, not by pkg-config,
    whose answer in Debian also asks for development files of libraries that this program does not use."""
    source = HERE / "storm_ns3.cc"
    version = ns3_version()
    program = BUILD / f"storm_ns3-{version}"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        BUILD.mkdir(exist_ok=True)
        libraries = ["-lns3-point-to-point", "-lns3-network", "-lns3-core"]
        flags = ["-std=c++17", "-O3", f'-DSTORM_NS3_VERSION="{version}"']
        built = subprocess.run(
            ["g++", *flags, str(source), "-o", str(program), *libraries], capture_output=True, text=True
        )
        if built.returncode != 0:
            raise PeerError(f"ns3: compiling {source.name} failed: {last_line(built.stderr)}")
    return [str(program)]


def has_simpy() -> bool:
    return all(importlib.util.find_spec(module) is not None for module in ("simpy", "scipy"))


def ns2(headers: str) -> Peer:
    """ns-2 with the scheduler that is fastest at the storm's size.

    `lean` packets keep the headers that UDP touches, `all` is ns-2 as it starts.
    """
    return Peer(
        command=lambda: ["ns", str(HERE / "storm.tcl")],
        options=("auto", headers),
        is_installed=lambda: shutil.which("ns") is not None,
        how_to_install="apt-get install ns2",
    )


def ns3(scheduler: str, headers: str) -> Peer:
    """ns-3's raw packet path, with the destination in a header of the packet's `own`, or with `none`."""
    return Peer(
        command=build_ns3,
        options=(scheduler, headers),
        is_installed=lambda: ns3_version() is not None,
        how_to_install="apt-get install g++ pkg-config libns3-dev",
    )


PEERS: dict[str, Peer] = {
    "ns2": ns2("all"),
    "ns2-lean": ns2("lean"),
    "ns3": ns3("ns3::MapScheduler", "own"),
    "ns3-lean": ns3("ns3::PriorityQueueScheduler", "none"),
    "simpy": Peer(
        command=lambda: [sys.executable, str(HERE / "storm_simpy.py")],
        is_installed=has_simpy,
        how_to_install="pip install simpy scipy",
    ),
}


def missing_peers(peers: Sequence[str]) -> dict[str, str]:
    """The peers that are not on this machine, each with the command that installs it."""
    for name in peers:
        if name not in PEERS:
            raise LocalProtocolError(f"unknown peer {name!r}: choose from {', '.join(PEERS)}")
    return {name: PEERS[name].how_to_install for name in peers if not PEERS[name].is_installed()}


def run_peers(
    network_file: Path, pairs_file: Path, bursts: int, peers: Sequence[str] = tuple(PEERS), repeat: int = 3
) -> list[PeerResult]:
    """Run every installed peer `repeat` times on one storm and return the best of each, in the given order."""
    if bursts < 1 or repeat < 1:
        raise LocalProtocolError(f"bursts {bursts}, repeat {repeat}: both must be at least 1")
    network, pairs = read_storm(network_file, pairs_file)
    missing = missing_peers(peers)
    commands = {name: PEERS[name].command() for name in peers if name not in missing}
    best: dict[str, PeerResult] = {}
    # Written again, every edge has its delay and bandwidth and every node its number, whatever the file omits.
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, "network"), Path(folder, "pairs")]
        save_edge_list(network, files[0])
        files[1].write_text("".join(f"{source} {destination}\n" for source, destination in pairs))
        for _ in range(repeat):
            for name, command in commands.items():
                result = run_once(name, [*command, *map(str, files), str(bursts), *PEERS[name].options])
                best[name] = better(best.get(name), result)
    results = list(best.values())
    check_agreement(results)
    return results


def run_once(name: str, command: list[str]) -> PeerResult:
    """Run one peer once; its last line is the JSON result."""
    try:
        ended = subprocess.run(command, capture_output=True, text=True, timeout=RUN_SECONDS_MAX)
    except subprocess.TimeoutExpired:
        raise PeerError(f"{name}: no result after {RUN_SECONDS_MAX} s; take fewer bursts or members") from None
    if ended.returncode != 0:
        raise PeerError(f"{name}: exit code {ended.returncode}: {last_line(ended.stderr)}")
    fields = json.loads(last_line(ended.stdout))
    return PeerResult(name=name, hops_per_s=fields["hops"] / fields["run_s"], **fields)


def better(old: PeerResult | None, new: PeerResult) -> PeerResult:
    """The faster set-up and the faster run of two results of one peer."""
    if old is None:
        return new
    check_agreement([old, new])
    faster = max(old, new, key=lambda result: result.hops_per_s)
    return dataclasses.replace(faster, setup_s=min(old.setup_s, new.setup_s))


def check_agreement(results: Sequence[PeerResult]) -> None:
    """Require that all peers crossed the same number of links."""
    if len({result.hops for result in results}) > 1:
        counts = ", ".join(f"{result.name} {result.hops}" for result in results)
        raise PeerError(f"hop counts differ ({counts}): look for routes of equal total delay, or take another seed")


def last_line(text: str) -> str:
    return text.strip().rpartition("\n")[2] or "(no output)"


def read_storm(network_file: Path, pairs_file: Path) -> tuple[Network, list[tuple[int, int]]]:
    """Read and validate both files, so that no peer fails on them."""
    network = build_network(f"file:{network_file}", members=2, seed=0)
    try:
        lines = pairs_file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise LocalProtocolError(f"cannot read pair file {pairs_file}: {error}") from None
    pairs = []
    for number, line in enumerate(lines, start=1):
        words = line.partition("#")[0].split()
        if words:
            pairs.append(read_pair(f"{pairs_file}, line {number}", words, network.nodes))
    if not pairs:
        raise LocalProtocolError(f"{pairs_file}: no pairs, write lines: from to")
    return network, pairs


def read_pair(where: str, words: list[str], nodes: int) -> tuple[int, int]:
    if len(words) != 2 or not all(word.isascii() and word.isdigit() for word in words):
        raise LocalProtocolError(f"{where}: {' '.join(words)!r} is not: from to")
    source, destination = map(int, words)
    if source == destination or max(source, destination) >= nodes:
        raise LocalProtocolError(f"{where}: {source} {destination}, name two different nodes from 0 to {nodes - 1}")
    return source, destination


def as_table(results: Sequence[PeerResult], missing: dict[str, str]) -> str:
    """One line per peer, then the missing peers and how to install them."""
    head = f"{'peer':<16} {'version':>8} {'set-up s':>9} {'run s':>9} {'hops':>10} {'last ms':>11} {'M hops/s':>9}"
    lines = [
        f"{r.name:<16} {r.version:>8} {r.setup_s:>9.3f} {r.run_s:>9.4f} {r.hops:>10} {r.last_arrival_ms:>11.6f} "
        f"{r.hops_per_s / 1e6:>9.3f}"
        for r in results
    ]
    absent = [f"{name:<16} not installed: {how}" for name, how in missing.items()]
    return "\n".join([head, *lines, *absent])


def main() -> None:
    parser = argparse.ArgumentParser(description="The hypercube-neighbour storm on other simulators, side by side.")
    parser.add_argument("--network", type=Path, required=True, help="lines `from to delay_ms bandwidth_bps`")
    parser.add_argument("--pairs", type=Path, required=True, help="lines `from to`, one packet each in every burst")
    parser.add_argument("--bursts", type=int, default=20)
    parser.add_argument("--peers", default=",".join(PEERS), help="default: %(default)s")
    parser.add_argument("--repeat", type=int, default=3, help="runs per peer; the best counts (default: %(default)s)")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    peers = options.peers.split(",")
    try:
        missing = missing_peers(peers)
        results = run_peers(options.network, options.pairs, options.bursts, peers, options.repeat)
    except CubecastError as error:
        sys.exit(f"run.py: {error}")
    except KeyboardInterrupt:
        sys.exit("run.py: interrupted")
    if options.json:
        print(json.dumps({"results": [dataclasses.asdict(result) for result in results], "missing": missing}))
    else:
        print(as_table(results, missing))


if __name__ == "__main__":
    main()
