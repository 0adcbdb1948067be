"""Run a module of these tests with the compiler off, where breaking a handler is an assignment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def told_by(module: str) -> Any:
    """What `python -m module` prints as JSON, in a process where nothing is compiled."""
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
    return json.loads(ran.stdout)
