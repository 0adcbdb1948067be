"""The lock between real processes that are killed and stopped: grants are linearisable.

Every grant has a token of its own, and tokens agree with time: a grant that was released before another was requested
has the smaller token. A process that was stopped may believe that it holds the lock while another does; then its token
is the smaller one, which is what tokens are for.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from cubecast.live.local import free_addresses
from tests.live.cast import ROOT
from tests.support.processes import LineProcess

pytestmark = [pytest.mark.live, pytest.mark.slow]


class Grant(NamedTuple):
    """One use of the lock."""

    token: tuple[int, int]
    called_ns: int
    granted_ns: int
    released_ns: int | None


def _grants(log: Path) -> list[Grant]:
    found: list[Grant] = []
    called = 0
    for line in log.read_text().splitlines():
        at, what, *token = line.split()
        if what == "called":
            called = int(at)
        elif what == "granted":
            found.append(Grant((int(token[0]), int(token[1])), called, int(at), None))
        elif what == "released":
            found[-1] = found[-1]._replace(released_ns=int(at))
    return found


def _start(task: dict[str, object]) -> LineProcess:
    return LineProcess(
        [sys.executable, "-m", "tests.objects.lock_actor", json.dumps(task)], folder=ROOT, errors=subprocess.DEVNULL
    )


def test_grants_are_linearisable_while_processes_are_killed_and_stopped(tmp_path: Path) -> None:
    draw = random.Random(11)
    addresses = free_addresses(6)
    tasks: list[dict[str, object]] = [
        {"listen": at, "peers": addresses[:3], "log": str(tmp_path / f"{place}.log")}
        for place, at in enumerate(addresses[:3])
    ]
    running = [_start(task) for task in tasks]
    started = list(running)
    try:
        for one in running:
            assert one.read_line() == "ready"
        for fault in range(4):
            time.sleep(1.5)
            victim = draw.randrange(3)
            if fault % 2:
                os.kill(running[victim].process.pid, signal.SIGSTOP)
                time.sleep(1.2)
                os.kill(running[victim].process.pid, signal.SIGCONT)
            else:
                running[victim].process.kill()
                running[victim].process.wait(10)
                at = addresses[3 + fault // 2]
                contact = tasks[(victim + 1) % 3]["listen"]
                tasks[victim] = {"listen": at, "contact": contact, "log": str(tmp_path / f"new{fault}.log")}
                running[victim] = _start(tasks[victim])
                started.append(running[victim])
                assert running[victim].read_line() == "ready"
        time.sleep(2)
    finally:
        for one in started:
            one.close()
    grants = sorted(grant for log in tmp_path.glob("*.log") for grant in _grants(log))
    assert len(grants) > 30, "hardly anything was granted"
    assert len({grant.token for grant in grants}) == len(grants)
    for place, earlier in enumerate(grants):
        for later in grants[place + 1 :]:
            ended = later.released_ns
            assert ended is None or ended > earlier.called_ns, f"{later} was over before {earlier} was requested"
