"""Start members in processes of their own, hurt them, gather their traces, and let the checkers judge."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from cubecast.live.recorder import merge
from cubecast.sim.checkers import Report, check_all
from cubecast.trace import read_trace
from tests.live.bad_network import BadNetwork

ROOT = Path(__file__).resolve().parents[2]


def free_addresses(count: int) -> list[str]:
    """Addresses of ports that are free now, in the order of the ranks they give."""
    sockets = [socket.socket() for _ in range(count)]
    for one in sockets:
        one.bind(("127.0.0.1", 0))
    ports = sorted(one.getsockname()[1] for one in sockets)
    for one in sockets:
        one.close()
    return [f"127.0.0.1:{port}" for port in ports]


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
        self.processes = []
        for rank, address in enumerate(self.addresses):
            task: dict[str, Any] = {
                "listen": address,
                "peers": self.addresses,
                "trace": str(folder / f"{rank}.rows"),
                "seed": seed,
                "pause_s": pause_s or (0.1 if light else 0.02),
                "settings": settings,
            }
            if tls:
                task |= self._credentials(address)
            self.processes.append(
                subprocess.Popen(
                    [
                        *(network.enter(rank) if network else ()),
                        *(sys.executable, "-m", "tests.live.actor", json.dumps(task)),
                    ],
                    cwd=ROOT,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=(folder / f"{rank}.log").open("wb"),
                    env={**os.environ, "CUBECAST_JIT": "off" if light else "on"},
                    text=True,
                )
            )
        for rank in range(members):
            assert self._line(rank) == "ready\n", self.log(rank)

    def _credentials(self, address: str) -> dict[str, str]:
        from cubecast.live.keys import init, issue

        if not (self.folder / "group.pem").exists():
            init(self.folder)
        return {"certificate": str(issue(self.folder, address)), "ca": str(self.folder / "group.pem")}

    def log(self, rank: int) -> str:
        """What a member said on standard error."""
        return f"member {rank}: " + (self.folder / f"{rank}.log").read_text()[-2000:]

    def _line(self, rank: int) -> str:
        stdout = self.processes[rank].stdout
        assert stdout is not None
        return stdout.readline()

    def kill(self, *ranks: int) -> None:
        """kill -9."""
        for rank in ranks:
            self.processes[rank].send_signal(signal.SIGKILL)
            self.processes[rank].wait()
            self.crashes[rank] = time.monotonic_ns()

    def freeze(self, rank: int) -> None:
        """Stop a process; nobody tells the others."""
        self.processes[rank].send_signal(signal.SIGSTOP)

    def thaw(self, rank: int) -> None:
        """Let it go on."""
        self.processes[rank].send_signal(signal.SIGCONT)

    def finish(self) -> dict[int, dict[str, Any]]:
        """End the conversation and give the reports of the members that live."""
        alive = [rank for rank in range(self.members) if rank not in self.crashes]
        for rank in alive:
            self._tell(rank, "finish\n")
        reports = {}
        for rank in alive:
            line = self._line(rank)
            assert line, self.log(rank)
            reports[rank] = json.loads(line)
        for rank in alive:
            self._tell(rank, "leave\n")
        for rank in alive:
            assert self.processes[rank].wait(120) == 0, self.log(rank)
        return reports

    def _tell(self, rank: int, line: str) -> None:
        stdin = self.processes[rank].stdin
        assert stdin is not None
        stdin.write(line)
        stdin.flush()

    def judge(self, **scenario: Any) -> Report:
        """Merge the traces, write them as one, and let every checker judge it."""
        path = self.folder / "run.parquet"
        rows = [self.folder / f"{rank}.rows" for rank in range(self.members)]
        merge(rows, path, members=self.members, crashes=self.crashes, leaves=False, scenario=scenario)
        return check_all(read_trace(path))

    def close(self) -> None:
        """End every process that is left."""
        for process in self.processes:
            if process.poll() is None:
                os.kill(process.pid, signal.SIGCONT)
                process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    stream.close()
