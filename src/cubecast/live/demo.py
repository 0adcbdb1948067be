"""A demonstration group on this machine: members in processes, some of which are killed, and a verdict at the end.

The verdict compares the status of all survivors once sending has stopped: all in one view without the killed, the same
messages delivered, nothing unstable. A message that a killed member had multicast is delivered by
all survivors or by none, so equal counts of each member's messages mean that nothing was lost between them.
"""

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
from cubecast.member.settings import parse_address

_COMMAND = [sys.executable, "-c", "from cubecast.cli import main; main()", "node"]
SUSPECT_AFTER_S = 1.5
SETTLE_S = 20.0
MEMBERS_MAX = 256


@dataclass(frozen=True, kw_only=True)
class DemoVerdict:
    """How a demonstration ended."""

    is_good: bool
    line: str


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
    """Place to the time of its end, on the monotonic clock."""

    @property
    def page(self) -> str:
        """The address of the status page of a running member."""
        return next((at for place, at in enumerate(self.status) if place not in self.killed), "")

    def start(self) -> None:
        """Start every member."""
        if not 2 <= self.members <= MEMBERS_MAX:
            raise LocalProtocolError(f"--members {self.members}: between 2 and {MEMBERS_MAX} on one machine")
        addresses = free_addresses(2 * self.members)
        self.addresses, self.status = addresses[: self.members], addresses[self.members :]
        for place, address in enumerate(self.addresses):
            options = [
                *("demo", "--listen", address, "--plaintext", "--quiet"),
                *("--rate", str(self.rate_per_s), "--status", self.status[place]),
                *("--trace", str(self._trace_file(place))),
                *("--suspect-after", str(SUSPECT_AFTER_S), "--join-timeout", "120"),
                *(word for peer in self.addresses for word in ("--peer", peer)),
            ]
            with (self.folder / f"{place}.log").open("wb") as log:
                self.processes.append(subprocess.Popen(_COMMAND + options, stdin=subprocess.DEVNULL, stderr=log))

    def _trace_file(self, place: int) -> Path:
        return self.folder / f"{place}.trace"

    def wait_ready(self, timeout_s: float) -> None:
        """Wait until every member is in the group."""
        deadline = time.monotonic() + timeout_s
        for place in range(self.members):
            while (state := self.ask(place)) is None or state["phase"] != "member":
                if self.processes[place].poll() is not None or time.monotonic() > deadline:
                    output = (self.folder / f"{place}.log").read_text()[-300:].strip()
                    raise LocalProtocolError(f"member {place} did not start: {output or 'no output'}")
                time.sleep(0.1)

    def ask(self, place: int) -> dict[str, Any] | None:
        """A member's status, None when it does not answer."""
        if place in self.killed:
            return None
        try:
            return fetch_status(self.status[place], timeout_s=2.0)
        except LocalProtocolError:
            return None

    def ask_all(self) -> dict[int, dict[str, Any]]:
        """The status of each member that answers, by its place."""
        return {place: state for place in range(self.members) if (state := self.ask(place)) is not None}

    def kill(self, count: int, seed: int) -> list[int]:
        """kill -9 of some members at once."""
        victims = random.Random(seed).sample([one for one in range(self.members) if one not in self.killed], count)
        for place in victims:
            self.processes[place].send_signal(signal.SIGKILL)
            self.processes[place].wait()
            self.killed[place] = time.monotonic_ns()
        return sorted(victims)

    def stop_senders(self) -> None:
        """Stop all senders."""
        for place, process in enumerate(self.processes):
            if place not in self.killed and process.poll() is None:
                process.send_signal(signal.SIGUSR1)

    def judge(self) -> DemoVerdict:
        """Wait until the survivors agree on everything; the verdict says so, or names the differences."""
        deadline = time.monotonic() + SETTLE_S
        while True:
            states = self.ask_all()
            faults = self._faults(states)
            if not faults or time.monotonic() > deadline:
                return self._verdict(states, faults)
            time.sleep(0.2)

    def _faults(self, states: dict[int, dict[str, Any]]) -> list[str]:
        alive = self.members - len(self.killed)
        faults = [f"{alive - len(states)} of {alive} survivors do not answer"] if len(states) < alive else []
        if any(len(state["members"]) != alive for state in states.values()):
            faults.append("the survivors are not in one view")
        received = {tuple((one["address"], one["received"]) for one in state["members"]) for state in states.values()}
        if len(received) > 1:
            counts = [sum(count for _, count in one) for one in received]
            faults.append(f"between {min(counts):,} and {max(counts):,} messages of the members delivered")
        if unstable := max((state["stats"]["unstable_messages"] for state in states.values()), default=0):
            faults.append(f"{unstable:,} messages not stable")
        return faults

    def _verdict(self, states: dict[int, dict[str, Any]], faults: list[str]) -> DemoVerdict:
        count = max((state["stats"]["delivered"] for state in states.values()), default=0)
        what = "; ".join(faults) or "nothing lost, everything stable"
        return DemoVerdict(
            is_good=not faults, line=f"{len(self.killed)} of {self.members} killed, {count:,} messages, {what}"
        )

    def wait_ended(self) -> None:
        """Wait until no member runs."""
        for process in self.processes:
            process.wait()

    def stop(self) -> None:
        """Stop the running members: SIGTERM first, then SIGKILL."""
        for process in self.processes:
            if process.poll() is None:
                process.terminate()
        for process in self.processes:
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def write_trace(self, path: Path) -> int:
        """Merge the traces of all members; return the number of events."""
        from cubecast.live.trace_writer import merge_traces

        files = [self._trace_file(place) for place in range(self.members)]
        crashes = {self.addresses[place]: when_ns for place, when_ns in self.killed.items()}
        return merge_traces(files, path, crashes=crashes)


def kills_max(members: int) -> int:
    """How many members may be killed at once so that a majority is left."""
    return max(0, (members - 1) // 2)


Show = Callable[[Demo, dict[int, Any], str], None]
Conclude = Callable[[Demo, DemoVerdict], None]


def run_demo(demo: Demo, *, seconds: float, kills: int, show: Show, conclude: Conclude) -> DemoVerdict:
    """Start, show, kill, show, and judge; `conclude` is called while the survivors still run."""
    try:
        demo.start()
        demo.wait_ready(120)
        began = time.monotonic()
        headline = f"all {demo.members} members are up"
        while (now := time.monotonic() - began) < seconds:
            if kills and not demo.killed and now > seconds / 3:
                headline = f"killed with kill -9: {', '.join(map(str, demo.kill(kills, demo.members)))}"
            show(demo, demo.ask_all(), headline)
            time.sleep(0.5)
        demo.stop_senders()
        verdict = demo.judge()
        conclude(demo, verdict)
        return verdict
    finally:
        demo.stop()


def _cause_of(error: Exception) -> str:
    """What failed, without the wrapping of urllib."""
    reason = getattr(error, "reason", error)
    return str(getattr(reason, "strerror", None) or reason)


def fetch_status(address: str, *, timeout_s: float = 5.0) -> dict[str, Any]:
    """Request the status of a member; the address of its page is accepted too."""
    address = address.removeprefix("http://").partition("/")[0]
    parse_address(address)
    try:
        with urllib.request.urlopen(f"http://{address}/status.json", timeout=timeout_s) as answer:
            status = json.load(answer)
    except (OSError, ValueError) as error:
        raise LocalProtocolError(
            f"no member answers at {address}: {_cause_of(error)}; start it with --status {address}"
        ) from error
    if not isinstance(status, dict) or "members" not in status:
        raise LocalProtocolError(f"{address} does not serve a member's status")
    return status
