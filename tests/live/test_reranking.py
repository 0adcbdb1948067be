"""Real processes whose ranks follow from the round-trip times that their links measure."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.live.bad_network import BadNetwork, is_possible
from tests.live.cast import Cast
from tests.live.two_regions import LEAVER, MEASURED_S, crossing, two_regions

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_possible(), reason="needs root and Linux for network namespaces"),
]
SETTINGS: dict[str, Any] = {
    "data": "timestamp",
    "stability": "cube_full_dist",
    "rerank_gain": 0.2,
    "suspect_after_s": 20.0,
}


def test_neighbours_in_the_hypercube_are_near_after_the_next_change(tmp_path: Path) -> None:
    with closing(BadNetwork(9)) as network, closing(Cast(tmp_path, 9, network=network, **SETTINGS)) as cast:
        two_regions(network, 0.03)
        cast.form(*range(9))
        founded = cast.report(0)["members"]
        assert [name for name, _ in founded] == cast.addresses, "founders are ranked by address"
        assert crossing(cast.addresses, founded[:LEAVER]) == 12, "all of them"
        time.sleep(MEASURED_S)
        cast.leave(LEAVER)
        reports = cast.settle()
        assert {str(report["members"]) for report in reports.values()} == {str(reports[0]["members"])}
        assert crossing(cast.addresses, reports[0]["members"]) == 4, "those of one dimension: fewer is not possible"
        assert cast.judge().ok
