"""Versions of the libraries that a result depends on."""

from __future__ import annotations

import platform
from functools import cache
from importlib import metadata

LIBRARIES = ("numpy", "numba", "scipy", "pyarrow")


@cache
def library_versions() -> dict[str, str]:
    """The versions of cubecast, Python and the libraries that compute a run, in this process."""
    found = {"cubecast": version_of("cubecast"), "python": platform.python_version()}
    return found | {name: version_of(name) for name in LIBRARIES}


def version_of(name: str) -> str:
    """The version of an installed library, or a text that says it is missing."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
