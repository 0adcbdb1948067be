"""Write a file atomically: under a hidden name in the same folder, then renamed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import overload

from cubecast.errors import LocalProtocolError
from cubecast.lab.remote import AnyPath, RemotePath, path_of


@overload
def write_whole(path: str | Path, content: str | bytes) -> Path: ...


@overload
def write_whole(path: AnyPath, content: str | bytes) -> AnyPath: ...


def write_whole(path: str | AnyPath, content: str | bytes) -> AnyPath:
    """Write `content` to `path` and make its folder; an interrupted or failed write leaves the old content."""
    if isinstance(path, RemotePath):
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path
    path = Path(path)
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(content.encode() if isinstance(content, str) else content)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise LocalProtocolError(f"cannot write {path}: {error.strerror}; remove it or choose another path") from error
    return path


def check_folder(folder: str | Path) -> None:
    """Check that a file can be written there, before a long simulation and not after it."""
    if isinstance(path_of(folder), RemotePath):
        raise LocalProtocolError(f"cannot write into {folder}: give a folder of this machine")
    nearest = Path(folder).absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        raise LocalProtocolError(f"cannot write into {folder}: {nearest} is not a folder that you may write to")
