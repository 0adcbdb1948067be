"""Where the machine code of a function is kept: by the content of its sources, not by the place of its file.

Numba's own cache names a directory by the path of the source file, so a second checkout or virtual environment of the
same version would find nothing of what the first one compiled. Here the directory is the one of `sources`, which is
named by the content, below it one per compiler and processor, and below that one per module: code of a protocol refers
to the classes of its module by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, _CacheLocator

from cubecast.jit.backend import compiler


class _ContentLocator(_CacheLocator):
    """Names the directory that `keep_in` has chosen; its name holds the hash of the sources, so nothing in it ages."""

    directory = Path()

    def __init__(self, function: Callable[..., Any], file: str) -> None:
        self._py_file = file  # for Numba's warnings
        self._line = function.__code__.co_firstlineno
        self._path = str(self.directory / compiler() / function.__module__)

    def get_cache_path(self) -> str:
        return self._path

    def get_source_stamp(self) -> str:
        return "named by its content"

    def get_disambiguator(self) -> str:
        return str(self._line)

    @classmethod
    def from_function(cls, py_func: Callable[..., Any], py_file: str) -> _ContentLocator:
        return cls(py_func, py_file)


class _Format(CompileResultCacheImpl):
    _locator_classes = [_ContentLocator]  # noqa: RUF012


class _ContentCache(FunctionCache):
    _impl_class = _Format

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # a full disk: the code runs, and the next process compiles it again
            super().save_overload(sig, data)  # type: ignore[no-untyped-call]


def keep_in(directory: Path, dispatcher: Any) -> None:
    """Keep the machine code of a function in a directory; where none can be written, every process compiles."""
    if _is_writable(directory.parent):
        _ContentLocator.directory = directory
        dispatcher._cache = _ContentCache(dispatcher.py_func)


@cache
def _is_writable(root: Path) -> bool:
    try:
        root.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(root, os.W_OK)
