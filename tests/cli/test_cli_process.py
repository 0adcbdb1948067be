"""The command as a process: it starts quickly, and stops cleanly."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

CUBECAST = [sys.executable, "-c", "from cubecast.cli import main; main()"]
# Long enough to be stopped in the middle, and yet it ends by itself should nothing stop it.
LONG = ["simulate", "cube_full_dist", "--members", "200", "--network", "random:p=0.04", "--rounds", "1000"]
# The first run may have to be compiled, on a machine that is busy.
SECONDS_MAX = 600
HEAVY = ("numba", "scipy", "pyarrow", "altair", "vl_convert")


@pytest.mark.parametrize("arguments", [["--help"], ["simulate", "--help"], ["compare", "--help"], ["protocols"]])
def test_a_command_that_runs_nothing_loads_no_heavy_library(arguments: list[str]) -> None:
    program = f"""
import sys
from cubecast.cli import main
try:
    main({arguments!r})
except SystemExit as left:
    assert not left.code, left.code
print([name for name in {HEAVY!r} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr.strip() == "[]"
    assert done.stdout


def stop_in_the_middle(number: signal.Signals, folder: Path) -> tuple[int, str, str]:
    """Start a run that writes a trace, stop it while it writes; returns its exit code and its output."""
    process = subprocess.Popen(
        [*CUBECAST, *LONG, "--trace", "run.parquet"],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts us in the background makes us deaf to Ctrl-C, and our children with us.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    try:
        deadline = time.monotonic() + SECONDS_MAX
        while not any(one.stat().st_size > 0 for one in folder.iterdir()):
            assert process.poll() is None, process.communicate()[1]
            assert time.monotonic() < deadline, "the run never began to write"
            time.sleep(0.05)
        process.send_signal(number)
        out, error = process.communicate(timeout=SECONDS_MAX)
        return process.returncode, out, error
    finally:
        process.kill()
        process.wait()


@pytest.mark.timeout(2 * SECONDS_MAX)
def test_ctrl_c_is_one_line_and_leaves_nothing_half_written(tmp_path: Path) -> None:
    code, out, error = stop_in_the_middle(signal.SIGINT, tmp_path)
    assert (code, out, error) == (130, "", "cubecast: stopped; no partially written file remains\n")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(2 * SECONDS_MAX)
def test_a_polite_kill_leaves_nothing_half_written(tmp_path: Path) -> None:
    code, _, error = stop_in_the_middle(signal.SIGTERM, tmp_path)
    assert (code, error) == (128 + signal.SIGTERM, "")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("arguments", [["protocols"], ["compare", "--members", "5", "--network", "chain", "--json"]])
def test_a_reader_that_leaves_early_is_no_error(arguments: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as output:
        done = subprocess.run(
            [*CUBECAST, *arguments], stdout=output, stderr=subprocess.PIPE, text=True, timeout=SECONDS_MAX
        )
    assert done.stderr == ""
    assert done.returncode == 1
