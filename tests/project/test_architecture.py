"""The map for newcomers names files that exist: docs/architecture.md and CONTRIBUTING.md."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "cubecast"
MAP = ROOT / "docs" / "architecture.md"

_PATH = re.compile(r"(?<![\w/.:-])(?:[\w-]+/)*[\w-]+\.(?:py|html|toml|md|lock)\b|(?<![\w/.:-])(?:[\w-]+/)+(?=[\s`,;)])")
_PLACEHOLDERS = {"plans/x.toml", "report/index.html", "results/site"}
"""A plan of the reader, and what a command writes."""


def named_files(text: str) -> set[str]:
    """The files and folders that a page names, apart from links."""
    return set(_PATH.findall(re.sub(r"\[[^]]*\]\([^)]*\)", "", text))) - _PLACEHOLDERS


def exists(name: str) -> bool:
    """Is there such a file or folder, in the package or in the repository? A bare name may be in any package."""
    places = [PACKAGE / name, ROOT / name]
    return any(place.exists() for place in places) or ("/" not in name and any(PACKAGE.rglob(name)))


@pytest.mark.parametrize("page", [MAP, ROOT / "CONTRIBUTING.md"], ids=lambda page: page.stem)
def test_every_named_file_exists(page: Path) -> None:
    named = named_files(page.read_text("utf-8"))
    assert len(named) > 15
    assert sorted(name for name in named if not exists(name)) == []


def test_a_file_that_does_not_exist_is_found() -> None:
    assert named_files("see `sim/kernel.py`, `protocols/membership/` and `sim/kernal.py`") == {
        *("sim/kernel.py", "protocols/membership/", "sim/kernal.py")
    }
    assert exists("sim/kernel.py")
    assert exists("kernel.py")
    assert not exists("sim/kernal.py")


def test_the_table_of_packages_is_complete() -> None:
    table = re.findall(r"^\| `([a-z]+)/?` \|", MAP.read_text("utf-8"), re.MULTILINE)
    found = {place.name for place in PACKAGE.iterdir() if (place / "__init__.py").exists()} | {"errors", "extras"}
    assert sorted(table) == sorted(found)
