"""A headless browser without a network, for pages that must need none."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine")
_OFFLINE = ["--headless", "--no-sandbox", "--disable-gpu", "--proxy-server=127.0.0.1:9"]


def show(address: str, folder: Path, *, time_ms: int = 30_000, words: tuple[str, ...] = ("--dump-dom",)) -> str:
    """The page as it is after that much of its own time; only addresses of this machine can be reached."""
    assert CHROMIUM is not None
    options = [*_OFFLINE, f"--virtual-time-budget={time_ms}", f"--user-data-dir={folder / 'browser'}"]
    return subprocess.run(
        [CHROMIUM, *options, *words, address], capture_output=True, text=True, timeout=120, check=True
    ).stdout
