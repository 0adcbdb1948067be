"""Groups of real processes: members are killed, stopped, cut off and restarted; promises hold and replicas agree."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.live.bad_network import BadNetwork, is_possible
from tests.live.cast import Cast

pytestmark = pytest.mark.live

QUICK: dict[str, Any] = {
    "heartbeat_s": 0.1,
    "suspect_after_s": 1.2,
    "patience_s": 0.5,
    "takeover_s": 0.8,
    "round_every_s": 0.05,
    "sync": "never",
}
PATIENT: dict[str, Any] = {**QUICK, "suspect_after_s": 20.0}
needs_network = pytest.mark.skipif(not is_possible(), reason="needs root and Linux for network namespaces")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Where the processes of a test write."""
    yield tmp_path
    for said in sorted(tmp_path.glob("*.log")):
        print(said.name, said.read_text()[-1500:])


def require_agreement(cast: Cast, present: set[int]) -> dict[int, dict[str, Any]]:
    """All expected processes are in one view, their replicas are equal, and no promise was broken."""
    reports = cast.settle()
    assert set(reports) == present
    assert len({report["digest"] for report in reports.values()}) == 1, reports
    assert next(iter(reports.values()))["delivered"] > 0
    report = cast.judge()
    assert report.ok, report.lines()[:10]
    return reports


def until(is_so: Callable[[], object], seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize(
    ("data", "is_light"), [("tree", False), ("overlay", True), ("timestamp", False), ("causal_rasm", True)]
)
def test_all_members_deliver_everything_in_causal_order_and_it_becomes_stable(
    folder: Path, data: str, is_light: bool
) -> None:
    with closing(Cast(folder, 5, tls=True, is_light=is_light, data=data, **PATIENT)) as cast:
        cast.form(*range(5))
        time.sleep(1)
        require_agreement(cast, set(range(5)))


@pytest.mark.parametrize(
    ("data", "victims"),
    [("timestamp", (0, 5)), ("star", (0, 1)), ("tree", (0, 1)), ("overlay", (2, 3)), ("causal_plumtree", (0, 3))],
)
def test_the_survivors_of_killed_members_agree(folder: Path, data: str, victims: tuple[int, ...]) -> None:
    with closing(Cast(folder, 6, data=data, **{**QUICK, "suspect_after_s": 2.0})) as cast:
        cast.form(*range(6))
        time.sleep(1)
        cast.kill(*victims)
        time.sleep(0.5)
        require_agreement(cast, set(range(6)) - set(victims))


def test_a_member_killed_and_started_again_disturbs_nobody(folder: Path) -> None:
    """The healthy members must not end with ExcludedError, nor the one that came back continue alone."""
    with closing(Cast(folder, 3, **QUICK)) as cast:
        cast.form(0, 1, 2)
        time.sleep(0.5)
        for pause_s in (0.0, 0.5, 2.5):  # before it is suspected, about then, and after it was excluded
            cast.kill(2)
            time.sleep(pause_s)
            cast.start_soon(2, peers=(0, 1, 2))
            assert cast.read(2, 30) == "ready", cast.said(2)
            until(lambda: len(cast.report(0)["members"]) == len(cast.report(2)["members"]) == 3)
        reports = require_agreement(cast, {0, 1, 2})
        assert all(report["notices"]["excluded"] == 0 for report in reports.values())


def test_a_member_stopped_for_longer_than_the_others_wait_learns_that_it_was_excluded(folder: Path) -> None:
    """It must not exclude everybody else and call its messages stable alone."""
    with closing(Cast(folder, 3, **QUICK)) as cast:
        cast.form(0, 1, 2)
        for _ in range(2):
            before = cast.report(2)
            cast.freeze(2)
            until(lambda: len(cast.report(0)["members"]) == 2)
            time.sleep(0.5)
            cast.thaw(2)
            until(lambda before=before: cast.report(2)["notices"]["excluded"] > before["notices"]["excluded"])  # type: ignore[misc]
            until(lambda: len(cast.report(0)["members"]) == 3)
        reports = require_agreement(cast, {0, 1, 2})
        assert reports[2]["notices"]["excluded"] >= 2
        assert reports[0]["notices"]["excluded"] == reports[1]["notices"]["excluded"] == 0


def test_the_coordinator_is_killed_while_one_joins_and_another_dies_midway(folder: Path) -> None:
    """Four members: whichever newcomer is in the view by then, the remaining members are a majority of it."""
    with closing(Cast(folder, 6, tls=True, **QUICK)) as cast:
        cast.start(0)
        cast.start(1, 0)
        cast.start(2, 1)
        cast.start(5, 2)
        time.sleep(0.3)
        cast.start_soon(3, 2)
        cast.start_soon(4, 1)
        until(lambda: len(cast.report(1)["members"]) > 4)  # one of them joins
        cast.kill(0, 3)
        assert cast.read(4, 30) == "ready", cast.said(4)
        require_agreement(cast, {1, 2, 4, 5})


def test_a_whole_group_that_was_killed_continues_from_its_journals_and_loses_nothing(folder: Path) -> None:
    with closing(Cast(folder, 3, durable=True, journal_bytes=20_000, **{**QUICK, "suspect_after_s": 5.0})) as cast:
        cast.form(0, 1, 2)
        time.sleep(1.0)
        before = cast.report(0)
        cast.kill(0, 1, 2, keep_journal=True)
        for place in range(3):
            cast.start_soon(place, (place + 1) % 3)
        reports = require_agreement(cast, {0, 1, 2})
        assert reports[0]["me"] == before["me"]
        cast.leave(2)
        require_agreement(cast, {0, 1})


@pytest.mark.parametrize("members", [1, 2, 3])
def test_what_was_stable_is_there_after_everybody_was_killed(folder: Path, members: int) -> None:
    """`sync="always"`: kill -9 right after `stable()` returned, also of a lone founder."""
    with closing(Cast(folder, members, durable=True, pause_s=60.0, **{**PATIENT, "sync": "always"})) as cast:
        if members == 1:
            cast.start(0)
        else:
            cast.form(*range(members))
        for number in range(3):
            place = number % members
            cast.command(place, f"set word{number} {number}")
            assert cast.read(place, 30) == "stable"
            cast.kill(*range(members), keep_journal=True)
            for other in range(members):
                cast.start_soon(other, (other + 1) % members if members > 1 else None)
            for other in range(members):
                assert cast.read(other, 30) == "ready", cast.said(other)
            words = {f"word{one}": str(one) for one in range(number + 1)}
            for other in range(members):
                until(lambda other=other, words=words: cast.report(other)["mine"] == words)  # type: ignore[misc]
        report = cast.judge()
        assert report.ok, report.lines()[:10]


def test_a_group_of_two_whose_first_is_lost_continues_when_an_operator_says_so(folder: Path) -> None:
    with closing(Cast(folder, 2, **QUICK)) as cast:
        cast.form(0, 1)
        cast.kill(0)
        until(lambda: cast.report(1)["blocked"])
        cast.command(1, "force")
        until(lambda: not cast.report(1)["blocked"] and len(cast.report(1)["members"]) == 1)
        cast.start(0, 1)
        until(lambda: len(cast.report(0)["members"]) == 2)
        assert len({report["digest"] for report in cast.settle().values()}) == 1


@needs_network
def test_a_minority_blocks_while_it_is_cut_off_and_comes_back_in_a_new_incarnation(folder: Path) -> None:
    network = BadNetwork(5)
    with closing(network), closing(Cast(folder, 5, network=network, **QUICK)) as cast:
        cast.form(*range(5))
        first = cast.report(3)
        for link in network.between({3, 4}, {0, 1, 2}):
            link.cut = True
        until(lambda: cast.report(3)["blocked"] and cast.report(4)["blocked"])
        until(lambda: len(cast.report(0)["members"]) == 3)
        cast.freeze(2)
        time.sleep(0.5)
        cast.thaw(2)
        for link in network.between({3, 4}, {0, 1, 2}):
            link.cut = False
        until(lambda: len(cast.report(0)["members"]) == 5)
        reports = require_agreement(cast, {0, 1, 2, 3, 4})
        assert reports[3]["notices"]["blocked"] >= 1
        assert reports[3]["notices"]["excluded"] >= 1
        assert reports[3]["me"][1] > first["me"][1]


@needs_network
def test_loss_delay_and_reordering_are_not_seen_by_the_application(folder: Path) -> None:
    network = BadNetwork(4)
    with closing(network), closing(Cast(folder, 4, network=network, **PATIENT)) as cast:
        cast.form(*range(4))
        for link in network.between({1}, {0, 2, 3}):
            link.loss, link.delay_s, link.jitter_s = 0.2, 0.05, 0.02
        time.sleep(2.5)
        for link in network.links.values():
            link.loss = link.delay_s = link.jitter_s = 0.0
        require_agreement(cast, set(range(4)))
        assert network.lost > 0
        assert network.overtaken > 0


@needs_network
def test_a_link_that_swallows_everything_is_made_anew_while_others_vouch(folder: Path) -> None:
    network = BadNetwork(4)
    settings = {**QUICK, "heartbeat_s": 0.5, "suspect_after_s": 3.0, "observers": 2}
    with closing(network), closing(Cast(folder, 4, network=network, **settings)) as cast:
        cast.form(*range(4))
        for link in network.between({0}, {1}):
            link.cut = True
        time.sleep(5)
        for link in network.links.values():
            link.cut = False
        reports = require_agreement(cast, set(range(4)))
        assert sum(report["reconnections"] for report in reports.values()) > 0
