"""Processes that edit one document at random while some are killed, stopped and replaced end with the same content."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("pycrdt")

from cubecast.live.local import free_addresses
from tests.support.processes import LineProcess

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).parents[2]


def _start(listen: str, **way: object) -> LineProcess:
    task = json.dumps({"listen": listen, **way})
    command = [sys.executable, "-m", "tests.contrib.pycrdt_actor", task]
    return LineProcess(command, folder=ROOT, errors=subprocess.DEVNULL, light=True)


def _ask(one: LineProcess, line: str) -> list[int]:
    one.write_line(line)
    answer: list[int] = json.loads(one.read_line())
    return answer


@pytest.mark.parametrize("seed", range(2))
def test_random_edits_of_processes_converge_whatever_happens_to_them(seed: int) -> None:
    draw = random.Random(seed)
    addresses = free_addresses(6)
    running = {at: _start(at, peers=addresses[:4]) for at in addresses[:4]}
    started = list(running.values())
    try:
        for one in started:
            assert one.read_line() == "ready"
        for spare in addresses[4:]:
            time.sleep(1.5)
            victim = draw.choice(sorted(running))
            killed = running.pop(victim)
            killed.process.kill()
            frozen = running[draw.choice(sorted(running))].process
            os.kill(frozen.pid, signal.SIGSTOP)
            time.sleep(draw.choice([0.3, 2.5]))  # the longer one ends in an exclusion
            os.kill(frozen.pid, signal.SIGCONT)
            contact = next(at for at, one in sorted(running.items()) if one.process is not frozen)
            running[spare] = _start(spare, contact=contact)
            started.append(running[spare])
            assert running[spare].read_line() == "ready"
        time.sleep(1.0)
        for one in running.values():
            _ask(one, "stop")
        deadline = time.monotonic() + 60
        while True:
            shown = {tuple(_ask(one, "show")) for one in running.values()}
            if len(shown) == 1 and not next(iter(shown))[1]:
                break
            assert time.monotonic() < deadline, f"seed {seed}: {shown}"
            time.sleep(0.2)
        assert next(iter(shown))[0] > 3, "the history was squashed meanwhile"
    finally:
        for one in started:
            one.close()
