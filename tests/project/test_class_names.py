"""One name, one class: a reader who meets a class in a signature or a traceback knows which one it is."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "cubecast"


def shared_names(sources: Mapping[str, str]) -> list[str]:
    """One line for each name of several public classes, in `sources` named by their path below the package."""
    places: dict[str, list[str]] = defaultdict(list)
    for path, source in sorted(sources.items()):
        for node in ast.parse(source, filename=path).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(f"{path}:{node.lineno}")
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def test_no_two_public_classes_share_a_name() -> None:
    sources = {file.relative_to(PACKAGE).as_posix(): file.read_text("utf-8") for file in PACKAGE.rglob("*.py")}
    assert "member/member.py" in sources, "the package moved; this test reads nothing"
    assert shared_names(sources) == []


def test_a_shared_name_is_reported_with_both_places() -> None:
    sources = {"live/x.py": "import math\n\nclass Group: ...", "protocol/y.py": "class Group(tuple): ..."}
    assert shared_names(sources) == ["Group: live/x.py:3, protocol/y.py:1"]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("class _Row: ...", "class _Row: ..."),
        ("class Row: ...", "class Column:\n    class Row: ..."),
        ("class Row: ...", "from cubecast.x import Row"),
        ("class Row: ...", "class Rows: ..."),
    ],
)
def test_private_nested_and_imported_classes_are_left_alone(one: str, other: str) -> None:
    assert shared_names({"x.py": one, "y.py": other}) == []
