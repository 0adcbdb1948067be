"""Files in an object store or a distributed file system, with the part of the interface of `Path` that a study needs.

| address | store |
|---|---|
| `s3://`, `s3a://` | Amazon S3 and compatible stores |
| `hdfs://` | HDFS, through the libhdfs of a Hadoop installation |
| `gs://`, `abfs://`, `abfss://` | Google Cloud Storage, Azure |
| `file://`, or no scheme | a folder |

Arrow's file systems do all the work, in the driver and in the workers; Spark only moves rows. So no Hadoop class is
needed, and a file appears only when it is complete: an object store shows an object when its upload has ended, and
nothing is renamed. Options for Arrow follow a question mark
(`s3://bucket/results?region=eu-west-1&endpoint_override=HOST:9000&scheme=http`); credentials are those of the machine.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cache
from io import BufferedWriter
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.dataset as ds
from pyarrow import fs

from cubecast.errors import LocalProtocolError

_ADDRESS = re.compile(r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]+):(?:/+(?P<rest>.*))?", re.DOTALL)
"""Matches s3://bucket and similar addresses; an address that became a `Path` has lost its second slash, or both."""
_SCHEMES = {"s3": "s3", "s3a": "s3", "hdfs": "hdfs", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfss"}
"""Arrow's name of each scheme."""


@dataclass(frozen=True, order=True)
class RemotePath:
    """A file or folder in a store; the store is not contacted until the file is read or written."""

    scheme: str
    place: str
    """Bucket or host, and the path in it."""
    options: str = ""

    def __str__(self) -> str:
        """The whole address."""
        return f"{self.scheme}://{self.place}" + (f"?{self.options}" if self.options else "")

    def __truediv__(self, name: str) -> RemotePath:
        return replace(self, place=f"{self.place.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self.place.rpartition("/")[2]

    @property
    def parent(self) -> RemotePath:
        return replace(self, place=self.place.rpartition("/")[0])

    def with_name(self, name: str) -> RemotePath:
        """Another file of the same folder."""
        return self.parent / name

    def resolve(self) -> RemotePath:
        """Return the address itself, which is always absolute."""
        return self

    def found(self) -> tuple[Any, str]:
        """Arrow's file system, and the path in it."""
        return _file_system(str(self)), _key(self)

    def glob(self, pattern: str) -> Iterator[RemotePath]:
        """The files and folders here whose names fit."""
        system, key = self.found()
        selected = _asked(self, lambda: system.get_file_info(fs.FileSelector(key, allow_not_found=True)))
        names = (one.path.rstrip("/").rpartition("/")[2] for one in selected)
        return iter([self / name for name in sorted(names) if fnmatch(name, pattern)])

    def _kind(self) -> Any:
        system, key = self.found()
        return _asked(self, lambda: system.get_file_info([key]))[0].type

    def exists(self) -> bool:
        return bool(self._kind() != fs.FileType.NotFound)

    def is_dir(self) -> bool:
        return bool(self._kind() == fs.FileType.Directory)

    def read_bytes(self) -> bytes:
        system, key = self.found()
        with system.open_input_stream(key) as file:
            return bytes(file.read())

    def read_text(self, encoding: str = "utf-8") -> str:
        return self.read_bytes().decode(encoding)

    def write_bytes(self, content: bytes) -> int:
        """Write the content, completely or not at all."""
        system, key = self.found()

        def put() -> int:
            with system.open_output_stream(key) as file:
                return int(file.write(content))

        return int(_asked(self, put))

    def age_s(self, now_s: float) -> float | None:
        """Seconds since the file was last modified; None if the store does not report it."""
        system, key = self.found()
        changed = system.get_file_info([key])[0].mtime_ns
        return None if changed is None else now_s - changed / 1e9

    def mkdir(self, *, parents: bool = True, exist_ok: bool = True) -> None:
        """Make a folder, if the store has folders; an object store has none."""
        assert parents
        assert exist_ok
        if self.scheme == "hdfs":
            system, key = self.found()
            _asked(self, lambda: system.create_dir(key, recursive=True))

    def unlink(self, *, missing_ok: bool = False) -> None:
        system, key = self.found()
        with suppress(*([FileNotFoundError] if missing_ok else [])):
            system.delete_file(key)

    def replace(self, target: RemotePath) -> RemotePath:
        """Move the file."""
        system, key = self.found()
        target.parent.mkdir()
        system.move(key, target.found()[1])
        return target

    def remove_tree(self) -> None:
        """Remove a folder with its content, if it exists."""
        system, key = self.found()
        with suppress(FileNotFoundError):
            system.delete_dir(key)


AnyPath = Path | RemotePath


def path_of(address: str | AnyPath) -> AnyPath:
    """A path on this machine, or an address in a store."""
    if isinstance(address, RemotePath):
        return address
    found = _ADDRESS.fullmatch(str(address))
    if found is None:
        return Path(address)
    scheme, (place, _, options) = found["scheme"].lower(), (found["rest"] or "").partition("?")
    if scheme in ("file", *_SCHEMES) and not place:
        raise LocalProtocolError(f"{address}: the address names no bucket or host; write {scheme}://BUCKET/PATH")
    if scheme == "file":
        return Path("/") / unquote(place)
    if scheme not in _SCHEMES:
        known = ", ".join(f"{one}://" for one in ("file", *_SCHEMES))
        raise LocalProtocolError(f"{address}: an address starts with one of {known}")
    return RemotePath(_SCHEMES[scheme], place.rstrip("/"), options)


@cache
def _file_system(address: str) -> Any:
    if address.startswith("s3:"):
        # A small file then takes one request, not three.
        address += ("&" if "?" in address else "?") + "allow_delayed_open=true"
    try:
        return fs.FileSystem.from_uri(address)[0]
    except (OSError, pa.ArrowException, ValueError) as error:
        raise LocalProtocolError(f"{address}: {_first_line(error)}") from error


def _key(path: RemotePath) -> str:
    """The path as its file system names it: HDFS leaves out the host."""
    return urlsplit(str(path)).path if path.scheme == "hdfs" else path.place


def _asked(path: RemotePath, question: Any) -> Any:
    """Ask the store; a failure becomes an error of one line."""
    try:
        return question()
    except FileNotFoundError:
        raise
    except (OSError, pa.ArrowException) as error:
        raise LocalProtocolError(f"{path}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__)


def source(path: AnyPath) -> Any:
    """A file as Arrow reads it."""
    if isinstance(path, Path):
        return path
    system, key = path.found()
    return system.open_input_file(key)


def remove_tree(path: AnyPath) -> None:
    """Remove a folder with its content, if it exists."""
    if isinstance(path, RemotePath):
        path.remove_tree()
    else:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def sink(path: AnyPath) -> Iterator[BufferedWriter | Any]:
    """Open a file to be written in pieces."""
    if isinstance(path, Path):
        with path.open("wb") as file:
            yield file
        return
    system, key = path.found()
    with _asked(path, lambda: system.open_output_stream(key)) as stream:
        yield stream


def dataset_of(path: AnyPath, **how: Any) -> Any:
    """The Parquet files of a folder as one dataset of Arrow."""
    if isinstance(path, Path):
        return ds.dataset(path, format="parquet", **how)
    system, key = path.found()
    return ds.dataset(key, filesystem=system, format="parquet", **how)
