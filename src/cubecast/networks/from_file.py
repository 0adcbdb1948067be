"""A network of the user's own, read from an edge list or, when the name ends in .graphml, from GraphML.

Nodes are numbered in the order of their labels when all labels are whole numbers, otherwise in the order in which the
file first names them. Rank r is at node r; nodes beyond the members only route.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.networks.edge_list import read_edge_list
from cubecast.networks.graphml import read_graphml
from cubecast.networks.network import Cables, Network, components, every_node_hosts, from_cables
from cubecast.networks.options import Options
from cubecast.networks.written_links import WrittenCable


def from_options(options: Options) -> Network:
    path = Path(options.values["path"])
    labels, written = _read(path)
    numbers = _numbered(labels)
    if len(numbers) < options.members:
        raise LocalProtocolError(
            f"{path} has {len(numbers)} nodes for {options.members} members: add nodes or ask for fewer members"
        )
    written = _without_repeats(written)
    ends = np.array([[numbers[end] for end in cable.ends] for cable in written], dtype=np.int64).reshape(-1, 2)
    _check_connected(path, numbers, written, ends)
    cables = Cables(
        ends=ends,
        delay_ns=np.array([cable.delay_ns for cable in written], dtype=np.int64),
        bandwidth_bps=np.array([cable.bandwidth_bps for cable in written], dtype=np.float64),
    )
    return from_cables(cables, name=options.name, nodes=len(numbers), hosts=every_node_hosts(options.members))


def _read(path: Path) -> tuple[list[str], list[WrittenCable]]:
    if not path.name:
        raise LocalProtocolError("network file: names no file, write file:PATH")
    try:
        labels, cables = read_graphml(path) if path.suffix.lower() == ".graphml" else ([], read_edge_list(path))
    except OSError as error:
        raise LocalProtocolError(f"cannot read network file {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise LocalProtocolError(f"cannot read network file {path}: it is not text in UTF-8") from None
    return labels + [end for cable in cables for end in cable.ends], cables


def _numbered(labels: list[str]) -> dict[str, int]:
    """The node number of every label."""
    distinct = list(dict.fromkeys(labels))
    if all(label.isascii() and label.isdigit() for label in distinct):
        distinct.sort(key=int)
    return {label: number for number, label in enumerate(distinct)}


def _without_repeats(written: list[WrittenCable]) -> list[WrittenCable]:
    """Files often list a cable once for each direction; that is fine as long as both say the same."""
    kept: dict[frozenset[str], WrittenCable] = {}
    for cable in written:
        first = kept.setdefault(frozenset(cable.ends), cable)
        if (first.delay_ns, first.bandwidth_bps) != (cable.delay_ns, cable.bandwidth_bps):
            raise LocalProtocolError(
                f"{cable.where}: the cable between {cable.ends[0]} and {cable.ends[1]} has another delay or bandwidth "
                f"in {first.where}: keep one of them"
            )
    return list(kept.values())


def _check_connected(
    path: Path, numbers: dict[str, int], written: list[WrittenCable], ends: np.typing.NDArray[np.int64]
) -> None:
    component = components(len(numbers), ends)
    apart = np.flatnonzero(component != component[0])
    if not len(apart):
        return
    labels = list(numbers)
    cable = next((cable for cable in written if labels[apart[0]] in cable.ends), None)
    raise LocalProtocolError(
        f"{cable.where if cable else path}: the network is not connected, nothing links node {labels[apart[0]]} "
        f"to node {labels[0]}: add a cable between the {int(component.max()) + 1} parts"
    )
