"""Run a module of these tests with the compiler off, where breaking a handler is an assignment."""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


def output_of(module: str, folders: pytest.TempPathFactory) -> Any:
    """The JSON that `python -m module` prints with the compiler off; run once for all test processes."""
    base = folders.getbasetemp()
    answer = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / f"{module}.json"
    with answer.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not answer.exists():
            answer.write_text(_run_module(module))
    return json.loads(answer.read_text())


def _run_module(module: str) -> str:
    paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
    ran = subprocess.run(
        [sys.executable, "-m", module],
        env={**os.environ, "PYTHONPATH": paths, "CUBECAST_JIT": "off"},
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr[-2000:]
    return ran.stdout
