"""A hash of the sources that determine the result of a run, so that results of other code are never mistaken for ours.

Comments, docstrings and layout do not count: only a change of the program changes the hash. A simulation depends on the
files that all simulations share and on the files of its protocols, with the files that those import; so editing one
protocol leaves the results of the others valid. User protocols, networks and metrics count in the runs that use them; a
network that a file describes counts by the content of the file.
"""

from __future__ import annotations

import ast
import hashlib
import sys
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from cubecast.jit.sources import sources_of
from cubecast.lab.experiments import network_content
from cubecast.lab.own_code import network_file
from cubecast.lab.own_metrics import metric_files
from cubecast.protocol.definition import Protocol
from cubecast.sim.roles import roles_of

_PACKAGE = Path(__file__).resolve().parent.parent
_EXPERIMENTS = (
    *("lab/experiments.py", "lab/formulas.py"),
    *("lab/data_flow.py", "lab/choose_trigger.py", "lab/processing_load.py"),
)
_LAYERS = ("protocols/broadcast/*.py", "protocols/failure/*.py", "protocols/transport/*.py")
_KIT = ("jit/*.py", "protocol/*.py", "protocols/*.py")
_SHARED = (*_KIT, *_LAYERS, "networks/*.py", "sim/*.py", "models/*.py", *_EXPERIMENTS)
_TOOLS = {"warm.py", "compile_apart.py", "self_test.py"}
"""Files that no result of a run depends on."""
_VIEWS = ("protocols/membership/*.py", "protocols/causal/*.py", "protocols/stability/*.py", "sim/views/*.py")
"""Files on which only runs with views depend."""


def source_hash(settings: Mapping[str, Any]) -> str:
    """The hash of the sources that compute this run."""
    if "protocol" not in settings:
        return _hash(frozenset())
    files = {path for role in roles_of(settings).values() for path in _sources(role.entry)}
    if settings.get("churn_per_s") is not None:
        files |= {path for pattern in _VIEWS for path in _PACKAGE.glob(pattern)}
    own = metric_files(settings) | {network_file(str(settings.get("network", "")))}
    files |= {path for home in own if home is not None for path in sources_of(home)}
    return _hash(frozenset(files), network_content(settings))


def _sources(entry: Protocol) -> frozenset[Path]:
    """The files of the parts of a catalogue entry, which may be in several files."""
    modules = {part.__module__ for part in (entry.state, entry.build, entry.parameters)}
    return frozenset(path for name in modules for path in sources_of(Path(str(sys.modules[name].__file__))))


@cache
def _hash(protocol_files: frozenset[Path], network: str | None = None) -> str:
    shared = {path for pattern in _SHARED for path in _PACKAGE.glob(pattern) if path.name not in _TOOLS}
    digest = hashlib.sha256()
    # By name and content, so that the location of user files does not matter.
    for path in sorted(shared | protocol_files, key=lambda path: (path.name, _program(path))):
        digest.update(path.name.encode())
        digest.update(_program(path).encode())
    if network is not None:
        digest.update(network.encode())
    return digest.hexdigest()[:16]


@cache
def _program(path: Path) -> str:
    return program_of(path.read_text("utf-8"))


def program_of(source: str) -> str:
    """The source without comments, docstrings and layout."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef):
            node.body = [one for one in node.body if not _is_text(one)]
    return ast.dump(tree)


def _is_text(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
