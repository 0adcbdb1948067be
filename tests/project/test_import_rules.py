"""Imports point one way through the package (docs/architecture.md, "Packages and import rules").

The rules are data: `MAY_IMPORT` orders our own layers, `FORBIDDEN` keeps the cores pure, `ONLY_IN` names the one
package that may import a library. `violations` reads sources, never imports them, so the synthetic sources below test
each rule.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path, PurePosixPath

import pytest

PACKAGE = Path(__file__).parents[2] / "src" / "cubecast"

MAY_IMPORT: dict[str, set[str]] = {
    "errors": set(),
    "extras": {"errors"},
    "jit": {"errors"},
    "protocol": {"errors", "jit"},
    "models": {"errors", "jit", "protocol"},
    "protocols": {"errors", "jit", "protocol", "models"},
    "networks": {"errors", "extras", "jit", "protocol"},
    "trace": {"errors", "extras", "jit"},
    "wire": {"errors", "jit", "protocol", "protocols"},
    "member": {"errors", "jit", "protocol", "protocols", "models", "wire"},
    "sim": {"errors", "jit", "protocol", "protocols", "models", "networks", "trace"},
    "lab": {"errors", "extras", "jit", "protocol", "protocols", "models", "networks", "trace", "sim"},
    "live": {"errors", "jit", "protocol", "protocols", "trace", "wire", "member"},
    "fuzz": {"errors", "protocols", "wire", "member"},
    "bus": {"errors", "extras", "protocols", "member", "live"},
    "objects": {"errors", "protocols", "member", "live"},
    "contrib": {"errors", "extras", "protocols", "member", "live", "bus"},
}
"""What each layer sees besides itself. Only `bus`, `objects` and `contrib` see `live`; only the
command line sees `lab` and `fuzz`."""

SEES_ALL = {"__init__", "__main__", "cli"}

_IMPURE = {
    *("asyncio", "concurrent", "multiprocessing", "pyspark", "select", "selectors", "signal", "socket", "ssl"),
    *("subprocess", "threading"),
    *("datetime", "time"),
    *("numpy.random", "random", "secrets"),
}
FORBIDDEN: dict[str, set[str]] = dict.fromkeys(("protocol", "models", "protocols", "wire", "member"), _IMPURE)
"""Clocks, randomness and input and output reach a core, a formula, a codec or a member as arguments, or not at all."""

ONLY_IN: dict[str, tuple[str, ...]] = {
    "asyncio": ("bus", "contrib", "live", "objects"),
    "numba": ("jit",),
    "llvmlite": ("jit",),
    "pyspark": ("lab/spark.py", "lab/spark"),
    "tests": (),
}
"""The files or folders that may import a module. Nothing in the package leans on its tests."""


def violations(sources: Mapping[str, str]) -> list[str]:
    """One line for each import that breaks a rule, in `sources` named by their path below the package."""
    return [
        f"{path}:{line}: {complaint}"
        for path, source in sorted(sources.items())
        for line, module in _imports(path, source)
        for complaint in _complaints(PurePosixPath(path), module)
    ]


def _imports(path: str, source: str) -> Iterator[tuple[int, str]]:
    """Line and full name of everything imported at any depth. `from a import b` is read as `a.b`."""
    for node in ast.walk(ast.parse(source, filename=path)):
        match node:
            case ast.Import(names=names):
                yield from ((node.lineno, alias.name) for alias in names)
            case ast.ImportFrom(names=names):
                origin = _origin(PurePosixPath(path), node)
                yield from ((node.lineno, f"{origin}.{alias.name}") for alias in names)
            case ast.Call(func=function, args=[ast.Constant(value=str(module)), *_]) if _imports_by_name(function):
                yield node.lineno, module
            case ast.Attribute(value=ast.Name(id="np" | "numpy"), attr="random"):
                yield node.lineno, "numpy.random"


def _origin(path: PurePosixPath, node: ast.ImportFrom) -> str:
    if node.level == 0:
        return node.module or ""
    package = ("cubecast", *path.parts[:-1])
    kept = package[: len(package) - node.level + 1]
    return ".".join((*kept, *([node.module] if node.module else [])))


def _imports_by_name(function: ast.expr) -> bool:
    name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
    return name in {"import_module", "__import__"}


def _complaints(path: PurePosixPath, module: str) -> Iterator[str]:
    layer = path.parts[0].removesuffix(".py")
    if layer not in SEES_ALL and layer not in MAY_IMPORT:
        yield f"{layer} has no place in the order of imports; give it one in MAY_IMPORT"
        return
    if _is_under(module, "cubecast"):
        seen = module.removeprefix("cubecast").lstrip(".").split(".")[0]
        if layer not in SEES_ALL and seen != layer and seen not in MAY_IMPORT[layer]:
            yield f"{layer} may not import {module}"
        return
    if any(_is_under(module, name) for name in FORBIDDEN.get(layer, ())):
        yield f"{layer} is pure and may not import {module}"
    for name, doors in ONLY_IN.items():
        if _is_under(module, name) and not any(path.is_relative_to(door) for door in doors):
            yield f"{module} may be imported in {' or '.join(doors) or 'no file'} only"


def _is_under(module: str, name: str) -> bool:
    return module == name or module.startswith(f"{name}.")


def test_every_import_of_the_package_keeps_the_rules() -> None:
    sources = {file.relative_to(PACKAGE).as_posix(): file.read_text("utf-8") for file in PACKAGE.rglob("*.py")}
    assert "__init__.py" in sources, "the package moved; this test reads nothing"
    assert violations(sources) == []


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("protocols/x.py", "from cubecast.sim.events import schedule"),
        ("protocols/x.py", "from cubecast import trace"),
        ("jit/x.py", "from cubecast.protocol import mail"),
        ("jit/x.py", "from cubecast.sim import world"),
        ("protocol/x.py", "from cubecast.protocols import catalogue"),
        ("protocols/x.py", "import cubecast.networks as networks"),
        ("protocols/stability/x.py", "from ...sim import events"),
        ("errors.py", "from cubecast.protocol import rank_sets"),
        ("trace/schema.py", "from cubecast.protocol import rank_sets"),
        ("models/x.py", "from cubecast.networks.network import Network"),
        ("models/x.py", "from cubecast.sim import simulate"),
        ("models/x.py", "from cubecast.protocols import catalogue"),
        ("protocol/x.py", "from cubecast.models import failure"),
        ("networks/x.py", "from cubecast.models import trees"),
        ("networks/x.py", "from .. import sim"),
        ("sim/x.py", "from cubecast.lab import plan"),
        ("sim/x.py", "from cubecast.live import group"),
        ("sim/x.py", "from cubecast.wire import frame"),
        ("sim/views/x.py", "from cubecast.wire import frame"),
        ("sim/x.py", "from cubecast.member.member import Member"),
        ("sim/x.py", "from cubecast.fuzz import world"),
        ("fuzz/x.py", "from cubecast.sim.events import schedule"),
        ("fuzz/x.py", "from cubecast.lab import plan"),
        ("fuzz/x.py", "from cubecast.live.journal import Journal"),
        ("fuzz/x.py", "from cubecast import trace"),
        ("lab/x.py", "from cubecast.fuzz.histories import run_history"),
        ("live/x.py", "from cubecast.fuzz.histories import run_history"),
        ("member/x.py", "from cubecast.fuzz.world import Machine"),
        ("protocols/x.py", "from cubecast.member import effects"),
        ("protocols/x.py", "from cubecast.wire import frame"),
        ("wire/x.py", "from cubecast.member import settings"),
        ("member/x.py", "from cubecast.live import group"),
        ("member/x.py", "from cubecast.sim import simulate"),
        ("member/x.py", "from cubecast.lab import plan"),
        ("member/x.py", "from cubecast import trace"),
        ("member/x.py", "from cubecast.networks import network"),
        ("lab/x.py", "from cubecast.member.member import Member"),
        ("sim/x.py", "def late():\n    from cubecast import wire"),
        ("sim/x.py", "import importlib\nimportlib.import_module('cubecast.live.group')"),
        ("sim/x.py", "from cubecast import simulate"),
        ("sim/x.py", "import cubecast"),
        ("lab/x.py", "from cubecast.live import group"),
        ("lab/x.py", "from cubecast.cli import main"),
        ("wire/x.py", "from cubecast.live import group"),
        ("wire/x.py", "from cubecast.networks import network"),
        ("live/x.py", "from cubecast.sim import simulate"),
        ("live/x.py", "if TYPE_CHECKING:\n    from cubecast.lab import plan"),
        ("newcomer.py", "import math"),
    ],
)
def test_an_import_against_the_order_is_found(path: str, source: str) -> None:
    assert len(violations({path: source})) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("protocols/x.py", "import time"),
        ("protocols/x.py", "import random"),
        ("protocols/x.py", "from random import Random"),
        ("protocols/x.py", "from time import monotonic_ns as now"),
        ("protocols/x.py", "import socket"),
        ("protocols/x.py", "import threading"),
        ("member/x.py", "import time"),
        ("member/x.py", "import random"),
        ("member/x.py", "from secrets import randbits"),
        ("member/x.py", "import socket"),
        ("member/x.py", "import ssl"),
        ("member/x.py", "import threading"),
        ("member/x.py", "import numpy as np\nnp.random.rand()"),
        ("wire/x.py", "from time import monotonic_ns"),
        ("protocols/x.py", "import numpy as np\nnp.random.rand()"),
        ("protocols/x.py", "from numpy.random import Generator"),
        ("protocols/stability/x.py", "from numba import njit"),
        ("sim/kernel.py", "import numba.typed"),
        ("sim/x.py", "import asyncio"),
        ("cli.py", "import asyncio"),
        ("lab/x.py", "import pyspark.sql"),
        ("lab/sparkling.py", "from pyspark.sql import SparkSession"),
        ("cli.py", "from pyspark.sql import SparkSession"),
        ("sim/x.py", "from tests.oracles import checkers"),
    ],
)
def test_a_library_outside_its_place_is_found(path: str, source: str) -> None:
    assert len(violations({path: source})) == 1


@pytest.mark.parametrize("layer", sorted(FORBIDDEN))
def test_a_pure_layer_with_asyncio_or_spark_breaks_two_rules(layer: str) -> None:
    assert len(violations({f"{layer}/x.py": "import asyncio", f"{layer}/y.py": "import pyspark"})) == 4


def test_a_violation_names_file_line_and_import() -> None:
    sources = {"models/x.py": "import math", "sim/x.py": "import math\n\nfrom cubecast.live.group import Group\n"}
    assert violations(sources) == ["sim/x.py:3: sim may not import cubecast.live.group.Group"]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("jit/x.py", "import numba\nfrom numba.extending import overload"),
        ("protocols/x.py", "from cubecast.protocol.random import uniform"),
        ("protocols/x.py", "from cubecast.models.failure import k_fail"),
        ("models/x.py", "from cubecast.protocol.overlays import hypercube"),
        ("protocols/x.py", "from cubecast.protocol import random\nfrom cubecast.errors import LocalProtocolError"),
        ("protocols/stability/x.py", "from .. import catalogue\nfrom . import coord"),
        ("trace/schema.py", "from cubecast.errors import LocalProtocolError"),
        ("networks/x.py", "from numpy.random import Generator"),
        ("sim/x.py", "import time\nfrom cubecast import trace\nfrom cubecast.networks.network import Network"),
        ("lab/spark.py", "from pyspark.sql import SparkSession\nfrom cubecast.sim import simulate"),
        ("lab/spark/jobs.py", "import pyspark"),
        ("wire/x.py", "from cubecast.protocol.mail import DATA"),
        ("member/x.py", "from cubecast.protocols.membership.views import View\nfrom cubecast.wire import frame"),
        ("member/x.py", "import numpy as np\nfrom cubecast.errors import LocalProtocolError"),
        ("fuzz/x.py", "from cubecast.wire import frame\nfrom cubecast.member.member import Member\nimport random"),
        ("cli/fuzz.py", "from cubecast.fuzz.histories import run_history"),
        ("live/x.py", "import asyncio\nfrom cubecast.wire import frames\nfrom cubecast.member.member import Member"),
        ("cli.py", "from cubecast import __version__\nfrom cubecast.live import group\nfrom cubecast.lab import plan"),
        ("__init__.py", "from cubecast.sim import simulate"),
    ],
)
def test_an_import_that_keeps_the_rules_is_left_alone(path: str, source: str) -> None:
    assert violations({path: source}) == []
