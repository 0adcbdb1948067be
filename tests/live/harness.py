"""Start members in processes of their own, hurt them, gather their traces, and let the checkers judge."""

from __future__ import annotations

import json
import signal
import sys
import time
from pathlib import Path
from typing import Any

from cubecast.live.local import Spoken, credentials_in, free_addresses
from cubecast.live.recorder import merge
from cubecast.sim.checkers import Report, check_all
from cubecast.trace import read_trace
from tests.live.bad_network import BadNetwork

ROOT = Path(__file__).resolve().parents[2]


def judge(
    folder: Path, members: int, *, crashes: dict[int, int] | None = None, leaves: bool = False, **scenario: Any
) -> Report:
    """Merge the traces of all members in a folder, write them as one, and let every checker judge it."""
    path = folder / "run.parquet"
    rows = [folder / f"{rank}.rows" for rank in range(members)]
    merge(rows, path, members=members, crashes=crashes, leaves=leaves, scenario=scenario)
    return check_all(read_trace(path))


class Troupe:
    """The processes of one group."""

    def __init__(
        self,
        folder: Path,
        members: int,
        *,
        tls: bool = False,
        light: bool = True,
        seed: int = 1,
        pause_s: float | None = None,
        network: BadNetwork | None = None,
        **settings: Any,
    ) -> None:
        """Start all members and wait until they are ready; light ones run the same cores as plain Python."""
        self.folder = folder
        self.members = members
        self.addresses = network.addresses[:members] if network else free_addresses(members)
        self.crashes: dict[int, int] = {}
        self.actors: list[Spoken] = []
        for rank, address in enumerate(self.addresses):
            task: dict[str, Any] = {
                "listen": address,
                "peers": self.addresses,
                "trace": str(folder / f"{rank}.rows"),
                "seed": seed,
                "pause_s": pause_s or (0.1 if light else 0.02),
                # TCP may wait for seconds before it sends again what a bad link lost.
                "quiet_s": 4.0 if network else 0.6,
                "settings": settings,
            }
            if tls:
                task |= credentials_in(folder, address)
            command = [*(network.enter(rank) if network else ()), sys.executable, "-m", "tests.live.actor"]
            with (folder / f"{rank}.log").open("wb") as errors:
                self.actors.append(Spoken([*command, json.dumps(task)], folder=ROOT, errors=errors, light=light))
        for rank, actor in enumerate(self.actors):
            assert actor.hear() == "ready", self.log(rank)

    def log(self, rank: int) -> str:
        """What a member said on standard error."""
        return f"member {rank}: " + (self.folder / f"{rank}.log").read_text()[-2000:]

    def kill(self, *ranks: int) -> None:
        """kill -9."""
        for rank in ranks:
            self.actors[rank].process.send_signal(signal.SIGKILL)
            self.actors[rank].process.wait()
            self.crashes[rank] = time.monotonic_ns()

    def freeze(self, rank: int) -> None:
        """Stop a process; nobody tells the others."""
        self.actors[rank].process.send_signal(signal.SIGSTOP)

    def thaw(self, rank: int) -> None:
        """Let it go on."""
        self.actors[rank].process.send_signal(signal.SIGCONT)

    def finish(self) -> dict[int, dict[str, Any]]:
        """End the conversation and give the reports of the members that live."""
        alive = [rank for rank in range(self.members) if rank not in self.crashes]
        for rank in alive:
            self.actors[rank].tell(" ".join(map(str, ["finish", *self.crashes])))
        reports = {}
        for rank in alive:
            line = self.actors[rank].hear()
            assert line, self.log(rank)
            reports[rank] = json.loads(line)
        for rank in alive:
            self.actors[rank].tell("leave")
        for rank in alive:
            assert self.actors[rank].process.wait(120) == 0, self.log(rank)
        return reports

    def wait_for(self, rank: int, said: str, *, timeout_s: float = 60.0) -> None:
        """Wait until a member says this on standard error."""
        until = time.monotonic() + timeout_s
        while said not in (self.folder / f"{rank}.log").read_text():
            assert time.monotonic() < until, f"not {said!r} but {self.log(rank)}"
            time.sleep(0.05)

    def judge(self, **scenario: Any) -> Report:
        """Let every checker judge what the members recorded."""
        return judge(self.folder, self.members, crashes=self.crashes, **scenario)

    def close(self) -> None:
        """End every process that is left."""
        for actor in self.actors:
            actor.close()
