"""The pending runs of a study as a table on disk, from which each worker reads the runs of its tasks.

One Parquet file in the folder of results: a row group per task, a row per run. The driver writes it before the first
task and removes it at the end. It has a random name; a worker that does not find this file under the path of the driver
does not share the folder, and everything that it wrote there would be lost.
"""

from __future__ import annotations

import json
import platform
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from cubecast.errors import LocalProtocolError
from cubecast.lab.remote import AnyPath, path_of, sink, source
from cubecast.lab.runs import Run, canonical
from cubecast.lab.source_hash import source_hash
from cubecast.lab.store import Store

NAME_KEY = b"cubecast-tasks"
TASKS = pa.schema(
    [pa.field(name, pa.string(), nullable=False) for name in ("run_id", "code", "experiment", "settings")]
)

Row = dict[str, Any]


class TaskFile(NamedTuple):
    """The path of the table, and its random name."""

    path: str
    name: str


@contextmanager
def task_file(store: Store, tasks: list[list[Run]]) -> Iterator[TaskFile]:
    """The table of these tasks, which exists during the block."""
    name = uuid.uuid4().hex
    path = store.tasks(name)
    try:
        _write(path, name, tasks)
        yield TaskFile(str(path.resolve()), name)
    finally:
        path.unlink(missing_ok=True)


def _write(path: AnyPath, name: str, tasks: list[list[Run]]) -> None:
    try:
        schema = TASKS.with_metadata({NAME_KEY: name.encode()})
        with sink(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
            for task in tasks:
                # One row group per task, however large.
                writer.write_table(pa.Table.from_pylist([pending_row(run) for run in task], schema=TASKS), len(task))
    except OSError as error:
        raise LocalProtocolError(f"cannot write into {path.parent}: {error.strerror or error}") from error


def pending_row(run: Run) -> Row:
    """The row of a run for a worker."""
    return {"run_id": run.id, "code": run.code, "experiment": run.experiment, "settings": canonical(run.settings)}


def read_task(tasks: TaskFile, number: int) -> list[Row]:
    """In a worker: the runs of a task, after checking that this machine can execute them."""
    path = path_of(tasks.path)
    host, folder = platform.node(), path.parent
    try:
        with pq.ParquetFile(source(path)) as file:
            name = (file.schema_arrow.metadata or {}).get(NAME_KEY, b"").decode()
            rows: list[Row] = file.read_row_group(number).to_pylist() if name == tasks.name else []
    except (OSError, pa.ArrowException):
        name, rows = "", []
    if name != tasks.name:
        raise LocalProtocolError(
            f"worker {host} does not share {folder} with the driver: choose a folder (--out) that all workers see"
        )
    _require_same_sources(rows, host)
    return rows


def _require_same_sources(rows: list[Row], host: str) -> None:
    """Require that this machine has the code and the network file that the key of a run names."""
    known: dict[str, str] = {}
    for row in rows:
        settings = json.loads(row["settings"])
        # The code does not depend on the seed, and the runs of a point follow each other.
        point = canonical({name: value for name, value in settings.items() if name != "seed"})
        if point not in known:
            known[point] = source_hash(settings)
        if known[point] != row["code"]:
            raise LocalProtocolError(
                f"the sources of worker {host} differ from those of the driver for {row['settings']}: "
                "install the same cubecast there, and put network files at the same path"
            )
