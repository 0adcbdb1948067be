"""Standard input and output of a member in a terminal, each in a separate thread.

The event loop must not wait for either: a full pipe, or a reader that stopped, would silence the member and get it
excluded. Both work on the file descriptors themselves: a daemon thread that holds the lock of a buffered file would
make Python abort at its exit.
"""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

from cubecast.errors import LocalProtocolError

CHUNK_BYTES = 1 << 16
CHUNKS_MAX = 16
OUTPUT_BYTES_MAX = 1 << 20


def has_input(descriptor: int = 0) -> bool:
    """Is there an input to read lines from? Not if it is closed or `/dev/null`, as under a supervisor."""
    try:
        mode = os.fstat(descriptor).st_mode
    except OSError:
        return False
    return os.isatty(descriptor) or not stat.S_ISCHR(mode)


class InputLines:
    """`async for line in InputLines(...)`: the lines of the input without their ends, until the input ends."""

    def __init__(self, line_bytes_max: int, descriptor: int = 0) -> None:
        """Begin to read; must be called in a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue(CHUNKS_MAX)
        self._line_bytes_max = line_bytes_max
        threading.Thread(target=self._read, args=(descriptor,), name="input", daemon=True).start()

    def _read(self, descriptor: int) -> None:
        while True:
            try:
                chunk = os.read(descriptor, CHUNK_BYTES)
            except OSError:
                chunk = b""
            try:
                asyncio.run_coroutine_threadsafe(self._chunks.put(chunk), self._loop).result()
            except RuntimeError:  # the loop is closed
                return
            if not chunk:
                return

    async def __aiter__(self) -> AsyncIterator[bytes]:
        """The lines."""
        rest = b""
        while chunk := await self._chunks.get():
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                yield self._checked(line.rstrip(b"\r"))
            self._checked(rest)
        if rest:
            yield self._checked(rest)

    def _checked(self, line: bytes) -> bytes:
        if len(line) > self._line_bytes_max:
            raise LocalProtocolError(
                f"a line of the input is longer than payload_bytes_max={self._line_bytes_max}: split it"
            )
        return line


class OutputLines:
    """Writes text to the output in the order of the calls; `write` waits only while much is unwritten."""

    def __init__(self, descriptor: int = 1) -> None:
        """Nothing is written yet; must be called in a running event loop."""
        self._loop = asyncio.get_running_loop()
        self._descriptor = descriptor
        self._gathered: list[bytes] = []
        self._gathered_bytes = 0
        self._writing = b""
        self._is_due = threading.Event()
        self._error: OSError | None = None
        self._has_room = asyncio.Event()
        threading.Thread(target=self._write, name="output", daemon=True).start()

    async def write(self, text: str) -> None:
        """Write; raises BrokenPipeError when the reader is gone."""
        if self._error is not None:
            raise self._error
        encoded = text.encode("utf-8", "backslashreplace")
        self._gathered.append(encoded)
        self._gathered_bytes += len(encoded)
        if not self._writing:
            self._hand_over()
        while self._gathered_bytes > OUTPUT_BYTES_MAX and self._error is None:
            self._has_room.clear()
            await self._has_room.wait()

    async def drain(self, timeout_s: float) -> None:
        """Wait until everything is written, except for an output whose reader is gone."""
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self._writing and self._error is None:
                    self._has_room.clear()
                    await self._has_room.wait()

    def _hand_over(self) -> None:
        self._writing = b"".join(self._gathered)
        self._gathered.clear()
        self._gathered_bytes = 0
        self._has_room.set()
        if self._writing:
            self._is_due.set()

    def _write(self) -> None:
        while True:
            self._is_due.wait()
            self._is_due.clear()
            error: OSError | None = None
            text = self._writing
            try:
                while text:
                    text = text[os.write(self._descriptor, text) :]
            except OSError as failed:
                error = failed
            try:
                self._loop.call_soon_threadsafe(self._end, error)
            except RuntimeError:  # the loop is closed
                return

    def _end(self, error: OSError | None) -> None:
        self._error = error
        self._writing = b""
        self._hand_over()
