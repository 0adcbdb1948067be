"""Nothing in the package refers to a protocol by name: its entry states what others need to know.

A name may stand in the file of the protocol itself, in `models/` (the papers' formulas), in docstrings, and where
`ELSEWHERE` says why.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from cubecast.protocols.catalogue import list_protocols

PACKAGE = Path(__file__).parents[2] / "src" / "cubecast"
HOMES: dict[str, set[str]] = {}
"""The files of the protocols of a name, by that name."""
for _entry in list_protocols():
    if _entry.state.__module__.startswith("cubecast."):
        HOMES.setdefault(_entry.name, set()).add(_entry.state.__module__)
FILES = set().union(*HOMES.values())

_MULTICAST = ("cli/options.py", "sim/build.py", "sim/network_facts.py", "sim/scenario.py", "sim/warm.py")
ELSEWHERE: dict[str, str] = {
    # The word means something else: how a multicast travels, a kind of network, an aggregation overlay, a part of the
    # status page, a formula.
    **dict.fromkeys((*_MULTICAST, "sim/views/settings.py"), "tree"),
    "networks/spec.py": "star",
    "protocols/stability/cascade.py": "tree dissemination overlay",
    "live/status.py": "overlay",
    "cli/model.py": "gossip",
    # Papers, and what is computed or counted after them.
    **dict.fromkeys(("lab/plan.py", "lab/report.py", "sim/trees.py"), "rasm"),
    "lab/formulas.py": "timestamp overlay",
    # Examples: in a help text, and runs that could be of any protocol.
    "cli/compare.py": "full_dist",
    "lab/benchmark.py": "cube_full_dist full_dist",
    "lab/spark/warm.py": "overlay",
    # A protocol that is built on others.
    "protocols/causal/stamped_tree.py": "plumtree rasm",
}


def names_in(source: str, module: str) -> Iterator[tuple[int, str]]:
    """Line and name of each protocol that a source names, though it is not the file of that protocol."""
    tree = ast.parse(source)
    docs = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docs:
            yield from ((node.lineno, name) for name in HOMES if _speaks_of(node.value, name, module))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            origin = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            for file in {file for alias in node.names for file in FILES if _is_in(f"{origin}{alias.name}", file)}:
                if file != module:
                    yield node.lineno, file.rpartition(".")[2]


def _speaks_of(text: str, name: str, module: str) -> bool:
    """Is this the name, or, where that is no word of English, does it stand in the text?"""
    if module in HOMES[name]:
        return False
    return text == name or ("_" in name and re.search(rf"\b{name}\b", text) is not None)


def _is_in(imported: str, file: str) -> bool:
    return imported == file or imported.startswith(f"{file}.")


def _named() -> dict[str, dict[str, int]]:
    """By file the names that stand in it, each with its last line."""
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        place = path.relative_to(PACKAGE)
        module = ".".join(("cubecast", *place.with_suffix("").parts))
        if place.parts[0] != "models":
            found[place.as_posix()] = {name: line for line, name in names_in(path.read_text("utf-8"), module)}
    return found


def test_no_protocol_is_named_outside_its_own_file() -> None:
    found = [
        f"{file}:{line}: {name}"
        for file, names in _named().items()
        for name, line in names.items()
        if name not in ELSEWHERE.get(file, "").split()
    ]
    assert found == []


def test_every_exception_is_needed() -> None:
    found = _named()
    assert {file: set(found[file]) for file in ELSEWHERE} == {file: set(ELSEWHERE[file].split()) for file in ELSEWHERE}


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("if name == 'coord': ...", ["coord"]),
        ("DEFAULT = 'cube_full_dist'", ["cube_full_dist"]),
        ("print('choose cube_full_dist')", ["cube_full_dist"]),
        ("print('coordinates of a train')", []),
        ("'''coord is one.'''", []),
        ("def f():\n    '''full_dist is another.'''", []),
        ("from cubecast.protocols.stability import coord", ["coord"]),
        ("from cubecast.protocols.stability.coord import CoordState", ["coord"]),
        ("def late():\n    import cubecast.protocols.transport.nak", ["nak"]),
        ("from cubecast.protocols.stability import logical_tree", []),
        ("from cubecast.protocols import catalogue", []),
    ],
)
def test_the_search_finds_names_and_imports(source: str, found: list[str]) -> None:
    assert [name for _, name in names_in(source, "cubecast.sim.x")] == found


def test_a_protocol_may_name_itself() -> None:
    assert list(names_in("NAME = 'coord'", "cubecast.protocols.stability.coord")) == []
