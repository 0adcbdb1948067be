"""A network of the user's own, read from an edge list or, when the name ends in .graphml, from GraphML.

Nodes are numbered in the order of their labels if all labels are whole numbers, otherwise in the order in which the
file first names them. Rank r is at node r; the other nodes only route.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.networks.edge_list import read_edge_list
from cubecast.networks.graphml import read_graphml
from cubecast.networks.network import Edges, Network, components, every_node_hosts, from_edges
from cubecast.networks.options import Options
from cubecast.networks.written_edges import WrittenEdge


def from_options(options: Options) -> Network:
    path = Path(options.values["path"])
    labels, written = _read(path)
    numbers = _numbered(labels)
    if len(numbers) < options.members:
        raise LocalProtocolError(
            f"{path} has {len(numbers)} nodes for {options.members} members: add nodes or ask for fewer members"
        )
    written = _without_repeats(written)
    ends = np.array([[numbers[end] for end in edge.ends] for edge in written], dtype=np.int64).reshape(-1, 2)
    _check_connected(path, numbers, written, ends)
    edges = Edges(
        ends=ends,
        delay_ns=np.array([edge.delay_ns for edge in written], dtype=np.int64),
        bandwidth_bps=np.array([edge.bandwidth_bps for edge in written], dtype=np.float64),
    )
    return from_edges(edges, name=options.name, nodes=len(numbers), hosts=every_node_hosts(options.members))


def _read(path: Path) -> tuple[list[str], list[WrittenEdge]]:
    if not path.name:
        raise LocalProtocolError("network file: names no file, write file:PATH")
    try:
        labels, edges = read_graphml(path) if path.suffix.lower() == ".graphml" else ([], read_edge_list(path))
    except OSError as error:
        raise LocalProtocolError(f"cannot read network file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LocalProtocolError(f"cannot read network file {path}: it is not text in UTF-8") from None
    return labels + [end for edge in edges for end in edge.ends], edges


def _numbered(labels: list[str]) -> dict[str, int]:
    """The node number of every label."""
    distinct = list(dict.fromkeys(labels))
    if all(label.isascii() and label.isdigit() for label in distinct):
        distinct.sort(key=int)
    return {label: number for number, label in enumerate(distinct)}


def _without_repeats(written: list[WrittenEdge]) -> list[WrittenEdge]:
    """Drop the second line of an edge that is listed once per direction; both lines must agree."""
    kept: dict[frozenset[str], WrittenEdge] = {}
    for edge in written:
        first = kept.setdefault(frozenset(edge.ends), edge)
        if (first.delay_ns, first.bandwidth_bps) != (edge.delay_ns, edge.bandwidth_bps):
            raise LocalProtocolError(
                f"{edge.where}: the edge between {edge.ends[0]} and {edge.ends[1]} has another delay or bandwidth "
                f"in {first.where}: keep one of them"
            )
    return list(kept.values())


def _check_connected(
    path: Path, numbers: dict[str, int], written: list[WrittenEdge], ends: np.typing.NDArray[np.int64]
) -> None:
    component = components(len(numbers), ends)
    apart = np.flatnonzero(component != component[0])
    if not len(apart):
        return
    labels = list(numbers)
    edge = next((edge for edge in written if labels[apart[0]] in edge.ends), None)
    raise LocalProtocolError(
        f"{edge.where if edge else path}: the network is not connected, nothing links node {labels[apart[0]]} "
        f"to node {labels[0]}: add an edge between the {int(component.max()) + 1} parts"
    )
