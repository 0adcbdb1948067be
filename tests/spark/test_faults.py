"""A full disk, workers that die again and again, Ctrl-C: one clear line, and what was committed stays."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.store import Store
from tests.spark.conftest import LONG_RUNS, Study, committed, finish_study, long_plans, start_study

pytestmark = [pytest.mark.spark]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 KB, where this user may make one."""
    place = tmp_path / "disk"
    place.mkdir()
    options = ["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(place)]
    if os.geteuid() != 0 or subprocess.run(options, capture_output=True, check=False).returncode != 0:
        pytest.skip("a disk of its own needs the right to mount one")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=False)


def test_a_full_disk_is_one_line_and_results_stay(study: Study, small_disk: Path) -> None:
    with pytest.raises(LocalProtocolError, match="the disk is full; free disk space") as caught:
        study(small_disk)
    assert "\n" not in str(caught.value)
    kept = len(committed(small_disk))
    subprocess.run(["mount", "-o", "remount,size=10m", str(small_disk)], check=True)
    assert study(small_disk).done_now == 24 - kept


def _workers_below(pid: int) -> list[int]:
    """The Python workers of Spark among the descendants of a process."""
    parents: dict[int, int] = {}
    workers = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            fields = (place / "stat").read_text().rpartition(")")[2].split()
            words = (place / "cmdline").read_bytes()
        except OSError:
            continue
        parents[int(place.name)] = int(fields[1])
        if b"pyspark.daemon" in words:
            workers.append(int(place.name))
    return [one for one in workers if _is_below(one, pid, parents)]


def _is_below(one: int, pid: int, parents: dict[int, int]) -> bool:
    while one > 1:
        one = parents.get(one, 0)
        if one == pid:
            return True
    return False


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_workers_that_die_again_and_again_end_the_study_with_one_line(tmp_path: Path, spark: Any) -> None:
    assert spark is not None
    plans = long_plans(tmp_path)
    over = threading.Event()

    def kill_all() -> None:
        begun = Store(tmp_path / "out").runs / "_temporary"
        while not over.wait(0.1):
            for pid in _workers_below(os.getpid()) if begun.exists() else []:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)

    killer = threading.Thread(target=kill_all)
    killer.start()
    try:
        with pytest.raises(LocalProtocolError, match="probably because of too little memory"):
            finish_study(plans, tmp_path / "out")
    finally:
        over.set()
        killer.join()
    kept = len(committed(tmp_path / "out"))
    assert finish_study(plans, tmp_path / "out") == LONG_RUNS - kept


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ctrl_c_keeps_what_is_done_and_says_how_to_go_on(tmp_path: Path, whole: list[tuple[str, str]]) -> None:
    plans, out = long_plans(tmp_path), tmp_path / "out"
    with (tmp_path / "said").open("wb") as said:
        process = start_study(plans, out, "local[2]", stderr=said)
        until = time.monotonic() + 240
        while time.monotonic() < until and process.poll() is None and len(committed(out)) < 3:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    told = (tmp_path / "said").read_text()
    assert f"finished runs are kept in {out}; the same command continues" in told
    assert "Traceback" not in told
    kept = committed(out)
    assert 0 < len(kept) < LONG_RUNS
    assert set(kept) <= set(whole)


def test_other_sources_on_a_worker_are_one_line(study: Study, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver has another version than its workers: no result under the wrong key."""
    monkeypatch.setattr("cubecast.lab.runs.source_hash", lambda _settings: "0123456789abcdef")
    with pytest.raises(LocalProtocolError, match="differ from those of the driver") as caught:
        study("other")
    assert "\n" not in str(caught.value)


OUT_OF_MEMORY = """
import sys
from cubecast.errors import LocalProtocolError
from cubecast.lab.spark.session import one_line, session
try:
    with session("local[1]") as spark, one_line("the test"):
        spark.range(1).selectExpr("length(concat(repeat('x', 1000000000), repeat('y', 1000000000)))").toArrow()
except LocalProtocolError as error:
    sys.exit(str(error))
"""


@pytest.mark.timeout(300)
def test_a_java_without_memory_is_one_line(spark: Any) -> None:
    assert spark is not None
    done = subprocess.run(
        [sys.executable, "-c", OUT_OF_MEMORY],
        env={**os.environ, "CUBECAST_SPARK_MEMORY": "600m", "SPARK_LOCAL_IP": "127.0.0.1"},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "the test stopped: Spark ran out of memory; set CUBECAST_SPARK_MEMORY above 600m\n"


def _children(pid: int) -> list[int]:
    return [int(one) for one in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@pytest.mark.slow
@pytest.mark.timeout(400)
def test_a_polite_kill_ends_a_study_whose_java_does_not_answer(tmp_path: Path, spark: Any) -> None:
    assert spark is not None
    plans, out = long_plans(tmp_path), tmp_path / "out"
    process = start_study(plans, out, "local[2]")
    until = time.monotonic() + 240
    while time.monotonic() < until and process.poll() is None and len(committed(out)) < 1:
        time.sleep(0.05)
    [java] = [one for one in _children(process.pid) if b"java" in Path(f"/proc/{one}/cmdline").read_bytes()]
    os.kill(java, signal.SIGSTOP)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 128 + signal.SIGTERM
    assert not Path(f"/proc/{java}").exists() or "Z" in Path(f"/proc/{java}/stat").read_text().rpartition(")")[2]
