"""Fixtures of the live tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cubecast.live.warm import warm
from tests.live.harness import Troupe


@pytest.fixture(scope="session", autouse=True)
def _compiled_once() -> None:
    """Processes that start together on a cold cache would all compile."""
    warm()


@pytest.fixture
def troupe(tmp_path: Path) -> Iterator[Callable[..., Troupe]]:
    """Start a group of processes; they are gone when the test ends."""
    started: list[Troupe] = []

    def start(members: int, **options: Any) -> Troupe:
        started.append(Troupe(tmp_path, members, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()
