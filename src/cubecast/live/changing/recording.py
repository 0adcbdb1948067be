"""What a member of a changing group did, as lines of JSON: the events by which its promises can be judged.

Rows are written before the messages they tell of leave the process, so that a member that is killed leaves a history in
which nothing it sent is missing. Times are of the system's monotonic clock, the same for all processes of a machine,
and grow from row to row. `docs/membership.md` lists the events; `cubecast.sim.churn.recorded` reads them.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from cubecast.core.membership import MemberId, View
from cubecast.errors import LocalProtocolError


class HistoryRecorder:
    """Appends to a file: one that is there already is gone on with, for a process has several lives."""

    def __init__(self, path: str | Path) -> None:
        """Open the file."""
        self._rows: list[str] = []
        self._last_ns = 0
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise LocalProtocolError(f"cannot write the history {path}: {error.strerror}") from error
        os.write(self._file, b"\n")  # ends a line that a kill cut short

    def note(self, who: MemberId, event: str, data: Any = None) -> None:
        """One event at one life of this member."""
        self._last_ns = max(self._last_ns + 1, time.monotonic_ns())
        self._rows.append(json.dumps([self._last_ns, who.name, who.incarnation, event, data]))

    def install(self, who: MemberId, view: View, pause_ns: int) -> None:
        """A view was installed."""
        self.note(who, "install", [view.number, view.members, view.joined, view.lives, pause_ns])

    def flush(self) -> None:
        """Write the rows; called before anything they tell of is sent."""
        if self._rows:
            os.write(self._file, ("\n".join(self._rows) + "\n").encode())
            self._rows.clear()

    def close(self) -> None:
        """Write what is left and close the file."""
        self.flush()
        os.close(self._file)
