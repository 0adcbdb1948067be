"""The versions of requirements.lock."""

from __future__ import annotations

import re
from pathlib import Path

LOCK = Path(__file__).parents[2] / "requirements.lock"


def write_constraints(file: Path) -> Path:
    """Write the locked versions, without their hashes, as constraints for pip."""
    pins = re.findall(r"^[\w.-]+==.*?(?= \\$)", LOCK.read_text("utf-8"), re.MULTILINE)
    assert pins
    file.write_text("\n".join(pins), "utf-8")
    return file
