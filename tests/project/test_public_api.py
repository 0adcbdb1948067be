"""What `import cubecast` promises."""

from __future__ import annotations

import ast
import pydoc
import subprocess
import sys
from pathlib import Path

import pytest

import cubecast

INIT = Path(cubecast.__file__ or "")


@pytest.mark.parametrize("name", cubecast.__all__)
def test_every_public_name_can_be_had(name: str) -> None:
    assert getattr(cubecast, name) is not None
    assert name in dir(cubecast)


def test_no_public_name_is_a_subpackage_too() -> None:
    """The import of a subpackage sets its name in the package, and would hide a function of that name."""
    folder = Path(cubecast.__file__).parent
    assert not {one.stem for one in folder.iterdir()} & set(cubecast.__all__)


def test_the_top_level_stays_small_enough_to_read() -> None:
    assert len(cubecast.__all__) <= 30
    assert len(set(cubecast.__all__)) == len(cubecast.__all__)


def test_a_name_that_does_not_exist_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'simulat'"):
        _ = cubecast.simulat  # type: ignore[attr-defined, unused-ignore]


def test_the_type_checker_sees_the_names_that_are_loaded_late() -> None:
    """The imports under TYPE_CHECKING name the homes that `__getattr__` uses."""
    seen: dict[str, str | None] = {}
    for node in ast.walk(ast.parse(INIT.read_bytes())):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            for line in node.body:
                assert isinstance(line, ast.ImportFrom)
                seen |= {alias.name: line.module for alias in line.names}
    assert seen == cubecast._HOMES


def test_importing_the_package_loads_neither_the_compiler_nor_the_simulator() -> None:
    program = """
import sys
import cubecast
libraries = ("numba", "numpy", "scipy", "pyarrow", "cubecast.sim", "cubecast.jit")
heavy = [name for name in libraries if name in sys.modules]
assert heavy == [], heavy
cubecast.errors.LocalProtocolError
cubecast.simulate
assert "cubecast.sim" in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_help_shows_a_newcomer_the_way() -> None:
    page = pydoc.plain(pydoc.render_doc(cubecast))
    for word in ("cubecast.simulate(", "cubecast.compare(", "help(cubecast.Scenario)", "add_protocol", "read_trace"):
        assert word in page


def test_the_code_in_the_docstring_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = cubecast.__doc__ or ""
    code = text[text.index("    import cubecast") : text.index("Where to look next")]
    monkeypatch.chdir(tmp_path)
    exec("\n".join(line.removeprefix("    ") for line in code.splitlines()), {})
    assert (tmp_path / "compare.html").is_file()
