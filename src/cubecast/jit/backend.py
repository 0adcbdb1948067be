"""Whether functions are compiled here, and how far Numba's internals can be relied on.

Two things go beyond Numba's public interface: `linking` puts code libraries of its own into Numba's pipeline, and
`tables` lays arrays out in memory as Numba does. Both work with the tested versions (pyproject.toml); with any
version a self-test tries them once per compiler and keeps its verdict beside the compiled code:

| verdict   | meaning                                                                                  |
|-----------|------------------------------------------------------------------------------------------|
| `linked`  | everything works                                                                         |
| `plain`   | linking fails: functions are compiled by Numba's own pipeline, slower to compile         |
| `off`     | the array layout is not the expected one: nothing is compiled, functions run in Python   |

`CUBECAST_JIT=off` switches compilation off, `CUBECAST_JIT=plain` chooses the second line; neither runs the test.
"""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

from cubecast.jit.sources import code_root

LINKED, PLAIN, OFF = "linked", "plain", "off"
_SELF_TEST_SECONDS_MAX = 300


@cache
def compiler() -> str:
    """The compiler and the processor; code compiled for one cannot be used by another."""
    if not COMPILED:
        return f"{sys.implementation.cache_tag}-python"
    from llvmlite.binding import get_host_cpu_name

    return f"{_versions()}-{get_host_cpu_name()}-{BACKEND}"


def _versions() -> str:
    return f"{sys.implementation.cache_tag}-numba-{version('numba')}-llvmlite-{version('llvmlite')}"


def _choose() -> str:
    wish = os.environ.get("CUBECAST_JIT", "on").lower()
    if wish in {"off", "0", "no", "false"}:
        return OFF
    if wish in {PLAIN, LINKED}:
        return wish
    if find_spec("numba") is None:
        return OFF
    place = code_root() / f"self-test-{_versions()}"
    return _read(place) or _test(place)


def _read(place: Path) -> str:
    try:
        verdict = place.read_text("utf-8").strip()
    except OSError:
        return ""
    return verdict if verdict in (LINKED, PLAIN, OFF) else ""


def _test(place: Path) -> str:
    """Try both in separate processes: a wrong layout may crash the process that uses it."""
    verdict = next((wish for wish in (LINKED, PLAIN) if _passes(wish)), OFF)
    if verdict != LINKED:
        became = "compiled by Numba's own pipeline" if verdict == PLAIN else "not compiled"
        warnings.warn(
            f"the compiler's self-test failed with {_versions()}: functions are {became}; install a tested version of "
            "Numba (see pyproject.toml)",
            RuntimeWarning,
            stacklevel=2,
        )
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        partial = place.with_name(f"{place.name}.{os.getpid()}")
        partial.write_text(verdict, "utf-8")
        partial.replace(place)
    except OSError:
        pass  # a cache that cannot be written: the next process tests again
    return verdict


def _passes(wish: str) -> bool:
    environment = os.environ | {"CUBECAST_JIT": wish}
    command = [sys.executable, "-c", "from cubecast.jit.self_test import main; main()"]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, timeout=_SELF_TEST_SECONDS_MAX, check=False
        )
    except subprocess.TimeoutExpired:
        return False
    return done.returncode == 0


BACKEND = _choose()
COMPILED = BACKEND != OFF
"""Whether functions are compiled. Decided once, before the first decorator runs."""
LINKS_CODE = BACKEND == LINKED
