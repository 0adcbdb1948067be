"""`cubecast warm`: compile everything once, and speed up the start of Java."""

from __future__ import annotations

import time
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cubecast.cli.output import JsonOption, print_json, waiting
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cubecast.jit.compile_apart import Piece


def warm(json: JsonOption = False) -> None:
    """Compile every protocol and the checkers, so that later runs start at once.

    Compiled code is cached in ~/.cache/cubecast, or in $CUBECAST_CACHE_DIR, and compiled
    again when its sources change. Warm the cache before several processes share it.
    Where there are Spark and Java, an archive of Spark's classes is made too (190 MB):
    studies then start in half the time.
    """
    from cubecast.jit.sources import code_root
    from cubecast.sim.warm import warm as run

    began = time.perf_counter()
    with waiting("checking what is compiled") as step:
        compiled = run(lambda done, total, what: step(done, total, f"compiling, once: {what}"), _live_pieces())
        seconds = time.perf_counter() - began
        step(1, 1, "archiving, once: Spark's classes")
        archive = _warm_spark()
    place = code_root()
    if json:
        made = None if archive is None else str(archive)
        print_json({"compiled": len(compiled), "archive": made, "seconds": seconds, "cache": str(place)})
        return
    if compiled:
        print(f"compiled {len(compiled)} functions in {seconds:.1f} s; they are cached in {place}")
    else:
        print(f"nothing to compile: everything is in {place}")
    if archive is not None:
        print(f"Spark's classes are archived in {archive}")


def _warm_spark() -> Path | None:
    """The archive of Spark's classes, if it had to be made; None without PySpark or a suitable Java."""
    if find_spec("pyspark") is None:
        return None
    from cubecast.lab.java import require_java
    from cubecast.lab.spark.warm import make_archive

    try:
        require_java()
    except LocalProtocolError:
        return None  # running a study reports what is wrong with Java
    return make_archive()


def _live_pieces() -> list[Piece]:
    """The functions that a live member calls; none where the packages it needs are not installed."""
    if find_spec("msgspec") is None:
        return []
    from cubecast.jit.compile_apart import Piece
    from cubecast.jit.sources import sources_of_class
    from cubecast.live import warm

    sources = [sources_of_class(state) for state in warm.states()]
    return [Piece(warm.__name__, warm.MEMBER, frozenset().union(*sources))]
