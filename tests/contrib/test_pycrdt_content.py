"""The content of a document, and the document that is built of it."""

from __future__ import annotations

import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cubecast.contrib.pycrdt_content import UnknownContentError, build, describe

pycrdt = pytest.importorskip("pycrdt")
from pycrdt import Array, Doc, Map, Text, XmlElement, XmlFragment, XmlText  # noqa: E402

ROOT = Path(__file__).parents[2]
ROOTS = {"array": "array", "map": "map", "page": "fragment", "text": "text"}


def rich_document() -> Doc[Any]:
    """Every kind of content, with deletions, formats and types within types."""
    doc: Doc[Any] = Doc()
    text = doc.get("text", type=Text)
    text += "héllo world"
    text.insert(3, "x", {"bold": True, "colour": "red", "size": 3})
    text.format(1, 8, {"bold": False, "link": "there"})
    text.insert_embed(0, {"image": b"png"})
    text.insert_embed(2, Array([1, Text("deep")]))
    del text[9:11]
    shared = doc.get("map", type=Map)
    shared["plain"] = {"list": [1, 2.5, None, b"octets", True, "t"]}
    shared["array"] = Array([1, Text("in an array"), Map({"x": Text("deeper")})])
    shared["gone"] = 1
    del shared["gone"]
    array = doc.get("array", type=Array)
    array.extend([1, "two", 3.5, Map({"p": 1}), None])
    del array[1]
    page = doc.get("page", type=XmlFragment)
    element = XmlElement("p", {"class": "note", "align": "left"})
    page.children.append(element)
    inner = element.children.append(XmlText("hello"))
    inner.format(0, 2, {"b": True, "i": True})
    inner.attributes["lang"] = "en"
    element.children.append(XmlElement("br"))
    return doc


def test_the_built_document_has_the_same_content_and_one_author() -> None:
    doc = rich_document()
    content = describe(doc, ROOTS)
    built = build(content)
    assert describe(built, ROOTS) == content
    assert str(built["text"]) == str(doc["text"])
    assert built["text"].diff()[1:2] == doc["text"].diff()[1:2]
    state = built.get_state()
    assert state[0] == 1  # one client
    assert state[1] == 1  # the builder


def test_a_document_built_in_another_process_takes_the_same_edits() -> None:
    """Identifiers are the same. Bytes would differ if a plain dictionary had two keys: their order is random."""
    program = (
        "from tests.contrib.test_pycrdt_content import *\n"
        "content = describe(rich_document(), ROOTS)\n"
        "print(build(content).get_update().hex())"
    )
    updates = {
        subprocess.run(
            [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=ROOT, timeout=120
        ).stdout
        for _ in range(4)
    }
    assert len(updates) == 1
    one, other = build(describe(rich_document(), ROOTS)), Doc[Any]()
    other.apply_update(bytes.fromhex(updates.pop()))
    one["text"].insert(len(one["text"]), "!")
    other.apply_update(one.get_update(other.get_state()))
    other.get("text", type=Text)
    assert str(other["text"]) == str(one["text"])


@pytest.mark.parametrize("seed", range(20))
def test_random_edits_in_any_order_are_described_alike_and_lose_their_tombstones(seed: int) -> None:
    """Three authors; each replica gets all edits, mixed in an order of its own."""
    draw = random.Random(seed)
    docs: list[Doc[Any]] = [Doc() for _ in range(3)]
    for _ in range(60):
        doc = draw.choice(docs)
        text, shared = doc.get("text", type=Text), doc.get("map", type=Map)
        length = len(text)
        match draw.randrange(5):
            case 0 if length:
                at = draw.randrange(length)
                del text[at : min(length, at + draw.randrange(1, 6))]
            case 1 if length:
                at = draw.randrange(length)
                text.format(at, min(length, at + 4), {draw.choice("abc"): draw.randrange(3)})
            case 2:
                shared[draw.choice("xyz")] = draw.randrange(9)
            case 3 if len(shared):
                del shared[draw.choice(sorted(shared.keys()))]
            case _:
                text.insert(draw.randrange(length + 1), "word ", {"a": 1} if draw.random() < 0.2 else None)
        if draw.random() < 0.3:
            source, target = draw.sample(docs, 2)
            target.apply_update(source.get_update(target.get_state()))
    for source in docs:
        for target in draw.sample(docs, 3):
            target.apply_update(source.get_update(target.get_state()))
    for target in docs:
        for source in docs:
            target.apply_update(source.get_update(target.get_state()))
    contents = [describe(doc, {"text": "text", "map": "map"}) for doc in docs]
    assert contents[0] == contents[1] == contents[2]
    built = [build(content).get_update() for content in contents]
    assert built[0] == built[1] == built[2]
    assert len(built[0]) < len(docs[0].get_update())


def test_what_cannot_be_described_is_named() -> None:
    doc: Doc[Any] = Doc()
    doc["text"] = Text("a")
    with pytest.raises(UnknownContentError, match="the type of the root 'text' is not known"):
        describe(doc, {})
    doc["map"] = Map({"within": Doc()})
    with pytest.raises(UnknownContentError, match="another document"):
        describe(doc, {"text": "text", "map": "map"})
