"""Code of the user's own that only one test knows."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from cubecast.lab import metric_titles, own_code, own_metrics
from cubecast.networks import spec
from cubecast.protocols import catalogue
from cubecast.trace.checkers import registry


@contextmanager
def restored_catalogue() -> Iterator[None]:
    """Forget at the end which files, protocols, networks, metrics and checkers became known inside the block."""
    catalogue.list_protocols()
    tables: list[dict[Any, Any]] = [
        catalogue._PROTOCOLS,
        catalogue._FILES,
        own_code._FILES,
        own_metrics._OWN,
        metric_titles.TITLES,
        spec._OWN,
        registry._OWN,
    ]
    before, path = [table.copy() for table in tables], sys.path.copy()
    named = os.environ.get(catalogue.ENVIRONMENT)
    files = {*catalogue._FILES, *own_code._FILES}
    try:
        yield
    finally:
        for place in {*catalogue._FILES, *own_code._FILES} - files:
            sys.modules.pop(place.stem, None)
        for table, kept in zip(tables, before, strict=True):
            table.clear()
            table.update(kept)
        sys.path[:] = path
        os.environ.pop(catalogue.ENVIRONMENT, None)
        if named is not None:
            os.environ[catalogue.ENVIRONMENT] = named
