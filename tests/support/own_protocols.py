"""Protocols that only one test knows."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from cubecast.protocols import catalogue


@contextmanager
def restored_catalogue() -> Iterator[None]:
    """Forget at the end which protocols and protocol files became known inside the block."""
    catalogue.protocols()
    known, files, path = catalogue._PROTOCOLS.copy(), catalogue._FILES.copy(), sys.path.copy()
    try:
        yield
    finally:
        for place in catalogue._FILES.keys() - files.keys():
            sys.modules.pop(place.stem, None)
        for table, before in ((catalogue._PROTOCOLS, known), (catalogue._FILES, files)):
            table.clear()
            table.update(before)  # type: ignore[arg-type]
        sys.path[:] = path
