"""The content of a pycrdt document as plain values, and a document made of such values.

`build(describe(doc))` has the content of `doc` and nothing of its history: no tombstones, one author. Two members that
describe the same content build the same document, operation by operation with the same identifiers, so that edits of
one can be applied to the other. Hence everything here is in a fixed order: names and keys are sorted, a text is
written before it is formatted, and formatted one attribute at a time.

| node         | means                                                                           |
|--------------|---------------------------------------------------------------------------------|
| `Value`      | a plain value: numbers, text, bytes, lists, dictionaries, None                  |
| `TextNode`   | runs of text and embedded nodes, each with its attributes                       |
| `ArrayNode`  | nodes                                                                           |
| `MapNode`    | nodes by key                                                                    |
| `XmlNode`    | a fragment (no tag), or an element: attributes, and children                    |
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from cubecast.errors import LocalProtocolError
from cubecast.extras import named

with named("cubecast.contrib.pycrdt"):
    from pycrdt import Array, Doc, Map, Text, XmlElement, XmlFragment, XmlText

BUILDER = 1
"""The client number of a document's builder. Editors draw theirs from 53 bits."""

KINDS: dict[str, Any] = {"array": Array, "fragment": XmlFragment, "map": Map, "text": Text}
"""The types of roots, by the names that members exchange."""


DEPTH_MAX = 100
"""How deep types and values may be nested: all members must get the same result, without a stack overflow."""


class UnknownContentError(LocalProtocolError):
    """A document has content that cannot be described: another document, a root of unknown type, or too many levels."""


class Value(msgspec.Struct, tag=True, frozen=True):
    """Not a shared type."""

    value: Any


class TextRun(msgspec.Struct, frozen=True):
    """A piece of a text, or one embedded node."""

    content: str | Node
    attributes: dict[str, Any]


class TextNode(msgspec.Struct, tag=True, frozen=True):
    """A text; within XML, with attributes of its own."""

    runs: list[TextRun]
    attributes: dict[str, Any] = {}
    is_xml: bool = False


class ArrayNode(msgspec.Struct, tag=True, frozen=True):
    """An array."""

    items: list[Node]


class MapNode(msgspec.Struct, tag=True, frozen=True):
    """A map."""

    items: dict[str, Node]


class XmlNode(msgspec.Struct, tag=True, frozen=True):
    """An XML element; without a tag, a fragment."""

    tag: str | None
    attributes: dict[str, Any]
    children: list[Node]


Node = Value | TextNode | ArrayNode | MapNode | XmlNode


# From a document.


def describe(doc: Doc[Any], roots: Mapping[str, str]) -> dict[str, Node]:
    """The content of a document, by root; `roots` has the kind of each. Raises UnknownContentError."""
    names = sorted(doc.keys())
    if unknown := [name for name in names if name not in roots]:
        raise UnknownContentError(f"the type of the root {unknown[0]!r} is not known")
    return {name: _describe(doc.get(name, type=KINDS[roots[name]])) for name in names}


def _describe(value: Any, depth: int = 0) -> Node:
    _require_depth(depth)
    below = depth + 1
    if isinstance(value, Text):
        return TextNode(_runs(value, below))
    if isinstance(value, XmlText):
        return TextNode(_runs(value, below), _attributes(value, below), is_xml=True)
    if isinstance(value, Array):
        return ArrayNode([_describe(one, below) for one in value])
    if isinstance(value, Map):
        return MapNode({key: _describe(value[key], below) for key in sorted(value.keys())})
    if isinstance(value, XmlElement):
        return XmlNode(value.tag, _attributes(value, below), [_describe(one, below) for one in value.children])
    if isinstance(value, XmlFragment):
        return XmlNode(None, {}, [_describe(one, below) for one in value.children])
    if isinstance(value, Doc):
        raise UnknownContentError("it contains another document")
    return Value(_plain(value, depth))


def _require_depth(depth: int) -> None:
    if depth > DEPTH_MAX:
        raise UnknownContentError(f"its content is nested more than {DEPTH_MAX} levels deep")


def _runs(text: Text | XmlText, depth: int) -> list[TextRun]:
    """The runs of a text; neighbours with the same attributes are one run."""
    runs: list[TextRun] = []
    for value, attributes in text.diff():
        content = value if isinstance(value, str) else _describe(value, depth)
        run = TextRun(content, _sorted((attributes or {}).items(), depth))
        before = runs[-1] if runs and runs[-1].attributes == run.attributes else None
        if before is not None and isinstance(content, str) and isinstance(before.content, str):
            runs[-1] = TextRun(before.content + content, run.attributes)
        else:
            runs.append(run)
    return runs


def _attributes(value: XmlText | XmlElement, depth: int) -> dict[str, Any]:
    return _sorted(list(value.attributes), depth)  # type: ignore[call-overload]


def _sorted(items: Iterable[tuple[str, Any]], depth: int) -> dict[str, Any]:
    return {key: _plain(value, depth) for key, value in sorted(items, key=lambda item: item[0])}


def _plain(value: Any, depth: int) -> Any:
    _require_depth(depth)
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, dict):
        return _sorted(value.items(), depth + 1)
    if isinstance(value, list):
        return [_plain(one, depth + 1) for one in value]
    return value


# To a document.


def build(content: Mapping[str, Node]) -> Doc[Any]:
    """A document with this content and no history: the same at every member."""
    doc: Doc[Any] = Doc(client_id=BUILDER)
    with doc.transaction():
        for name, node in content.items():
            _fill(doc.get(name, type=_class_of(node)), node)
    return doc


def _class_of(node: Node) -> Any:
    match node:
        case TextNode():
            return Text
        case ArrayNode():
            return Array
        case MapNode():
            return Map
        case _:
            return XmlFragment


def _blank(node: Node) -> Any:
    """The empty object of a node, which `_fill` fills; a value is complete."""
    match node:
        case Value():
            return node.value
        case TextNode(is_xml=True):
            return XmlText()
        case XmlNode():
            return XmlElement(node.tag)
        case _:
            return _class_of(node)()


def _fill(target: Any, node: Node) -> None:
    match node:
        case TextNode():
            _write(target, node)
        case ArrayNode():
            for place, item in enumerate(node.items):
                target.append(_blank(item))
                if not isinstance(item, Value):
                    _fill(target[place], item)
        case MapNode():
            for key, item in node.items.items():
                target[key] = _blank(item)
                if not isinstance(item, Value):
                    _fill(target[key], item)
        case XmlNode():
            for key, value in node.attributes.items():
                target.attributes[key] = value
            for child in node.children:
                _fill(target.children.append(_blank(child)), child)


def _write(text: Text | XmlText, node: TextNode) -> None:
    if isinstance(text, XmlText):
        for key, value in node.attributes.items():
            text.attributes[key] = value
    formats: list[tuple[int, int, dict[str, Any]]] = []
    for run in node.runs:
        start = len(text)
        if isinstance(run.content, str):
            text.insert(start, run.content)
        else:
            embedded = _blank(run.content)
            text.insert_embed(start, embedded)
            if not isinstance(run.content, Value):
                _fill(embedded, run.content)
        formats.append((start, len(text), run.attributes))
    for start, stop, attributes in formats:
        for key, value in attributes.items():
            text.format(start, stop, {key: value})
