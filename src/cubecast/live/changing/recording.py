"""What a member of a changing group did, as lines of JSON: the events by which its promises can be judged.

Rows are written before the messages they tell of leave the process, so that a member that is killed leaves a history in
which nothing it sent is missing. Times are of the system's monotonic clock, the same for all processes of a machine,
and grow from row to row. `docs/membership.md` lists the events; `cubecast.sim.churn.recorded` reads them.
"""

from __future__ import annotations

import base64
import json
import os
import struct
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from cubecast.core.membership import MemberId, View
from cubecast.errors import LocalProtocolError
from cubecast.wire.kept import decode_kept

_ENTRY = struct.Struct("<IHI")


class DeliveredLog:
    """Which messages a state holds, in the order in which they were delivered: ten bytes each, and the senders."""

    def __init__(self, entries: Iterable[tuple[int, MemberId, int]] = ()) -> None:
        """View, sender and number of each message."""
        self.senders: dict[MemberId, int] = {}
        self.packed = bytearray()
        for entry in entries:
            self.add(*entry)

    def add(self, view: int, sender: MemberId, number: int) -> None:
        """One message more."""
        place = self.senders.setdefault(MemberId(*sender), len(self.senders))
        self.packed += _ENTRY.pack(view, place, number)

    def dump(self) -> list[Any]:
        """As JSON data."""
        return [list(self.senders), base64.b64encode(self.packed).decode("ascii")]

    @classmethod
    def load(cls, dumped: list[Any]) -> DeliveredLog:
        """Read back what `dump` gave."""
        log = cls()
        log.senders = {MemberId(*sender): place for place, sender in enumerate(dumped[0])}
        log.packed = bytearray(base64.b64decode(dumped[1]))
        return log


class HistoryRecorder:
    """Appends to a file: one that is there already is gone on with, for a process has several lives.

    `contents` says which messages a state of the application holds (`DeliveredLog.dump`). Without it the state must be
    the history that the group keeps, and that must be all of it (`keep="all"`), or newcomers seem to lack something.
    """

    def __init__(self, path: str | Path, contents: Callable[[bytes], list[Any]] | None = None) -> None:
        """Open the file."""
        self.contents = contents
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

    def restore(self, who: MemberId, octets: bytes) -> None:
        """The application begins with a state, or the history that the group keeps."""
        if self.contents is not None:
            self.note(who, "restore", self.contents(octets))
        else:
            kept = decode_kept(octets)
            self.note(who, "restore", DeliveredLog((one.view, one.sender, one.number) for one in kept).dump())

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
