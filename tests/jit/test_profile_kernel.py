"""The names of compiled functions that the benchmark writes for perf."""

from __future__ import annotations

import gc
from itertools import pairwise
from pathlib import Path

import pytest

from bench.profile_kernel import write_names
from cubecast.jit.backend import COMPILED
from cubecast.sim.simulate import simulate


@pytest.mark.skipif(not COMPILED, reason="nothing is compiled with CUBECAST_JIT=off")
def test_the_event_loop_and_the_handlers_have_names(tmp_path: Path) -> None:
    simulate("coord", members=4, network="star")
    gc.freeze()  # as a live member does
    write_names(tmp_path / "perf.map")
    lines = [line.split(" ", 2) for line in (tmp_path / "perf.map").read_text("utf-8").splitlines()]
    assert {"cubecast.sim.kernel.run", "cubecast.protocol.bound.act"} <= {name for _, _, name in lines}
    places = [(int(start, 16), int(size, 16)) for start, size, _ in lines]
    assert all(start + size <= following for (start, size), (following, _) in pairwise(places))
