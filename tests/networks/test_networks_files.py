"""Networks of the user's own: edge lists and GraphML, and what is wrong with a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.networks.edge_list import save_edge_list
from cubecast.networks.network import Network
from cubecast.networks.spec import build_network


def written(folder: Path, text: str, name: str = "net.edges") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def load(path: Path, members: int) -> Network:
    return build_network(f"file:{path}", members=members, seed=0)


def test_edge_list_with_comments_defaults_and_repeats(tmp_path: Path) -> None:
    path = written(tmp_path, "# a net\n0 1\n1 2 0.25  # short\n\n2 0 3 2e6\n1 0\n")
    network = load(path, 3)
    assert network.link_from.tolist() == [0, 0, 1, 1, 2, 2]
    assert network.link_to.tolist() == [1, 2, 0, 2, 0, 1]
    assert network.delay_ns.tolist() == [1_000_000, 3_000_000, 1_000_000, 250_000, 3_000_000, 250_000]
    assert network.bandwidth_bps.tolist() == [100e6, 2e6, 100e6, 100e6, 2e6, 100e6]


def test_whole_number_labels_are_ordered_as_numbers(tmp_path: Path) -> None:
    network = load(written(tmp_path, "10 2\n2 1\n"), 2)
    assert network.nodes == 3
    assert network.link_from.tolist() == [0, 1, 1, 2]
    assert network.link_to.tolist() == [1, 0, 2, 1]


def test_other_labels_are_numbered_as_they_come_and_spare_nodes_only_route(tmp_path: Path) -> None:
    network = load(written(tmp_path, "rome oslo\noslo bonn\n"), 2)
    assert network.hosts.tolist() == [0, 1]
    assert network.nodes == 3
    assert network.link_to.tolist() == [1, 0, 2, 1]


@pytest.mark.parametrize("spec", ["random:degree=4", "wan-tree:nodes=60", "chain:delay=0-3s"])
def test_saved_network_reads_back_exactly(tmp_path: Path, spec: str) -> None:
    network = build_network(spec, members=60, seed=3)
    save_edge_list(network, tmp_path / "saved.edges")
    again = load(tmp_path / "saved.edges", 60)
    for field in ("link_from", "link_to", "delay_ns", "bandwidth_bps"):
        assert np.array_equal(getattr(network, field), getattr(again, field)), field
    assert list(tmp_path.iterdir()) == [tmp_path / "saved.edges"]


def test_saved_network_is_an_edge_list_to_networkx(tmp_path: Path) -> None:
    network = build_network("random:degree=4", members=40, seed=3)
    save_edge_list(network, tmp_path / "saved.edges")
    attributes: Any = [("delay_ms", float), ("bandwidth_bps", float)]
    graph = nx.read_edgelist(tmp_path / "saved.edges", nodetype=int, data=attributes)
    assert graph.number_of_edges() == network.links / 2
    for a, b, delay_ns in zip(network.link_from, network.link_to, network.delay_ns, strict=True):
        assert round(graph.edges[int(a), int(b)]["delay_ms"] * 1e6) == delay_ns


def test_graphml_of_networkx(tmp_path: Path) -> None:
    graph: nx.Graph[int] = nx.Graph()
    graph.add_edge(0, 1, delay_ms=0.5, bandwidth_bps=1e6)
    graph.add_edge(1, 2, delay_ms=2)
    nx.write_graphml(graph, tmp_path / "net.graphml")
    network = load(tmp_path / "net.graphml", 3)
    assert network.delay_ns.tolist() == [500_000, 500_000, 2_000_000, 2_000_000]
    assert network.bandwidth_bps.tolist() == [1e6, 1e6, 100e6, 100e6]


GRAPHML = """<?xml version="1.0"?>
<graphml xmlns="http://graphml.graphdrawing.org/xmlns">
  <key id="d" for="edge" attr.name="delay_ms" attr.type="double"><default>7</default></key>
  <key id="x" for="node" attr.name="delay_ms" attr.type="double"><default>99</default></key>
  <graph edgedefault="directed">
    <node id="b"/><node id="a"><data key="x">4</data></node>{node}
    <edge source="a" target="b">{data}</edge>
  </graph>
</graphml>
"""


def test_graphml_takes_node_order_and_edge_defaults_from_the_file(tmp_path: Path) -> None:
    network = load(written(tmp_path, GRAPHML.format(node="", data=""), "n.GraphML"), 2)
    assert network.delay_ns.tolist() == [7_000_000, 7_000_000]
    explicit = load(written(tmp_path, GRAPHML.format(node="", data='<data key="d">1.5</data>'), "n.graphml"), 2)
    assert explicit.delay_ns.tolist() == [1_500_000, 1_500_000]


@pytest.mark.parametrize(
    ("text", "members", "words"),
    [
        ("0 1\n2 3\n", 3, r"net.edges, line 2: the network is not connected, nothing links node 2 to node 0"),
        ("0 1\n", 3, "has 2 nodes for 3 members: add nodes"),
        ("", 2, "has 0 nodes for 2 members"),
        ("0 1\n0\n", 2, "line 2: '0' is not: from to"),
        ("0 1 2 3 4\n", 2, "line 1"),
        ("0 1\n1 1\n", 2, "line 2: node 1 is linked to itself"),
        ("0 1 fast\n", 2, "line 1: delay_ms 'fast' is not a number"),
        ("0 1 -1\n", 2, "line 1: delay_ms -1"),
        ("0 1 nan\n", 2, "line 1: delay_ms nan"),
        ("0 1 1 0\n", 2, "line 1: bandwidth_bps 0"),
        ("0 1 1\n1 0 2\n", 2, "line 2: the edge between 1 and 0 .* line 1: keep one"),
    ],
)
def test_bad_edge_list_names_file_line_and_fix(tmp_path: Path, text: str, members: int, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words) as caught:
        load(written(tmp_path, text), members)
    assert "net.edges" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("<graphml><graph>", "not readable as GraphML"),
        (GRAPHML.format(node='<node id="c"/>', data=""), "not connected, nothing links node c to node b"),
        (GRAPHML.format(node="", data='<data key="d">soon</data>'), "edge 1 .a to b.: delay_ms 'soon'"),
        ('<graphml><graph><edge source="a"/></graph></graphml>', "edge 1: an edge needs a source and a target"),
    ],
)
def test_bad_graphml_names_file_and_edge(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(LocalProtocolError, match=words) as caught:
        load(written(tmp_path, text, "bad.graphml"), 2)
    assert "bad.graphml" in str(caught.value)


def test_unreadable_files_are_one_clear_line(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="No such file"):
        load(tmp_path / "absent.edges", 2)
    with pytest.raises(LocalProtocolError, match="directory"):
        load(tmp_path, 2)
    with pytest.raises(LocalProtocolError, match="names no file"):
        build_network("file:", members=2, seed=0)
    (tmp_path / "binary.edges").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(LocalProtocolError, match="not text"):
        load(tmp_path / "binary.edges", 2)


def test_flat_network_has_nothing_to_save(tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match="no links to save"):
        save_edge_list(build_network("flat", members=3, seed=0), tmp_path / "flat.edges")
    assert not list(tmp_path.iterdir())
