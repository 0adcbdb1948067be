"""Changing groups of real processes: whoever is killed, cut off or started again, promises hold and replicas agree."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.live.bad_network import BadNetwork, is_possible
from tests.live.cast import Cast

pytestmark = pytest.mark.live

QUICK: dict[str, Any] = {
    "tick_s": 0.1,
    "suspect_after_s": 1.2,
    "patience_s": 0.5,
    "takeover_s": 0.8,
    "batch_s": 0.0,
    "sync": "never",
}


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the processes of a test write."""
    yield tmp_path
    for said in sorted(tmp_path.glob("*.log")):
        print(said.name, said.read_text()[-1500:])


def require_agreement(cast: Cast, present: set[int]) -> dict[int, dict[str, Any]]:
    """All who should be there settle in one view, their replicas are the same, and no promise was broken."""
    reports = cast.settle()
    assert set(reports) == present
    assert len({report["digest"] for report in reports.values()}) == 1, reports
    assert next(iter(reports.values()))["delivered"] > 0
    broken = cast.judge(cast.lines(), [report["me"] for report in reports.values()])
    assert broken == [], broken[:5]
    return reports


def test_the_coordinator_is_killed_while_one_joins_and_another_dies_midway(folder: Path) -> None:
    """Four members: whichever newcomer is in the view by then, those who are left are most of it."""
    with closing(Cast(folder, 6, tls=True, **QUICK)) as cast:
        cast.start(0)
        cast.start(1, 0)
        cast.start(2, 1)
        cast.start(5, 2)
        time.sleep(0.3)
        cast.start_soon(3, 2)
        cast.start_soon(4, 1)
        _until(lambda: len(cast.report(1)["members"]) > 4)  # one of them is being taken in
        cast.kill(0, 3)
        assert cast.read(4, 20) == "ready", cast.said(4)
        require_agreement(cast, {1, 2, 4, 5})


def test_a_whole_group_that_was_killed_goes_on_from_its_logs_and_loses_nothing(folder: Path) -> None:
    with closing(Cast(folder, 3, durable=True, log_bytes=20_000, **QUICK | {"suspect_after_s": 5.0})) as cast:
        cast.start(0)
        cast.start(1, 0)
        cast.start(2, 0)
        time.sleep(1.0)
        before = cast.report(0)
        cast.kill(0, 1, 2, keep_log=True)
        for place in range(3):
            cast.start_soon(place, (place + 1) % 3)
        reports = require_agreement(cast, {0, 1, 2})
        assert reports[0]["me"] == before["me"]
        assert reports[0]["delivered"] >= before["delivered"]
        cast.leave(2)
        require_agreement(cast, {0, 1})


@pytest.mark.skipif(not is_possible(), reason="needs root and Linux for network namespaces")
def test_a_minority_blocks_while_it_is_cut_off_and_comes_back_in_a_new_life(folder: Path) -> None:
    network = BadNetwork(5)
    with closing(network), closing(Cast(folder, 5, network=network, **QUICK)) as cast:
        cast.start(0)
        for place in range(1, 5):
            cast.start(place, 0)
        first = cast.report(3)
        for link in network.between({3, 4}, {0, 1, 2}):
            link.cut = True
        _until(lambda: cast.report(3)["blocked"] and cast.report(4)["blocked"])
        _until(lambda: len(cast.report(0)["members"]) == 3)
        cast.freeze(2)
        time.sleep(0.5)
        cast.thaw(2)
        for link in network.between({3, 4}, {0, 1, 2}):
            link.cut = False
        _until(lambda: len(cast.report(0)["members"]) == 5)
        reports = require_agreement(cast, {0, 1, 2, 3, 4})
        assert reports[3]["told"]["blocked"] >= 1
        assert reports[3]["told"]["excluded"] >= 1
        assert reports[3]["me"][1] > first["me"][1]


def _until(is_so: Any, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)
