"""The question that the status of a running member poses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.advisor.live_status import settings_of_status
from cubecast.networks.spec import build_network
from cubecast.sim.distances import routed_delays
from cubecast.sim.paths import routes_of


def link(rtt_ms: float | None, segments: int = 100, retransmitted: int = 0) -> dict[str, Any]:
    return {"rtt_ms": rtt_ms, "segments": segments, "retransmitted": retransmitted}


def status(**changes: Any) -> dict[str, Any]:
    """Of rank 1 of four; it has links to two of the others."""
    links = [link(8.0, 300, 4), None, link(20.0), None]
    members = [{"rank": rank, "received": 5 * (rank < 2), "link": one} for rank, one in enumerate(links)]
    course = [
        {"time": 100.0, "delivered": 50.0, "lag": 4.0, "bytes": 800.0},
        {"time": 110.0, "delivered": 450.0, "lag": 6.0, "bytes": 1200.0},
    ]
    found = {"address": "a:1", "rank": 1, "members": members, "course": course}
    return found | {"stability": {"protocol": "coord", "parameters": {}, "round_every_s": 0.1}} | changes


def test_the_question_is_what_the_member_measured(tmp_path: Path) -> None:
    asked = settings_of_status(status(), tmp_path)
    assert asked["members"] == 4
    assert asked["senders"] == 2
    assert asked["rate"] == 20.0  # 40 per second of two senders
    assert asked["payload_bytes"] == 200
    assert asked["loss"] == 0.005  # 4 of 400 segments, over two links
    assert asked["placement"] is False


def test_the_network_has_the_measured_round_trip_times(tmp_path: Path) -> None:
    asked = settings_of_status(status(), tmp_path)
    network = build_network(asked["network"], members=4, seed=0)
    delay_ms = routed_delays(network, routes_of(network, by="delay"), 0) / 1e6
    assert delay_ms[1, 0] == pytest.approx(4.0, abs=0.01)
    assert delay_ms[1, 2] == pytest.approx(10.0, abs=0.01)
    assert delay_ms[1, 3] == pytest.approx(7.0, abs=0.01)  # no link: the median


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"members": status()["members"][1:2]}, "nothing to choose"),
        ({"course": []}, "delivered nothing"),
        ({"members": 3}, "not the status of a member"),
        ({"course": [{}]}, "not the status of a member"),
        ({"stability": {"protocol": "coord"}}, "not the status of a member"),
        ({"members": [{"rank": 0}, {"rank": 1}]}, "not the status of a member"),
        ({"members": [one | {"link": link(None)} for one in status()["members"]]}, "give --network"),
    ],
)
def test_a_status_that_says_too_little_is_refused(changes: dict[str, Any], said: str, tmp_path: Path) -> None:
    with pytest.raises(LocalProtocolError, match=said):
        settings_of_status(status(**changes), tmp_path)
