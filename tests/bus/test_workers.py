"""Workers that start with the same configuration get different addresses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from cubecast.bus.workers import worker_group
from cubecast.errors import LocalProtocolError
from cubecast.live.local import free_ports

pytestmark = pytest.mark.live

WORKER = """
import sys
from cubecast.bus.workers import worker_group
from cubecast.errors import CubecastError
try:
    print(worker_group("g", sys.argv[1], count=2, plaintext=True).address, flush=True)
except CubecastError as error:
    sys.exit(str(error))
sys.stdin.read()
"""


def start(first: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder), "CUBECAST_JIT": "off"}
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", WORKER, first]
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=environment)


def test_each_worker_claims_an_address_and_one_that_replaces_a_dead_one_gets_its_address(tmp_path: Path) -> None:
    first = f"127.0.0.1:{free_ports(1)[0]}"
    workers = [start(first, tmp_path) for _ in range(2)]
    try:
        addresses = [worker.stdout.readline().strip() for worker in workers if worker.stdout]
        assert first in addresses
        assert len(set(addresses)) == 2
        refused = start(first, tmp_path)
        assert "raise count=" in refused.communicate(timeout=60)[1]
        assert refused.returncode == 1
        workers[0].kill()
        workers[0].wait()
        workers.append(start(first, tmp_path))
        assert workers[2].stdout is not None
        assert workers[2].stdout.readline().strip() == addresses[0]
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


@pytest.mark.parametrize("count", [0, -1, 257, "4"])
def test_a_wrong_number_of_workers_is_refused(count: int) -> None:
    with pytest.raises(LocalProtocolError, match="count="):
        worker_group("g", "127.0.0.1:7100", count=count, plaintext=True)
