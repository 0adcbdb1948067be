"""One Java for the whole test session: Spark keeps it when a session is stopped, and the next one takes it over."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.java import require_java
from cubecast.lab.load_plan import load_plan
from cubecast.lab.store import Store
from cubecast.lab.study import Outcome, run_studies

PLAN = """\
id = "small"
paper = "own"
title = "a small study"
protocols = ["coord", "cube_full_dist"]
[fixed]
network = "random:degree=3"
{fixed}
[sweep]
members = [8, 16, 24]
[quick]
repeats = 4
[full]
repeats = 5
[[figure]]
id = "1"
title = "RTT"
x = "members"
y = "rtt_last_ms"
[[claim]]
id = "more"
text = "CubeFullDist sends more."
source = "here"
figures = ["1"]
[[claim.test]]
kind = "ratio"
metric = "messages"
top = {{ protocol = "cube_full_dist" }}
bottom = {{ protocol = "coord" }}
above = 1.0
"""

Study = Callable[..., Outcome]


@pytest.fixture(scope="session", autouse=True)
def java() -> None:
    """Spark tests need Java; `make test` sees to it."""
    pytest.importorskip("pyspark")
    try:
        require_java()
    except LocalProtocolError as error:
        pytest.skip(str(error))


@pytest.fixture
def study(tmp_path: Path) -> Study:
    """Run the small study into a folder; says what it was told through `said`."""

    def run(out: Path | str = "out", *, fixed: str = "", said: list[str] | None = None, **how: object) -> Outcome:
        path = tmp_path / "small.toml"
        path.write_text(PLAN.format(fixed=fixed))
        return run_studies(
            [load_plan(path)],
            "quick",
            Store(tmp_path / out),
            master="local[2]",
            progress=lambda _done, _total: None,
            say=(said if said is not None else []).append,
            **how,  # type: ignore[arg-type]
        )

    return run
