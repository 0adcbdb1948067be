"""Members as processes of this machine: free ports, certificates, and processes controlled by lines of text.

For demonstrations, benchmarks and tests. A port that is free now may be taken a moment later, though that is rare.
"""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO


def free_ports(count: int) -> list[int]:
    """Ports that are free now, in ascending order."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = sorted(one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    return ports


def free_addresses(count: int) -> list[str]:
    """Addresses of free ports, in the order of the ranks they get."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def credentials_in(folder: Path, address: str) -> dict[str, str]:
    """The paths of a new certificate for that address and of its group's; the first call makes the group's key."""
    from cubecast.live.keys import init, issue

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
