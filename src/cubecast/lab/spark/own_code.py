"""User code on Spark: its files are sent with the tasks, and workers load them before the first run.

A worker that finds the file at the driver's path, with the same content, loads it there and so finds the code that the
driver compiled. Otherwise it writes a copy into a folder of the cache that is named after the content.
"""

from __future__ import annotations

import hashlib
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from cubecast.errors import LocalProtocolError
from cubecast.jit.sources import cache_root, sources_of
from cubecast.lab.own_code import code_files, load_code_file

_PACKAGE = Path(__file__).resolve().parents[2]
_loaded: dict[str, str] = {}
"""The content that this worker loaded, by name of the file."""


class ShippedFile(NamedTuple):
    """A code file, and the files of its folder that it imports."""

    folder: str
    """The driver's path."""
    name: str
    files: tuple[tuple[str, bytes], ...]
    """Paths inside the folder, and contents."""

    def digest(self) -> str:
        """A name for the content."""
        return hashlib.sha256(repr((self.name, self.files)).encode()).hexdigest()[:16]


def shipped_files() -> list[ShippedFile]:
    """The code files that were loaded in this process."""
    return [_read(path) for path in code_files()]


def _read(path: Path) -> ShippedFile:
    own = [one for one in sources_of(path) if path.parent in one.parents and _PACKAGE not in one.parents]
    files = tuple((one.relative_to(path.parent).as_posix(), one.read_bytes()) for one in sorted(own))
    return ShippedFile(str(path.parent), path.name, files)


def load_shipped(files: list[ShippedFile]) -> None:
    """Add in this process what the files declare, once."""
    for one in files:
        digest = one.digest()
        if _loaded.get(one.name, digest) != digest:
            raise LocalProtocolError(f"{one.name} has changed since this worker loaded it: restart Spark")
        if one.name not in _loaded:
            folder = Path(one.folder) if _is_there(one) else _unpack(one, digest)
            load_code_file(folder / one.name)
            _loaded[one.name] = digest


def _is_there(one: ShippedFile) -> bool:
    try:
        return all((Path(one.folder) / name).read_bytes() == content for name, content in one.files)
    except OSError:
        return False


def _unpack(one: ShippedFile, digest: str) -> Path:
    """Write the files; several workers may do so at once, and the first to finish wins."""
    place = cache_root() / "own_code" / digest
    if place.is_dir():
        return place
    place.parent.mkdir(parents=True, exist_ok=True)
    made = Path(tempfile.mkdtemp(dir=place.parent))
    for name, content in one.files:
        file = made / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content)
    with suppress(OSError):
        made.rename(place)
    shutil.rmtree(made, ignore_errors=True)
    return place
