"""The results folder: its layout, its lock, and the treatment of unreadable files.

| path | contents |
|---|---|
| `.tasks-*.parquet`, `.rows-*/` | the pending runs, and other rows for workers, while a study runs |
| `runs/*.parquet` | results, one row per run; a file is complete or absent |
| `unreadable/` | damaged result files |
| `tables/{points,values,summary,findings}/study=…/` | the measurements (docs/results.md) |
| `tables/` | one CSV and one Parquet file per figure, the verdicts |
| `figures/` | PNG and SVG of each figure |
| `report/index.html` | the report |
"""

from __future__ import annotations

import fcntl
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.errors import LocalProtocolError
from cubecast.lab.remote import AnyPath, RemotePath, path_of, source
from cubecast.lab.schema import RUNS

ROWS_PREFIX = ".rows-"
"""Prefix of the folder of a temporary table."""
_FORGOTTEN_S = 7 * 86400.0
"""After this time a table of pending runs in an object store belongs to a killed study."""


@dataclass(frozen=True)
class Store:
    """A folder of results, on this machine or in an object store (`lab.remote`)."""

    root: AnyPath

    def __post_init__(self) -> None:
        object.__setattr__(self, "root", path_of(self.root))

    @property
    def runs(self) -> AnyPath:
        return self.root / "runs"

    @property
    def tables(self) -> AnyPath:
        return self.root / "tables"

    def table(self, name: str) -> AnyPath:
        """A table of all studies, a folder `study=…` for each."""
        return self.tables / name

    def partition(self, name: str, study: str) -> AnyPath:
        """The part of a table that belongs to a study."""
        return self.table(name) / f"study={study}"

    @property
    def figures(self) -> AnyPath:
        return self.root / "figures"

    @property
    def report(self) -> AnyPath:
        return self.root / "report"

    def tasks(self, name: str) -> AnyPath:
        """The path of the pending runs of a study while it runs."""
        return self.root / f".tasks-{name}.parquet"

    def make(self) -> None:
        """Make the folders."""
        try:
            for folder in (self.runs, self.tables, self.figures, self.report):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalProtocolError(f"{error.filename}: {error.strerror}; choose another folder (--out)") from error

    def set_aside_unreadable(self) -> list[AnyPath]:
        """Move damaged result files to `unreadable/`, so that their runs are repeated; return the new paths."""
        aside: list[AnyPath] = []
        for path in result_files(self):
            if _is_readable(path):
                continue
            moved = self.root / "unreadable" / path.name
            moved.parent.mkdir(parents=True, exist_ok=True)
            aside.append(path.replace(moved))  # type: ignore[arg-type] # both are of one kind
        return aside

    def clear_unfinished(self) -> None:
        """Remove uncommitted files of a killed study; in an object store only old ones: a study may be running."""
        if isinstance(self.root, RemotePath):
            self._forget_old(self.root)
            return
        assert isinstance(self.runs, Path)
        shutil.rmtree(self.runs / "_temporary", ignore_errors=True)
        for path in self.root.glob(self.tasks("*").name):
            path.unlink(missing_ok=True)
        for path in self.root.glob(f"{ROWS_PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)

    def _forget_old(self, root: RemotePath) -> None:
        for path in [*root.glob(self.tasks("*").name), *root.glob(f"{ROWS_PREFIX}*")]:
            age_s = path.age_s(time.time())
            if age_s is not None and age_s > _FORGOTTEN_S:
                path.unlink(missing_ok=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let only one study write here at a time; the lock of a process that dies is released.

        An object store has no locks. Two studies in one execute some runs twice, with equal results, which is harmless.
        """
        if isinstance(self.root, RemotePath):
            yield
            return
        with (self.root / ".writing").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LocalProtocolError(
                    f"{self.root}: another study is writing here; wait for it, or choose another folder (--out)"
                ) from None
            yield


def result_files(store: Store) -> list[AnyPath]:
    """The files with results."""
    return sorted(store.runs.glob("*.parquet"))


def _is_readable(path: AnyPath) -> bool:
    """Read every page and check its checksum; the files are small. The columns must be those of `RUNS`."""
    if isinstance(path, Path) and not path.is_file():
        return False
    try:
        table = pq.read_table(source(path), page_checksum_verification=True, partitioning=None)
    except (OSError, pa.ArrowException, ValueError):
        return False
    found = {field.name: field.type for field in table.schema}
    return all(_is_of_type(found.get(field.name), field) for field in RUNS)


def _is_of_type(found: pa.DataType | None, wanted: pa.Field) -> bool:
    """Is a column as `RUNS` has it? Older files may lack a nullable one."""
    if found is None:
        return bool(wanted.nullable)
    if pa.types.is_map(wanted.type):  # Spark names their parts in another way
        return pa.types.is_map(found) and (found.key_type, found.item_type) == (
            wanted.type.key_type,
            wanted.type.item_type,
        )
    return bool(found == wanted.type or pa.types.is_null(found))
