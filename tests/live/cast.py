"""Processes of a group: start them, inject faults, partition their network, and check their traces.

A *place* is an address and its files; one process at a time runs there, one after the other.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from cubecast.live.local import free_addresses
from cubecast.live.trace_writer import merged_trace
from cubecast.trace.checkers import Report, check_all
from tests.live.bad_network import BadNetwork
from tests.support.processes import credentials_in

ROOT = Path(__file__).resolve().parents[2]


class Cast:
    """The places and the processes in them."""

    def __init__(
        self,
        folder: Path,
        places: int,
        *,
        network: BadNetwork | None = None,
        tls: bool = False,
        durable: bool = False,
        seed: int = 1,
        pause_s: float = 0.05,
        burst: int = 1,
        is_light: bool = True,
        **settings: Any,
    ) -> None:
        """No process yet."""
        self.folder = folder
        self.addresses = network.addresses[:places] if network else free_addresses(places)
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self._heard: dict[int, bytearray] = {}
        self.frozen: set[int] = set()
        self._asked = 0
        self._network = network
        self._tls = tls
        self._durable = durable
        self._issued: dict[str, dict[str, str]] = {}
        self._is_light = is_light
        self._quorum = settings.get("quorum", "majority")
        self._common: dict[str, Any] = {
            "seed": seed,
            "pause_s": pause_s,
            "burst": burst,
        }
        self._common |= {"settings": settings}
        self._crashes: list[tuple[str, int]] = []

    # Coming and going.

    def form(self, *places: int, wait_s: float = 60.0) -> None:
        """Processes found the group together; waits until all are in it."""
        for place in places:
            self.start_soon(place, peers=places)
        for place in places:
            assert self.read(place, wait_s) == "ready", self.said(place)

    def start(self, place: int, contact: int | None = None, *, wait_s: float = 30.0) -> None:
        """A process founds, joins by one contact, or continues from its journal; waits until it is in the group."""
        self.start_soon(place, contact)
        assert self.read(place, wait_s) == "ready", self.said(place)

    def start_soon(self, place: int, contact: int | None = None, peers: Sequence[int] = ()) -> None:
        """Start without waiting."""
        address = self.addresses[place]
        task: dict[str, Any] = {**self._common, "listen": address, "trace": str(self._file(place, "trace"))}
        if peers:
            task["peers"] = [self.addresses[peer] for peer in peers]
        elif contact is not None:
            task["contact"] = self.addresses[contact]
        else:
            task["found"] = True
        if self._durable:
            task["journal"] = str(self._file(place, "journal"))
        if self._tls:
            task |= self._credentials(address)
        words = [sys.executable, "-m", "tests.live.actor", json.dumps(task)]
        with self._file(place, "log").open("ab") as said:
            self.processes[place] = subprocess.Popen(
                [*(self._network.enter(place) if self._network else ()), *words],
                cwd=ROOT,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=said,
                env={**os.environ, "CUBECAST_JIT": "off"} if self._is_light else None,
            )
        self._heard[place] = bytearray()

    def _credentials(self, address: str) -> dict[str, str]:
        if address not in self._issued:
            self._issued[address] = credentials_in(self.folder, address)
        return self._issued[address]

    def _file(self, place: int, kind: str) -> Path:
        return self.folder / f"{place}.{kind}"

    def kill(self, *places: int, keep_journal: bool = False) -> None:
        """kill -9, all at once; their journals stay or go."""
        for place in places:
            self.processes[place].send_signal(signal.SIGKILL)
        for place in places:
            self.reap(place)
            if not keep_journal:
                self._crashes.append((self.addresses[place], time.monotonic_ns()))
                self._file(place, "journal").unlink(missing_ok=True)

    def leave(self, place: int, *, timeout_s: float = 30.0) -> None:
        """Ask a process to leave, and wait for its end."""
        self.command(place, "leave")
        assert self.processes[place].wait(timeout_s) == 0, self.said(place)
        self.reap(place)
        self._file(place, "journal").unlink(missing_ok=True)

    def reap(self, place: int) -> int:
        """A process has ended, or is about to; returns its exit code."""
        process = self.processes.pop(place)
        process.wait()
        self.frozen.discard(place)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            with contextlib.suppress(BrokenPipeError):
                pipe.close()
        return process.returncode

    def freeze(self, place: int) -> None:
        """Stop a process with SIGSTOP; the others are not informed."""
        self.frozen.add(place)
        self.processes[place].send_signal(signal.SIGSTOP)

    def thaw(self, place: int) -> None:
        """Continue it."""
        self.frozen.discard(place)
        self.processes[place].send_signal(signal.SIGCONT)

    def is_alive(self, place: int) -> bool:
        """Is there a process that runs?"""
        return place in self.processes and self.processes[place].poll() is None

    def close(self) -> None:
        """End every process."""
        for process in self.processes.values():
            process.kill()
        for place in list(self.processes):
            self.reap(place)

    # Talking to them.

    def said(self, place: int) -> str:
        """The standard error of a process."""
        return f"place {place}: " + self._file(place, "log").read_text()[-3000:]

    def command(self, place: int, line: str) -> None:
        """Send one line to a process."""
        stdin = self.processes[place].stdin
        assert stdin is not None
        stdin.write(line.encode() + b"\n")
        stdin.flush()

    def read(self, place: int, timeout_s: float) -> str:
        """One line of a process, empty when none arrives."""
        stdout = self.processes[place].stdout
        assert stdout is not None
        heard = self._heard[place]
        deadline = time.monotonic() + timeout_s
        while b"\n" not in heard:
            ready, _, _ = select.select([stdout], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(stdout.fileno(), 1 << 16) if ready else b""
            if not piece:
                return ""
            heard += piece
        line, _, rest = heard.partition(b"\n")
        heard[:] = rest
        return line.decode()

    def report(self, place: int, timeout_s: float = 10.0) -> dict[str, Any]:
        """The report of a process."""
        found = self.ask(place, timeout_s)
        assert found is not None, self.said(place)
        return found

    def ask(self, place: int, timeout_s: float) -> dict[str, Any] | None:
        """The same; None when it does not answer in time: it is not in the group yet."""
        self._asked += 1
        self.command(place, f"report {self._asked}")
        deadline = time.monotonic() + timeout_s
        while line := self.read(place, max(0.0, deadline - time.monotonic())):
            if line != "ready" and (found := json.loads(line))["answer"] == self._asked:
                return dict(found)
        return None

    def reports(self) -> dict[int, dict[str, Any] | None]:
        """The reports of all live processes."""
        return {place: self.ask(place, 2.0) for place in sorted(self.processes) if self.is_alive(place)}

    def settle(self, timeout_s: float = 30.0) -> dict[int, dict[str, Any]]:
        """Stop all writes; wait until all processes are in one view and idle."""
        for place in filter(self.is_alive, self.processes):
            self.command(place, "quiet")
        deadline = time.monotonic() + timeout_s
        while True:
            found = self.reports()
            answers = {place: one for place, one in found.items() if one is not None}
            if len(answers) == len(found) and self._is_settled(answers):
                return answers
            assert time.monotonic() < deadline, f"not settled after {timeout_s} s: {found}"
            time.sleep(0.2)

    def _is_settled(self, found: dict[int, dict[str, Any]]) -> bool:
        if not found:
            return False  # nobody is left
        first = next(iter(found.values()))
        present = sorted(tuple(one["me"]) for one in found.values())
        return sorted(map(tuple, first["members"])) == present and all(
            one["view"] == first["view"]
            and one["phase"] == "member"
            and not one["blocked"]
            and not one["unstable"]
            and not one["tombstones"]
            and one["frontier"] == first["frontier"]
            for one in found.values()
        )

    # Judging.

    def judge(self) -> Report:
        """What the traces of all processes show."""
        time.sleep(0.2)  # those who live write what they did a little later
        traces = [path for path in sorted(self.folder.glob("*.trace")) if path.stat().st_size]
        return check_all(merged_trace(traces, crashes=self._crashes, scenario={"quorum": self._quorum}))
