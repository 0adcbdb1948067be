"""Members as processes of this machine, controlled by lines of text, and their certificates. Benchmarks use it too."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from cubecast.live.keys import init, issue


def credentials_in(folder: Path, address: str) -> dict[str, str]:
    """The paths of a new certificate for that address and of its group's; the first call makes the group's key."""
    if not (folder / "group.pem").exists():
        init(folder)
    return {"certificate": str(issue(folder, address)), "ca": str(folder / "group.pem")}


class LineProcess:
    """A process that gets lines and answers with lines."""

    def __init__(
        self, command: Sequence[str], *, folder: Path, errors: IO[bytes] | int | None = None, light: bool = False
    ) -> None:
        """Start it in that folder; a light one runs without the compiler."""
        environment = {**os.environ, "CUBECAST_JIT": "off"} if light else None
        self.process = subprocess.Popen(
            command,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        )

    def write_line(self, line: str) -> None:
        """Write a line to its input."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def read_line(self) -> str:
        """The next line, without its end; empty when the process has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.readline().removesuffix("\n")

    def close(self) -> None:
        """Kill it at once, whatever it is doing."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            with suppress(BrokenPipeError):
                stream.close()
