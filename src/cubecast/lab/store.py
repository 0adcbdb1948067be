"""The results folder: its layout, its lock, and the treatment of unreadable files.

| path | what |
|---|---|
| `.tasks-*.parquet`, `.rows-*/` | the pending runs, and other rows for workers, while a study runs |
| `runs/*.parquet` | results, one row per run; a file is there whole or not at all |
| `unreadable/` | result files that were found damaged |
| `tables/{points,values,summary,findings}/study=…/` | what was measured (docs/results.md) |
| `tables/` | one CSV and one Parquet file per figure, the verdicts |
| `figures/` | PNG and SVG of each figure |
| `report/index.html` | the report |
"""

from __future__ import annotations

import fcntl
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.errors import LocalProtocolError
from cubecast.lab.schema import RUNS

ROWS_PREFIX = ".rows-"
"""How the folder of a table begins that is there only while it is needed."""
_ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:/")
"""How s3://bucket and the like begin; a path has lost the second slash."""


@dataclass(frozen=True)
class Store:
    """A folder of results."""

    root: Path

    @property
    def runs(self) -> Path:
        return self.root / "runs"

    @property
    def tables(self) -> Path:
        return self.root / "tables"

    def table(self, name: str) -> Path:
        """A table of all studies, a folder `study=…` for each."""
        return self.tables / name

    def partition(self, name: str, study: str) -> Path:
        """The part of a table that belongs to a study."""
        return self.table(name) / f"study={study}"

    @property
    def figures(self) -> Path:
        return self.root / "figures"

    @property
    def report(self) -> Path:
        return self.root / "report"

    def tasks(self, name: str) -> Path:
        """Where the pending runs of the study of that name are while it runs."""
        return self.root / f".tasks-{name}.parquet"

    def make(self) -> None:
        """Make the folders, or say why not."""
        require_folder(self.root, "--out")
        try:
            for folder in (self.runs, self.tables, self.figures, self.report):
                folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise LocalProtocolError(f"{error.filename}: {error.strerror}; choose another folder (--out)") from error

    def set_aside_unreadable(self) -> list[Path]:
        """Move damaged result files to `unreadable/`, so that their runs are done again; returns the new paths."""
        aside = []
        for path in sorted(self.runs.glob("*.parquet")):
            if _is_readable(path):
                continue
            moved = self.root / "unreadable" / path.name
            moved.parent.mkdir(exist_ok=True)
            aside.append(path.replace(moved))
        return aside

    def clear_unfinished(self) -> None:
        """Remove what a killed study had not committed."""
        shutil.rmtree(self.runs / "_temporary", ignore_errors=True)
        for path in self.root.glob(self.tasks("*").name):
            path.unlink(missing_ok=True)
        for path in self.root.glob(f"{ROWS_PREFIX}*"):
            shutil.rmtree(path, ignore_errors=True)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Let one study write here at a time; a process that dies lets go."""
        with (self.root / ".writing").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise LocalProtocolError(
                    f"{self.root}: another study is writing here; wait for it, or choose another folder (--out)"
                ) from None
            yield


def require_folder(path: Path, option: str) -> None:
    """Refuse an address such as s3://bucket: as a path it would be a new folder here."""
    if _ADDRESS.match(str(path)):
        raise LocalProtocolError(
            f"{option} {path}: an address is not a folder; name one that the driver and all workers share, "
            "such as a mounted volume"
        )


def _is_readable(path: Path) -> bool:
    """Read every page and check its checksum; the files are small."""
    try:
        table = pq.read_table(path, page_checksum_verification=True, partitioning=None)
    except (OSError, pa.ArrowException, ValueError):
        return False
    needed = {field.name for field in RUNS if not field.nullable}
    return needed <= set(table.column_names)
