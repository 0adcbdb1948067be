"""The pages of the documentation, their code blocks and their commands."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*DOCS.rglob("*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"])

_PROGRAMS = r"(?:cubecast|docker|make|daphne|pip|python|uvicorn|mkdir|export|\$SPARK_HOME/bin/[\w-]+|SPARK_HOME=)"
_COMMAND = re.compile(rf"^(?:[A-Z]+=\S+ )*(?:\.venv/bin/)?{_PROGRAMS}")


def blocks(page: Path, *languages: str) -> list[str]:
    """The code blocks of a page in these languages."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [text for language, text in found if language in languages]


def command_lines(page: Path) -> list[str]:
    """The commands of a page as a reader types them, without comments."""
    found = []
    for text in blocks(page, "", "sh"):
        lines = [re.sub(r"\s+", " ", line.split(" #")[0]).strip() for line in text.replace("\\\n", " ").splitlines()]
        lines = [line for line in lines if line]
        if lines and (_COMMAND.match(lines[0])):
            found += [line.removeprefix(".venv/bin/") for line in lines]
    return found


def place_of(page: Path) -> str:
    """The page, as the tables of these tests name it."""
    return page.relative_to(DOCS if DOCS in page.parents else ROOT).as_posix()
