"""Start the members of one benchmark, each in its own process, and gather their reports.

A member, of any of the systems, prints `ready`, reads the time at which to begin, prints one JSON line and waits until
it may leave. A group that does not form, or whose members stop reporting, is killed after `WAIT_S`.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cubecast.live.local import free_addresses
from tests.support.processes import LineProcess, credentials_in

ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 90.0


class NoReportError(Exception):
    """A member of a benchmark ended, or was killed because nothing happened."""


def run_commands(commands: Sequence[list[str]], *, pause_s: float = 0, quiet: bool = False) -> list[dict[str, Any]]:
    """Start one member per command, the first one `pause_s` before the others; return their reports.

    Raises NoReportError when a member ends early or the group does not form.
    """
    members: list[LineProcess] = []

    def kill_all() -> None:
        for member in members:
            member.process.kill()

    watchdog = threading.Timer(WAIT_S, kill_all)
    watchdog.start()
    try:
        for command in commands:
            members.append(LineProcess(command, folder=ROOT, errors=subprocess.DEVNULL if quiet else None))
            time.sleep(pause_s if len(members) == 1 else 0)
        for member in members:
            hear(member, "ready")
        for member in members:
            member.write_line(f"{time.time() + 1.0}")
        reports = [json.loads(hear(member, "{")) for member in members]
        for member in members:
            member.write_line("leave")
        for member in members:
            member.process.wait(60)
    finally:
        watchdog.cancel()
        for member in members:
            member.close()
    return reports


def run_members(
    members: int, task: dict[str, Any], *, tls: bool = False, journal: bool = False
) -> list[dict[str, Any]]:
    """Run cubecast members; return their reports in the order of their ranks."""
    addresses = free_addresses(members)
    with tempfile.TemporaryDirectory() as folder:
        commands = []
        for address in addresses:
            own = {**task, "listen": address, "peers": addresses}
            if tls:
                own |= credentials_in(Path(folder), address)
            if journal:
                own["journal"] = str(Path(folder) / f"{address}.journal")
            commands.append([sys.executable, "-m", "bench.live.worker", json.dumps(own)])
        return run_commands(commands)


def hear(member: LineProcess, beginning: str) -> str:
    """The next line of a member, which must have this beginning."""
    line = member.read_line()
    if not line.startswith(beginning):
        raise NoReportError(f"a member of the benchmark printed {line!r} in place of {beginning!r}")
    return line
