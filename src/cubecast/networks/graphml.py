"""GraphML: an edge for every `<edge>`, its delay and bandwidth from the edge attributes `delay_ms` and `bandwidth_bps`.

Edges are duplex whatever `edgedefault` says. The standard library reads all of GraphML that is used here.
"""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree
from xml.etree.ElementTree import Element

from cubecast.errors import LocalProtocolError
from cubecast.networks.written_edges import WrittenEdge, written_edge

_ATTRIBUTES = ("delay_ms", "bandwidth_bps")


def read_graphml(path: Path) -> tuple[list[str], list[WrittenEdge]]:
    """The node labels and the edges, both in the order of the file."""
    try:
        root = ElementTree.fromstring(path.read_bytes())
    except ElementTree.ParseError as error:
        raise LocalProtocolError(f"{path}: not readable as GraphML: {error}") from None
    keys = [key for key in root.iterfind("{*}key") if _is_for_edges(key)]
    names = {key.get("id", ""): key.get("attr.name", "") for key in keys}
    defaults = {key.get("attr.name", ""): text for key in keys if (text := _text(key.find("{*}default")))}
    labels = [node.get("id", "") for node in root.iterfind(".//{*}node")]
    edges = root.iterfind(".//{*}edge")
    return labels, [_edge(path, edge, names, defaults, number) for number, edge in enumerate(edges, start=1)]


def _is_for_edges(key: Element) -> bool:
    return key.get("attr.name") in _ATTRIBUTES and key.get("for", "all") in ("edge", "all")


def _edge(path: Path, edge: Element, names: dict[str, str], defaults: dict[str, str], number: int) -> WrittenEdge:
    source, target = edge.get("source"), edge.get("target")
    where = f"{path}, edge {number}"
    if source is None or target is None:
        raise LocalProtocolError(f"{where}: an edge needs a source and a target")
    values = dict(defaults)
    for data in edge.iterfind("{*}data"):
        if data.get("key") in names and (text := _text(data)):
            values[names[data.get("key", "")]] = text
    return written_edge(f"{where} ({source} to {target})", source, target, **values)


def _text(element: Element | None) -> str:
    return (element.text or "").strip() if element is not None else ""
