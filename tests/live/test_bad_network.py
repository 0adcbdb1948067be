"""Real TCP over links that lose, reorder or swallow packets, where this machine can make such links."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.live.bad_network import BadNetwork, is_possible
from tests.live.test_processes import Start, require_agreement

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_possible(), reason="needs root, namespaces and tunnels")]

PATIENT = {"gossip_every_s": 0.5, "suspect_after_s": 30.0}


@pytest.fixture
def network() -> Iterator[BadNetwork]:
    """Four hosts of our own."""
    made = BadNetwork(4)
    yield made
    made.close()


def test_loss_delay_and_reordering_are_not_seen_by_the_application(troupe: Start, network: BadNetwork) -> None:
    group = troupe(4, network=network, **PATIENT)
    for link in network.between({1}, {0, 2, 3}):
        link.loss, link.delay_s, link.jitter_s = 0.2, 0.05, 0.02
    time.sleep(2.5)
    for link in network.links.values():
        link.loss = link.delay_s = link.jitter_s = 0.0
    require_agreement(group.finish())
    assert network.lost > 0
    assert network.overtaken > 0
    report = group.judge()
    assert report.ok, report.violations[:5]


def test_a_link_that_swallows_everything_is_made_anew_while_others_vouch(troupe: Start, network: BadNetwork) -> None:
    group = troupe(4, network=network, gossip_every_s=0.5, suspect_after_s=3.0)
    for link in network.between({0}, {1}):
        link.cut = True
    time.sleep(5)
    for link in network.links.values():
        link.cut = False
    reports = group.finish()
    require_agreement(reports)
    assert {tuple(report["members"]) for report in reports.values()} == {(0, 1, 2, 3)}
    assert sum(report["reconnections"] for report in reports.values()) > 0
    report = group.judge()
    assert report.ok, report.violations[:5]
