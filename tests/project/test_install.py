"""The wheel and the source distribution, installed as a user would: a fresh virtual environment per extra.

`python -m pytest tests/project/test_install.py -s` prints the size of each.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest

from cubecast.extras import EXTRA_OF
from tests.support.locked import write_constraints

ROOT = Path(__file__).parents[2]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TWO_MEMBERS = """
import asyncio, sys, cubecast
from cubecast.live.keys import init, issue
from cubecast.live.local import free_addresses

async def member(address, addresses):
    credentials = cubecast.Credentials.load(f"keys/{address}.pem", ca="keys/group.pem")
    async with cubecast.join("g", listen=address, peers=addresses, credentials=credentials) as group:
        message = await group.multicast(address.encode())
        got = sorted([(await group.receive(30)).payload.decode() for _ in addresses])
        await message.stable(timeout=30)
        return got

async def main():
    from pathlib import Path
    addresses = free_addresses(2)
    init(Path("keys"))
    for address in addresses:
        issue(Path("keys"), address, name=address)
    print(await asyncio.gather(*(member(one, addresses) for one in addresses)) == [addresses] * 2)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The wheel and the source distribution."""
    folder = tmp_path_factory.mktemp("built")
    source = folder / "source"
    kept = ("pyproject.toml", "README.md", "LICENSE", "src")
    source.mkdir()
    for name in kept:
        subprocess.run(["cp", "-r", ROOT / name, source / name], check=True)
    program = (
        "from setuptools import build_meta as b; import sys; to = sys.argv[1]; b.build_sdist(to); b.build_wheel(to)"
    )
    subprocess.run([sys.executable, "-c", program, folder], cwd=source, check=True, capture_output=True, timeout=300)
    (wheel,), (archive,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    return wheel, archive


@pytest.fixture(scope="module")
def constraints(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The locked versions, without their hashes."""
    return write_constraints(tmp_path_factory.mktemp("lock") / "constraints.txt")


def clean_environment() -> dict[str, str]:
    """The environment without what points Python to this tree."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "VIRTUAL_ENV"))}


def install(wheel: Path, extra: str, constraints: Path, folder: Path) -> Path:
    """A fresh virtual environment with the wheel in it; returns its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    python = folder / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python), "--disable-pip-version-check"]
    named = f"{wheel}[{extra}]" if extra else str(wheel)
    command = [*pip, "install", "-qq", "--constraint", str(constraints), named]
    done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True, timeout=1200)
    assert done.returncode == 0, done.stderr
    return python


def run(python: Path, *arguments: str | Path, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run Python there."""
    environment = clean_environment() | {"CUBECAST_CACHE_DIR": str(folder / "cache")}
    command = [python, *arguments]
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=900)


def megabytes(folder: Path) -> float:
    """The size of all files below a folder."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink()) / 1e6


def test_wheel_and_source_distribution_hold_the_package(built: tuple[Path, Path]) -> None:
    wheel, archive = built
    with zipfile.ZipFile(wheel) as file:
        names = set(file.namelist())
        (described,) = (name for name in names if name.endswith("/METADATA"))
        metadata = Parser().parsestr(file.read(described).decode())
    sources = {one.relative_to(ROOT / "src").as_posix() for one in (ROOT / "src/cubecast").rglob("*.py")}
    assert sources <= names
    assert {"cubecast/py.typed", "cubecast/live/status.html", "cubecast/lab/report.html"} <= names
    assert metadata["Requires-Python"] == ">=3.11"
    with tarfile.open(archive) as tar:
        inside = {name.partition("/")[2] for name in tar.getnames()}
    assert {f"src/{one}" for one in sources} <= inside


def test_an_older_python_is_refused_at_once(built: tuple[Path, Path], tmp_path: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "--dest", str(tmp_path)]
    command = [*pip, "--python-version", "3.10", "--only-binary", ":all:", str(built[0])]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert "requires a different Python: 3.10" in done.stderr


def test_the_plain_installation_runs_a_group_over_tls_and_names_the_extra_for_the_rest(
    built: tuple[Path, Path], constraints: Path, tmp_path: Path
) -> None:
    python = install(built[0], "", constraints, tmp_path / "venv")
    site = next((tmp_path / "venv").glob("lib/*/site-packages"))
    assert not [library for library in EXTRA_OF if (site / library).exists()]
    print(f"\ncubecast: {megabytes(tmp_path / 'venv'):.0f} MB")
    done = run(python, "-c", TWO_MEMBERS, folder=tmp_path)
    assert done.stdout == "True\n", done.stderr
    command = python.parent / "cubecast"
    for arguments, extra in ((["simulate", "coord", "--members", "3"], "sim"), (["study", "run"], "sim")):
        refused = run(command, *arguments, folder=tmp_path)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert f"pip install 'cubecast[{extra}]'" in refused.stderr
        assert len(refused.stderr.splitlines()) == 1
    assert "nothing to compile" in run(command, "warm", folder=tmp_path).stdout


@pytest.mark.parametrize(
    ("extra", "program"),
    [
        ("fast", "from cubecast.jit.backend import COMPILED; import uvloop; assert COMPILED"),
        ("sim", "import cubecast; assert cubecast.compare and cubecast.read_trace; import altair, vl_convert"),
        ("lab", "from cubecast.lab.spark import studies"),
        ("channels,socketio,starlette", "from cubecast.contrib import channels, socketio, starlette; import starlette"),
        ("crdt,otel", "from cubecast.contrib import otel, pycrdt; import opentelemetry"),
        (
            "topologies",
            "from cubecast.networks.spec import build_network as build\n"
            "build('topohub:name=sndlib/germany50', members=9, seed=1)",
        ),
    ],
)
def test_an_extra_adds_what_it_says(
    built: tuple[Path, Path], constraints: Path, tmp_path: Path, extra: str, program: str
) -> None:
    python = install(built[0], extra, constraints, tmp_path / "venv")
    print(f"\ncubecast[{extra}]: {megabytes(tmp_path / 'venv'):.0f} MB")
    done = run(python, "-c", program, folder=tmp_path)
    assert done.returncode == 0, done.stderr
