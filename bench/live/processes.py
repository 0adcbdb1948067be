"""Start the members of one benchmark, each in a process of its own, and gather their reports.

A member, whoever's it is, prints `ready`, reads the time at which to begin, prints one JSON line and waits to be told
to leave.
"""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


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
    """Addresses of ports that are free now, in the order of the ranks they give."""
    return [f"127.0.0.1:{port}" for port in free_ports(count)]


def run_commands(commands: Sequence[list[str]], *, pause_s: float = 0, quiet: bool = False) -> list[dict[str, Any]]:
    """Start one member a command, `pause_s` after the first the others; let them run, and give their reports."""
    processes: list[subprocess.Popen[str]] = []
    try:
        for command in commands:
            processes.append(_start(command, quiet=quiet))
            time.sleep(pause_s if len(processes) == 1 else 0)
        for process in processes:
            read_line(process, "ready")
        for process in processes:
            write_line(process, f"{time.time() + 1.0}")
        reports = [json.loads(read_line(process, "{")) for process in processes]
        for process in processes:
            write_line(process, "leave")
        for process in processes:
            process.wait(60)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return reports


def run_members(members: int, task: dict[str, Any], *, tls: bool = False) -> list[dict[str, Any]]:
    """The reports of our members, in the order of their ranks."""
    addresses = free_addresses(members)
    with tempfile.TemporaryDirectory() as folder:
        commands = []
        for address in addresses:
            own = {**task, "listen": address, "peers": addresses}
            if tls:
                own |= _credentials(Path(folder), address)
            commands.append([sys.executable, "-m", "bench.live.worker", json.dumps(own)])
        return run_commands(commands)


def _start(command: list[str], *, quiet: bool) -> subprocess.Popen[str]:
    errors = subprocess.DEVNULL if quiet else None
    return subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True)


def read_line(process: subprocess.Popen[str], beginning: str) -> str:
    """The next line of a member, which must begin so."""
    assert process.stdout is not None
    line = process.stdout.readline()
    if not line.startswith(beginning):
        raise SystemExit(f"a member of the benchmark failed: {line!r}")
    return line


def write_line(process: subprocess.Popen[str], line: str) -> None:
    """Tell a member something."""
    assert process.stdin is not None
    process.stdin.write(line + "\n")
    process.stdin.flush()


def _credentials(folder: Path, address: str) -> dict[str, str]:
    from cubecast.live.keys import init, issue

    if not (folder / "group.pem").exists():
        init(folder)
    return {"certificate": str(issue(folder, address)), "ca": str(folder / "group.pem")}
