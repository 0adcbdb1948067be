"""Each checker bites: protocols, data layer and links broken on purpose are caught, and by the right checker."""

from __future__ import annotations

import numpy as np
import pytest

from cubecast.trace.checkers import check_all
from cubecast.trace.files import Trace
from cubecast.trace.schema import DONE, DROP, HOP, SEND
from tests.sim.plain_python import output_of
from tests.sim.random_scenarios import PROTOCOLS
from tests.sim.runs import traced


@pytest.fixture(scope="module")
def noticed(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    found: dict[str, list[str]] = output_of("tests.sim.broken_stability", tmp_path_factory)
    return found


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_what_is_not_broken_is_not_complained_about(noticed: dict[str, list[str]], protocol: str) -> None:
    assert noticed[f"unbroken {protocol}"] == []


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_that_forgets_a_member_is_premature(noticed: dict[str, list[str]], protocol: str) -> None:
    assert "no premature stability" in noticed[f"premature {protocol}"]


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_protocol_that_keeps_its_last_message_never_ends(noticed: dict[str, list[str]], protocol: str) -> None:
    assert noticed[f"never ending {protocol}"] == ["every round ends"]


def test_links_that_reorder_unasked_are_caught(noticed: dict[str, list[str]]) -> None:
    assert noticed["reordering links"] == ["FIFO per link"]


def test_a_data_layer_that_skips_is_caught(noticed: dict[str, list[str]]) -> None:
    assert "in-order delivery" in noticed["hasty delivery"]


def test_stability_that_shrinks_is_caught(noticed: dict[str, list[str]]) -> None:
    assert "stability never decreases" in noticed["shrinking"]


@pytest.mark.parametrize(
    ("event", "metric"), [(SEND, "messages"), (HOP, "hops"), (DROP, "drops"), (DONE, "rtt_last_ms")]
)
def test_a_trace_that_was_tampered_with_disagrees_with_its_metrics(event: int, metric: str) -> None:
    trace = traced(protocol="coord", members=8, network="random:degree=3", loss=0.2, seed=1)
    assert check_all(trace).ok
    place = np.flatnonzero(trace.events["event"] == event)[-1]
    tampered = Trace(events=np.delete(trace.events, place), scenario=trace.scenario, metrics=trace.metrics)
    found = [one.message for one in check_all(tampered).violations if one.checker == "counts agree with the metrics"]
    assert any(message.startswith(f"the metrics say {metric} =") for message in found)
