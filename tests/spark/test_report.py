"""The report in a real browser, without a network: every chart is drawn."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from cubecast.lab.report import write_report
from cubecast.lab.store import Store
from cubecast.lab.study import Outcome

pytestmark = [pytest.mark.spark, pytest.mark.browser]

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
OFFLINE = ["--headless", "--no-sandbox", "--disable-gpu", "--proxy-server=127.0.0.1:9", "--virtual-time-budget=30000"]


def _store(folder: Path) -> Store:
    store = Store(folder / "out")
    store.make()
    return store


@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
def test_every_chart_is_drawn_without_a_network(first: tuple[Outcome, Path], tmp_path: Path) -> None:
    page = write_report(first[0], _store(tmp_path))
    assert CHROMIUM is not None
    told = subprocess.run(
        [CHROMIUM, *OFFLINE, f"--user-data-dir={tmp_path / 'browser'}", "--dump-dom", page.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert re.search(r'<body data-drawn="1"', told.stdout)
    assert re.search(r'<p id="trouble" hidden=""', told.stdout)
    assert "CubeFullDist sends more." in told.stdout
    assert 'class="yes">confirmed' in told.stdout
    assert page.stat().st_size < 3_000_000
    for ending in ("png", "svg"):
        assert (tmp_path / "out" / "figures" / f"small-fig-1.{ending}").stat().st_size > 1000


def test_the_page_asks_nothing_of_the_network(first: tuple[Outcome, Path], tmp_path: Path) -> None:
    page = write_report(first[0], _store(tmp_path), pictures=False).read_text()
    assert not re.findall(r"""(?:src|href)=["']https?://""", page)
