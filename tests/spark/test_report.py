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
    page = Path(str(write_report(first[0], _store(tmp_path))))
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


@needs_browser
def test_nothing_is_wider_than_a_phone(first: tuple[StudyOutcome, Path], tmp_path: Path) -> None:
    page = Path(str(write_report(first[0], _store(tmp_path), pictures=False)))
    probe = (
        "<script>setInterval(() => { if (document.body.dataset.drawn) "
        "document.title = document.documentElement.scrollWidth }, 100)</script></body>"
    )
    before, _, after = page.read_text().rpartition("</body>")
    page.write_text(before + probe + after)
    frame = page.with_name("frame.html")
    frame.write_text(
        '<iframe id="f" src="index.html" width="390" height="800"></iframe><script>setInterval(() => {'
        'document.body.dataset.wide = document.getElementById("f").contentDocument.title }, 100)</script>'
    )
    told = show(frame.as_uri(), tmp_path, words=("--allow-file-access-from-files", "--dump-dom"))
    width = re.search(r'data-wide="(\d+)"', told)
    assert width is not None
    assert int(width[1]) <= 390
