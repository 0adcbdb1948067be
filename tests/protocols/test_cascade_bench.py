"""The floor that `bench/cascade.py` states: no protocol can be faster."""

from __future__ import annotations

import pytest

from bench.cascade import ROUND_BASED, Where, best_possible, farthest_ms, measure, time_at
from cubecast.networks.spec import build_network
from cubecast.protocol.mail import HEADER_BYTES


def test_news_travels_over_the_fastest_path_to_the_farthest_member() -> None:
    network = build_network("chain:delay=1ms,bandwidth=100e6", members=4, seed=0)
    hop_ms = 1 + 8e3 * HEADER_BYTES / 100e6
    assert farthest_ms(network) == pytest.approx([3 * hop_ms, 2 * hop_ms, 2 * hop_ms, 3 * hop_ms])


@pytest.mark.parametrize("loss", [0.0, 0.02])
def test_no_protocol_is_faster_than_the_floor(loss: float) -> None:
    where = Where("random:degree=3", 16, loss, 1, ())
    floor = best_possible(where)
    assert floor is not None
    assert 0 < floor.held_ms < floor.known_ms
    if loss:
        return  # what is lost differs between runs, so single runs can be faster
    for protocol, own in (*ROUND_BASED, ("cascade", {})):
        point = measure(protocol, own | {"delta_ms": 0}, where)
        assert point is not None
        assert point.mean_ms > floor.known_ms


def test_a_round_based_protocol_may_use_fewer_messages() -> None:
    where = Where("random:degree=3", 16, 0.0, 1, ())
    few, many = measure("coord", {"delta_ms": 40}, where), measure("coord", {"delta_ms": 5}, where)
    assert few is not None
    assert many is not None
    faster = few._replace(mean_ms=many.mean_ms / 2)
    assert time_at([many, faster], many.rate) == faster.mean_ms
    assert time_at([many, few], few.rate / 2) is None
