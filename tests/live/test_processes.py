"""Groups of real processes: order, agreement and stability, whoever is killed or stopped."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.live.harness import Troupe

pytestmark = pytest.mark.live

Start = Callable[..., Troupe]
SUSPECT = {"gossip_every_s": 0.2, "suspect_after_s": 5.0}


def require_agreement(reports: dict[int, dict[str, Any]]) -> None:
    """All delivered the same, all is stable, nothing is held."""
    assert len({report["delivered"] for report in reports.values()}) == 1, reports
    assert len({tuple(report["frontier"]) for report in reports.values()}) == 1, reports
    assert all(report["unstable"] == 0 for report in reports.values()), reports
    first = next(iter(reports.values()))
    assert first["delivered"] == sum(first["frontier"]) > 0


@pytest.mark.parametrize(
    ("causal", "light"), [("tree", False), ("overlay", True), ("timestamp", False), ("rasm", False)]
)
def test_all_members_deliver_everything_in_causal_order_and_it_becomes_stable(
    troupe: Start, causal: str, light: bool
) -> None:
    group = troupe(5, tls=True, light=light, causal=causal)
    time.sleep(1)
    reports = group.finish()
    require_agreement(reports)
    assert {tuple(report["members"]) for report in reports.values()} == {(0, 1, 2, 3, 4)}
    report = group.judge()
    assert report.ok, report.violations[:5]


@pytest.mark.parametrize(
    ("causal", "victims"),
    [
        ("timestamp", (0, 5)),
        ("star", (0, 1)),
        ("tree", (0, 1)),
        ("overlay", (2, 3)),
        ("plumtree", (0, 3)),
        ("rasm", (0, 3)),
    ],
)
def test_the_survivors_of_killed_members_agree_and_stability_goes_on(
    troupe: Start, causal: str, victims: tuple[int, ...]
) -> None:
    group = troupe(8, causal=causal, **SUSPECT)
    time.sleep(1)
    group.kill(*victims)
    time.sleep(0.5)
    reports = group.finish()
    require_agreement(reports)
    survivors = tuple(rank for rank in range(8) if rank not in victims)
    assert {tuple(report["members"]) for report in reports.values()} == {survivors}
    report = group.judge()
    assert report.ok, report.violations[:5]


def test_a_member_stopped_for_a_short_while_stays(troupe: Start) -> None:
    group = troupe(4, gossip_every_s=0.2, suspect_after_s=8.0)
    time.sleep(0.5)
    group.freeze(2)
    time.sleep(1.5)
    group.thaw(2)
    time.sleep(0.5)
    reports = group.finish()
    require_agreement(reports)
    assert {tuple(report["members"]) for report in reports.values()} == {(0, 1, 2, 3)}
    report = group.judge()
    assert report.ok, report.violations[:5]


def test_a_member_stopped_for_too_long_is_excluded_and_learns_it(troupe: Start) -> None:
    group = troupe(4, gossip_every_s=0.2, suspect_after_s=4.0)
    time.sleep(0.5)
    group.freeze(1)
    frozen_ns = time.monotonic_ns()
    for rank in (0, 2, 3):
        group.wait_for(rank, "is excluded")
    group.thaw(1)
    group.wait_for(1, "was excluded")
    reports = group.finish()
    assert reports.pop(1)["excluded"]
    require_agreement(reports)
    assert {tuple(report["members"]) for report in reports.values()} == {(0, 2, 3)}
    group.crashes[1] = frozen_ns
    report = group.judge()
    assert report.ok, report.violations[:5]
