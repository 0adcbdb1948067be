"""The advisor on Spark: the same answer as in one process, and what one of them simulated the other finds done."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from cubecast.lab import advise
from cubecast.lab.store import Store

pytestmark = [pytest.mark.spark]

ASKED: dict[str, Any] = {
    "members": 12,
    "network": "random:degree=3",
    "senders": 4,
    "rate": 50,
    "protocols": ["coord", "dissemination"],
    "budget": "40kb/s",
}


def test_spark_gives_the_answer_of_one_process_and_shares_its_runs(tmp_path: Path, spark: Any) -> None:
    assert spark is not None
    here, there = tmp_path / "here", tmp_path / "there"
    advise(**ASKED, out=here)
    done: list[int] = []
    advise(**ASKED, out=there, spark=True, master="local[2]", progress=lambda count, _: done.append(count))
    for name in ("advice.json", "plan.toml"):
        assert (here / name).read_bytes() == (there / name).read_bytes()
    assert done
    files = set(Store(there).runs.glob("*.parquet"))
    advise(**ASKED, out=there)
    assert set(Store(there).runs.glob("*.parquet")) == files
