"""A folder of live traces is followed as it grows: lag, slowest member and buffers per window."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cubecast.errors import LocalProtocolError
from cubecast.trace import DELIVER, STABLE, blank_events

pytestmark = [pytest.mark.spark]

SECOND = 1_000_000_000
SECONDS_MAX = 120.0


def _append(path: Path, rows: list[tuple[float, int, int, int]], member: int) -> None:
    """Append (seconds, event, sender, sequence) as a live member does."""
    events = blank_events(len(rows))
    events["member"] = member
    for place, (seconds, event, sender, sequence) in enumerate(rows):
        events["time_ns"][place] = round(seconds * SECOND)
        events["event"][place], events["sender"][place], events["sequence"][place] = event, sender, sequence
    with path.open("ab") as file:
        file.write(np.ascontiguousarray(events).tobytes())


def _write_early(folder: Path) -> None:
    """Sender 0 sends 4 messages; member 1 is two behind; nothing is stable yet."""
    for member, upto in ((0, 4), (1, 2), (2, 4)):
        rows = [(0.1 * sequence, DELIVER, 0, sequence) for sequence in range(1, upto + 1)]
        _append(folder / f"{member}.rows", rows, member)


def _write_late(folder: Path) -> None:
    """In the third second member 1 catches up and all know 3 messages stable."""
    _append(folder / "1.rows", [(2.1, DELIVER, 0, 3), (2.2, DELIVER, 0, 4)], 1)
    for member in range(3):
        _append(folder / f"{member}.rows", [(2.5, STABLE, 0, 3)], member)


def test_windows_follow_the_files_as_they_grow(tmp_path: Path, spark: Any) -> None:
    from cubecast.lab.spark.follow import follow

    folder = tmp_path / "traces"
    folder.mkdir()
    _write_early(folder)
    with (folder / "0.rows").open("ab") as file:
        file.write(b"half a row")
    seen: list[list[dict[str, Any]]] = []
    written, enough = threading.Event(), threading.Event()

    def show(table: list[dict[str, Any]]) -> None:
        seen.append(table)
        if len(table) == 3:
            enough.set()
        if table and not written.is_set():
            (folder / "0.rows").write_bytes((folder / "0.rows").read_bytes()[: -len(b"half a row")])
            _write_late(folder)
            written.set()

    place = tmp_path / "place"
    last = follow(spark, folder, window_s=1.0, seconds=SECONDS_MAX, show=show, checkpoint=place, enough=enough)
    assert written.is_set()
    assert seen[0] != last
    first, _, third = last
    assert (first["window_s"], first["lag_messages"], first["slowest"], first["behind"]) == (1.0, 4, 1, 2)
    assert (first["buffer_mean"], first["buffer_max"], first["members"]) == (pytest.approx(10 / 3), 4, 3)
    assert (third["window_s"], third["lag_messages"], third["behind"], third["buffer_max"]) == (3.0, 1, 0, 1)
    assert third["lag_s"] == 3.0


def test_a_stream_goes_on_from_its_checkpoint(tmp_path: Path, spark: Any) -> None:
    from cubecast.lab.spark.follow import follow

    folder = tmp_path / "traces"
    folder.mkdir()
    _write_early(folder)
    how: dict[str, Any] = {"window_s": 1.0, "seconds": 0.5, "show": lambda _: None, "checkpoint": tmp_path / "place"}
    assert len(follow(spark, folder, **how)) == 1
    began = time.monotonic()
    _write_late(folder)
    again = follow(spark, folder, **how)
    assert [row["window_s"] for row in again] == [3.0], "only what is new is read"
    assert time.monotonic() - began < 120


def test_a_folder_that_is_not_there_is_one_line(tmp_path: Path, spark: Any) -> None:
    from cubecast.lab.spark.follow import follow

    with pytest.raises(LocalProtocolError, match="is no folder"):
        follow(spark, tmp_path / "x", window_s=1.0, seconds=1.0, show=lambda _: None, checkpoint=tmp_path / "place")
