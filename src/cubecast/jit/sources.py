"""Which sources a compiled function is built from, and where its machine code is cached.

Numba looks only at the file of the function it compiles, not at the files of the functions that one calls, so code
that calls an edited function would stay in the cache and give wrong results. Compiled code is therefore kept in a
directory named by a hash of everything it may contain: the file of the function and all files that it imports at
module level, directly or not. Libraries are left out; they have versions. Editing a file compiles again whatever
imports it, and nothing else.

`CUBECAST_CACHE_DIR` names the root of the cache.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path

_LIBRARIES = {Path(sysconfig.get_path(place)) for place in ("stdlib", "platstdlib", "purelib", "platlib")}
_IMPORT = re.compile(
    r"^(?:[ \t]+(?=from cubecast\.jit\.))?"
    r"(?:from[ \t]+(?P<module>[.\w]+)[ \t]+import[ \t]+(?P<names>\([^)]*\)|[^\n#]+)|import[ \t]+(?P<modules>[^\n#]+))",
    re.MULTILINE,
)
"""An import at the left margin. An indented one (for a type checker, or inside a function) is not compiled, except what
the decorators import where there is a compiler: it decides how every function is compiled."""


def cache_root() -> Path:
    """The folder of everything that cubecast caches between processes."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "cubecast"
    return Path(os.environ.get("CUBECAST_CACHE_DIR", default))


def code_root() -> Path:
    """The folder of compiled code."""
    return cache_root() / "compiled"


def code_directory(sources: Iterable[Path]) -> Path:
    """Where code compiled from these files is cached."""
    digest = hashlib.sha256()
    # Sorted by what is hashed: two checkouts of the same files are one.
    for name, content in sorted((source.name, _content_hash(source)) for source in set(sources)):
        digest.update(name.encode())
        digest.update(content)
    return code_root() / digest.hexdigest()[:16]


@cache
def _content_hash(source: Path) -> bytes:
    return hashlib.sha256(source.read_bytes()).digest()


@cache
def sources_of(path: Path) -> frozenset[Path]:
    """The file `path` and all files it imports at module level, directly or not."""
    found: set[Path] = set()
    unread = [path]
    while unread:
        source = unread.pop()
        if source not in found:
            found.add(source)
            unread += _imported_files(source)
    return frozenset(found)


def sources_of_class(kind: type) -> frozenset[Path]:
    """The sources of the module that defines a class."""
    return sources_of(Path(str(sys.modules[kind.__module__].__file__)))


@cache
def _imported_files(path: Path) -> tuple[Path, ...]:
    found = (_find(path, name) for name in _imported_names(path.read_text("utf-8")))
    return tuple(dict.fromkeys(file for file in found if file is not None))


def _imported_names(text: str) -> Iterator[str]:
    """Dotted names; `from a import b` may mean the module `a.b` or a name in `a`, so it gives both."""
    for match in _IMPORT.finditer(text):
        if match["modules"] is not None:
            yield from (_first_word(name) for name in match["modules"].split(","))
            continue
        module = match["module"]
        yield module
        for name in re.sub(r"#[^\n]*", "", match["names"]).strip("() \t").split(","):
            if name.strip():
                yield f"{module}{'' if module.endswith('.') else '.'}{_first_word(name)}"


def _first_word(name: str) -> str:
    """`name` of `name as other`."""
    return name.split()[0] if name.split() else ""


def _find(path: Path, name: str) -> Path | None:
    """The file of a module that `path` imports; None for a library, a built-in module or no module at all."""
    level = len(name) - len(name.lstrip("."))
    if level:
        return _in_folder(path.parents[level - 1], name.lstrip("."))
    root = _package_root(path)
    if root is not None and name.partition(".")[0] == root.name:
        return _in_folder(root.parent, name)
    file = getattr(sys.modules.get(name), "__file__", None)
    if file is None or Path(file).suffix != ".py":
        return None
    is_library = any(library in Path(file).parents for library in _LIBRARIES)
    is_ours = name.partition(".")[0] == __name__.partition(".")[0] or path.parent in Path(file).parents
    return Path(file) if is_ours or not is_library else None


def _in_folder(folder: Path, name: str) -> Path | None:
    place = folder.joinpath(*name.split(".")) if name else folder
    candidates = (place.with_suffix(".py"), place / "__init__.py") if name else (place / "__init__.py",)
    return next((file for file in candidates if file.is_file()), None)


@cache
def _package_root(path: Path) -> Path | None:
    """The folder of the outermost package that a file is in."""
    root = None
    for folder in path.parents:
        if not (folder / "__init__.py").is_file():
            break
        root = folder
    return root
