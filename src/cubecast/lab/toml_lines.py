"""The line of each key in a TOML file, so that an error in a plan can name it.

`tomllib` keeps no positions. This scanner knows just enough of TOML to find where keys begin: tables, arrays of tables,
dotted keys, strings and values that run over several lines. It reads only files that `tomllib` has accepted.
"""

from __future__ import annotations

import re
from collections import Counter

Path = tuple[str | int, ...]

_HEADER = re.compile(r"^\s*(\[\[?)\s*([^\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(
    r"""^\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=(.*)$"""
)
_TOKEN = re.compile(r'"""|\'\'\'|"(?:\\.|[^"\\])*"|\'[^\']*\'|#.*|[\[\]{}]')


def key_lines(text: str) -> dict[Path, int]:
    """The line, from 1, of every key and table; an array of tables counts its tables from 0."""
    lines: dict[Path, int] = {}
    table: Path = ()
    tables: Counter[Path] = Counter()
    state = _Open()
    for number, line in enumerate(text.splitlines(), start=1):
        if state.inside:
            state.read(line)
            continue
        header, key = _HEADER.match(line), _KEY.match(line)
        if header and not key:
            table = _enter(_parts(header[2]), header[1] == "[[", tables)
            _note(lines, table, number)
        elif key:
            _note(lines, (*table, *_parts(key[1])), number)
            state.read(key[2])
    return lines


def line_of(lines: dict[Path, int], *path: str | int) -> int:
    """The line of a key, or of the innermost table around it that has one; 1 when there is none."""
    for length in range(len(path), 0, -1):
        if path[:length] in lines:
            return lines[path[:length]]
    return 1


class _Open:
    """Tracks whether the scanner is inside a value of several lines: open brackets, or a multi-line string."""

    def __init__(self) -> None:
        self.depth = 0
        self.quote = ""

    @property
    def inside(self) -> bool:
        return self.depth > 0 or bool(self.quote)

    def read(self, text: str) -> None:
        place = 0
        while place < len(text):
            if self.quote:
                end = text.find(self.quote, place)
                if end < 0:
                    return
                place, self.quote = end + 3, ""
                continue
            token = _TOKEN.search(text, place)
            if token is None or token[0].startswith("#"):
                return
            place = token.end()
            if token[0] in ('"""', "'''"):
                self.quote = token[0]
            elif token[0] in "[{":
                self.depth += 1
            elif token[0] in "]}":
                self.depth -= 1


def _parts(dotted: str) -> tuple[str, ...]:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))


def _enter(names: tuple[str, ...], is_array: bool, tables: Counter[Path]) -> Path:
    """The path of the table that a header opens; `[[claim.test]]` belongs to the latest `[[claim]]`."""
    path: Path = ()
    for place, name in enumerate(names):
        path = (*path, name)
        if place == len(names) - 1 and is_array:
            tables[path] += 1
        if tables[path]:
            path = (*path, tables[path] - 1)
    return path


def _note(lines: dict[Path, int], path: Path, number: int) -> None:
    for length in range(1, len(path) + 1):
        lines.setdefault(path[:length], number)
