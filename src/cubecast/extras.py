"""Libraries that are not part of the plain installation, and the extra that installs each.

`pip install cubecast` is the live runtime alone. A call that needs more fails with one line that names the extra.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from cubecast.errors import CubecastError

EXTRA_OF = {
    "altair": "sim",
    "channels": "channels",
    "grpc": "connect",
    "llvmlite": "fast",
    "numba": "fast",
    "opentelemetry": "otel",
    "pandas": "lab",
    "pyarrow": "sim",
    "pycrdt": "crdt",
    "pyspark": "lab",
    "scipy": "sim",
    "socketio": "socketio",
    "starlette": "starlette",
    "topohub": "topologies",
    "vl_convert": "sim",
}
"""Import name of a library: the smallest extra that installs it."""


class MissingExtraError(CubecastError, ImportError):
    """A library of an extra is not installed; the message names the extra."""


@contextmanager
def named(what: str) -> Iterator[None]:
    """In the block, a missing library of an extra raises `MissingExtraError`, which says what needs it."""
    try:
        yield
    except ModuleNotFoundError as error:
        explained = explain(error, what)
        if explained is None:
            raise
        raise explained from None


def explain(error: ModuleNotFoundError, what: str) -> MissingExtraError | None:
    """The error with the extra in it; None if the library is of no extra."""
    library = (error.name or "").partition(".")[0]
    extra = EXTRA_OF.get(library)
    if extra is None:
        return None
    return MissingExtraError(f"{what} needs {library}, which is not installed: pip install 'cubecast[{extra}]'")
