"""A group on this machine for show: members in processes, some of them killed, and what the others make of it."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cubecast.errors import LocalProtocolError
from cubecast.live.local import free_addresses
from cubecast.live.settings import Settings

_COMMAND = [sys.executable, "-c", "from cubecast.cli import main; main()", "node"]


@dataclass
class Demo:
    """The processes of a demonstration."""

    members: int
    rate_per_s: float
    folder: Path
    addresses: list[str] = field(default_factory=list)
    status: list[str] = field(default_factory=list)
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    killed: dict[int, int] = field(default_factory=dict)
    """Rank to the time of its end, on the monotonic clock."""

    def start(self, settings: Settings) -> None:
        """Start every member."""
        if not 2 <= self.members <= 256:
            raise LocalProtocolError(f"--members {self.members}: between 2 and 256 on one machine")
        addresses = free_addresses(2 * self.members)
        self.addresses, self.status = addresses[: self.members], addresses[self.members :]
        for rank, address in enumerate(self.addresses):
            options = [
                *("demo", "--listen", address, "--plaintext", "--quiet"),
                *("--rate", str(self.rate_per_s), "--status", self.status[rank]),
                *("--trace", str(self.folder / f"{rank}.rows")),
                *("--suspect-after", str(settings.suspect_after_s)),
                *(word for peer in self.addresses for word in ("--peer", peer)),
            ]
            log = (self.folder / f"{rank}.log").open("wb")
            self.processes.append(subprocess.Popen(_COMMAND + options, stdin=subprocess.DEVNULL, stderr=log))

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until every member answers."""
        deadline = time.monotonic() + timeout_s
        for rank in range(self.members):
            while self.ask(rank) is None:
                if self.processes[rank].poll() is not None or time.monotonic() > deadline:
                    said = (self.folder / f"{rank}.log").read_text()[-300:].strip()
                    raise LocalProtocolError(f"member {rank} did not start: {said or 'it said nothing'}")
                time.sleep(0.1)

    def ask(self, rank: int) -> dict[str, Any] | None:
        """A member's status, None when it does not answer."""
        if rank in self.killed:
            return None
        try:
            return fetch_status(self.status[rank], timeout_s=2.0)
        except LocalProtocolError:
            return None

    def kill(self, count: int, seed: int) -> list[int]:
        """kill -9 of some members at once."""
        victims = random.Random(seed).sample([r for r in range(self.members) if r not in self.killed], count)
        for rank in victims:
            self.processes[rank].send_signal(signal.SIGKILL)
            self.processes[rank].wait()
            self.killed[rank] = time.monotonic_ns()
        return victims

    def stop(self) -> None:
        """End the members that live, politely first."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def write_trace(self, path: Path) -> int:
        """One trace of all members; gives its rows."""
        from cubecast.live.recorder import merge

        rows = [self.folder / f"{rank}.rows" for rank in range(self.members)]
        return merge(rows, path, members=self.members, crashes=self.killed)


def run_demo(
    demo: Demo, settings: Settings, *, seconds: float, kills: int, show: Callable[[Demo, dict[int, Any], str], None]
) -> None:
    """Start, let run, kill at half time, let run; `show` is called twice a second with what the members say."""
    try:
        demo.start(settings)
        demo.wait_ready(60)
        began = time.monotonic()
        said = "all members are up"
        while (now := time.monotonic() - began) < seconds:
            if kills and not demo.killed and now > seconds / 3:
                victims = demo.kill(kills, demo.members)
                said = f"killed -9: {', '.join(map(str, sorted(victims)))}"
            states = {rank: state for rank in range(demo.members) if (state := demo.ask(rank)) is not None}
            show(demo, states, said)
            time.sleep(0.5)
    finally:
        demo.stop()


def fetch_status(address: str, *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Ask a member for its status."""
    try:
        with urllib.request.urlopen(f"http://{address}/status.json", timeout=timeout_s) as answer:
            status = json.load(answer)
    except (OSError, ValueError) as error:
        raise LocalProtocolError(
            f"no member answers at {address}: {error}; start it with --status {address}"
        ) from error
    if not isinstance(status, dict) or "members" not in status:
        raise LocalProtocolError(f"{address} does not serve a member's status")
    return status
