"""The report in a real browser, without a network: every chart is drawn."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from cubecast.lab.report import write_report
from cubecast.lab.store import Store
from cubecast.lab.study import StudyOutcome
from tests.support.browser import needs_browser, show

pytestmark = [pytest.mark.spark, pytest.mark.browser]


def _store(folder: Path) -> Store:
    store = Store(folder / "out")
    store.make()
    return store


@needs_browser
def test_every_chart_is_drawn_without_a_network(first: tuple[StudyOutcome, Path], tmp_path: Path) -> None:
    page = write_report(first[0], _store(tmp_path))
    told = show(page.as_uri(), tmp_path)
    assert re.search(r'<body data-drawn="1"', told)
    assert re.search(r'<p id="trouble" hidden=""', told)
    assert told.count('aria-roledescription="point"') == 3 * 3, "each protocol, and the lower bound, at each size"
    assert "CubeFullDist sends more." in told
    assert 'class="yes">holds everywhere' in told
    assert page.stat().st_size < 3_000_000
    for ending in ("png", "svg"):
        assert (tmp_path / "out" / "figures" / f"small-fig-1.{ending}").stat().st_size > 1000


def test_the_page_asks_nothing_of_the_network(first: tuple[StudyOutcome, Path], tmp_path: Path) -> None:
    page = write_report(first[0], _store(tmp_path), pictures=False).read_text()
    assert not re.findall(r"""(?:src|href)=["']https?://""", page)
