"""Edge lists: a text line `from to [delay_ms [bandwidth_bps]]` for every duplex edge; `#` starts a comment."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.networks.delays import NS_PER_MS
from cubecast.networks.network import Network
from cubecast.networks.written_edges import WrittenEdge, written_edge


def read_edge_list(path: Path) -> list[WrittenEdge]:
    """The edges in the order of the file, each with its line."""
    edges = []
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        where = f"{path}, line {number}"
        if not 2 <= len(words) <= 4:
            raise LocalProtocolError(f"{where}: {line.strip()!r} is not: from to [delay_ms [bandwidth_bps]]")
        edges.append(written_edge(where, *words))
    return edges


def save_edge_list(network: Network, path: Path | str) -> None:
    """Write every edge with its delay and bandwidth, exact to the nanosecond; `file:PATH` reads the same links back.

    A comment lists the node that hosts each rank, for other simulators.
    """
    if network.one_hop is not None:
        raise LocalProtocolError(f"network {network.name} has no links to save: choose a kind other than flat")
    hosts = " ".join(map(str, network.hosts))
    lines = [f"# {network.name}: {network.nodes} nodes", f"# hosts of rank 0, 1, ...: {hosts}"]
    lines.append("# from to delay_ms bandwidth_bps")
    for link in np.flatnonzero(network.link_from < network.link_to):
        whole_ms, rest_ns = divmod(int(network.delay_ns[link]), NS_PER_MS)
        bandwidth_bps = float(network.bandwidth_bps[link])
        lines.append(f"{network.link_from[link]} {network.link_to[link]} {whole_ms}.{rest_ns:06d} {bandwidth_bps!r}")
    unfinished = Path(f"{path}.part")
    unfinished.write_text("\n".join(lines) + "\n", encoding="utf-8")
    unfinished.replace(path)
