"""How Hypothesis searches in this project, and which tests stay together when several processes share them.

`HYPOTHESIS_PROFILE=explore` looks for new failures with fresh randomness and more examples. The default draws the same
examples every time, so that a change is judged by itself and not by its luck.
"""

from __future__ import annotations

import os

import pytest
from hypothesis import settings

SHARE_A_FIXTURE = {
    "test_causal_runs.py",
    "test_checkers_bite.py",
    "test_compare.py",
    "test_examples.py",
    "test_repairs_bite.py",
    "test_savings.py",
}

# No deadline: the first example of a test may wait for the compiler.
settings.register_profile("steady", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=2000, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))


@pytest.hookimpl(tryfirst=True)  # before the groups are read
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep the tests of a file with a costly fixture in one process, and all that share one Spark."""
    for item in items:
        if item.get_closest_marker("spark"):
            item.add_marker(pytest.mark.xdist_group("spark"))
        elif item.path.name in SHARE_A_FIXTURE:
            item.add_marker(pytest.mark.xdist_group(item.path.name))
