"""Fixtures of the tests of the adapters."""

from __future__ import annotations

import pytest

from cubecast.live.warm import warm


@pytest.fixture(scope="session", autouse=True)
def _compiled_once() -> None:
    """Processes that start together on a cold cache would all compile."""
    warm()
