"""A library that is not installed is named with the extra that installs it."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from cubecast.extras import EXTRA_OF, MissingExtraError, explain, named

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


def run_without(libraries: tuple[str, ...], program: str) -> subprocess.CompletedProcess[str]:
    """Run a program in a process in which these libraries cannot be imported."""
    hide = f"import sys\nsys.modules |= dict.fromkeys({libraries!r})\n"
    return subprocess.run([sys.executable, "-c", hide + program], capture_output=True, text=True, timeout=120)


def test_the_name_of_the_extra_is_in_the_error() -> None:
    with (
        pytest.raises(MissingExtraError, match=r"a trace file needs pyarrow.*pip install 'cubecast\[sim\]'"),
        named("a trace file"),
    ):
        raise ModuleNotFoundError("No module named 'pyarrow.parquet'", name="pyarrow.parquet")


def test_a_module_of_no_extra_stays_what_it_is() -> None:
    assert explain(ModuleNotFoundError("No module named 'mine'", name="mine"), "x") is None
    with pytest.raises(ModuleNotFoundError, match="mine"), named("x"):
        raise ModuleNotFoundError("No module named 'mine'", name="mine")


def test_every_extra_that_is_named_exists() -> None:
    project = tomllib.loads(PYPROJECT.read_text("utf-8"))["project"]
    assert set(EXTRA_OF.values()) <= set(project["optional-dependencies"])
    plain = " ".join(project["dependencies"]).replace("-", "_")
    assert not [library for library in EXTRA_OF if library in plain]


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["simulate", "coord", "--members", "3"], "sim"),
        (["compare", "--members", "3"], "sim"),
        (["check", "run.parquet"], "sim"),
        (["study", "list"], "sim"),
    ],
)
def test_the_command_line_says_it_in_one_line(arguments: list[str], extra: str, tmp_path: Path) -> None:
    (tmp_path / "run.parquet").write_bytes(b"PAR1")
    arguments = [str(tmp_path / one) if one == "run.parquet" else one for one in arguments]
    done = run_without(tuple(EXTRA_OF), f"from cubecast.cli import main\nmain({arguments!r})")
    assert done.returncode == 2
    assert f"pip install 'cubecast[{extra}]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_python_says_it_too() -> None:
    done = run_without(tuple(EXTRA_OF), "import cubecast\ncubecast.simulate")
    assert "cubecast.simulate needs scipy, which is not installed: pip install 'cubecast[sim]'" in done.stderr


def test_a_group_needs_no_extra() -> None:
    program = """
import asyncio, cubecast
from cubecast.live.local import free_addresses

async def main():
    (address,) = free_addresses(1)
    async with cubecast.join("g", listen=address, found=True, plaintext=True) as group:
        await group.multicast(b"hello")
        print((await group.receive(10)).payload)

asyncio.run(main())
"""
    done = run_without((*EXTRA_OF, "uvloop"), program)
    assert done.stdout == "b'hello'\n", done.stderr


@pytest.mark.parametrize(
    ("adapter", "library", "extra"),
    [
        ("channels", "channels", "channels"),
        ("otel", "opentelemetry", "otel"),
        ("pycrdt", "pycrdt", "crdt"),
        ("socketio", "socketio", "socketio"),
    ],
)
def test_an_adapter_without_its_library_names_its_extra(adapter: str, library: str, extra: str) -> None:
    done = run_without((library,), f"import cubecast.contrib.{adapter}")
    assert f"pip install 'cubecast[{extra}]'" in done.stderr.splitlines()[-1]
