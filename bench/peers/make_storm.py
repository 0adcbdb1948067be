"""Write the network file and the pair file of the hypercube-neighbour storm.

The network is a flat random graph G(n, p) whose edges have 100 Mb/s and delays from U(0, 1 ms) in whole nanoseconds, so
that simulators with integer clocks and simulators with floating-point clocks read the same network. The pairs
are the neighbours in the incomplete hypercube (cube §3.3), by rank, then by neighbour.

    python bench/peers/make_storm.py --members 200 --network storm-200.net --pairs storm-200.pairs
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.networks.edge_list import save_edge_list
from cubecast.networks.spec import build_network
from cubecast.protocol.overlays import hypercube


def make_storm(*, members: int, probability: float, seed: int, network_file: Path, pairs_file: Path) -> None:
    """Draw the network from the seed and write both files."""
    save_edge_list(build_network(f"random:p={probability}", members=members, seed=seed), network_file)
    overlay = hypercube(members)
    ranks = np.repeat(np.arange(members), np.diff(overlay.offsets))
    lines = [f"{rank} {other}\n" for rank, other in zip(ranks, overlay.neighbours, strict=True)]
    pairs_file.write_text("".join(lines), encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the network and pair files of the hypercube-neighbour storm.")
    parser.add_argument("--members", type=int, default=200)
    parser.add_argument("--probability", type=float, default=0.04)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--network", type=Path, required=True)
    parser.add_argument("--pairs", type=Path, required=True)
    options = parser.parse_args()
    try:
        make_storm(
            members=options.members,
            probability=options.probability,
            seed=options.seed,
            network_file=options.network,
            pairs_file=options.pairs,
        )
    except LocalProtocolError as error:
        sys.exit(f"make_storm.py: {error}")
    except OSError as error:
        sys.exit(f"make_storm.py: cannot write {error.filename}: {error.strerror}")


if __name__ == "__main__":
    main()
