"""`cubecast warm`: compile all functions once, and speed up the start of Java."""

from __future__ import annotations

import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from cubecast.cli.output import JsonOption, print_json, waiting
from cubecast.errors import LocalProtocolError

if TYPE_CHECKING:
    from cubecast.jit.compile_apart import Piece


def warm(json: JsonOption = False) -> None:
    """Compile all protocols and checkers, so that later runs start immediately.

    Compiled code is cached in ~/.cache/cubecast, or in $CUBECAST_CACHE_DIR, and compiled
    again when its sources change. Warm the cache before several processes share it.
    If Spark and Java are available, the command also archives Spark's classes (190 MB):
    studies then start in half the time.
    """
    from cubecast.jit.backend import COMPILED
    from cubecast.jit.sources import code_root

    began = time.perf_counter()
    with waiting("checking the cache") as step:
        compiled = _compile(lambda done, total, what: step(done, total, f"compiling {what}"))
        seconds = time.perf_counter() - began
        step(1, 1, "archiving Spark's classes")
        archive = _warm_spark()
    place = code_root()
    if json:
        made = None if archive is None else str(archive)
        print_json({"compiled": len(compiled), "archive": made, "seconds": seconds, "cache": str(place)})
        return
    if not COMPILED:
        print("nothing to compile: functions run as plain Python (pip install 'cubecast[fast]' for the compiler)")
    elif compiled:
        print(f"compiled {len(compiled)} functions in {seconds:.1f} s, cached in {place}")
    else:
        print(f"nothing to compile: all functions are cached in {place}")
    if archive is not None:
        print(f"Spark's classes are archived in {archive}")


def _warm_spark() -> Path | None:
    """The archive of Spark's classes, if it was created; None otherwise, or without PySpark or a suitable Java."""
    if find_spec("pyspark") is None:
        return None
    from cubecast.lab.java import require_java
    from cubecast.lab.spark.warm import make_archive

    try:
        require_java()
    except LocalProtocolError:
        return None  # `study run` reports what is wrong with Java
    return make_archive()


def _compile(progress: Callable[[int, int, str], None]) -> list[str]:
    """Compile what is not in the cache; without the simulator's libraries, only the functions of a live member."""
    if find_spec("scipy") is not None and find_spec("pyarrow") is not None:
        from cubecast.sim.warm import warm

        return warm(progress, _live_pieces())
    from cubecast.jit.decorators import watch_compiler
    from cubecast.live.warm import MEMBER
    from cubecast.live.warm import warm as warm_member

    progress(0, 1, MEMBER)
    with watch_compiler() as names:
        warm_member()
    return names


def _live_pieces() -> list[Piece]:
    """The functions that a live member calls."""
    from cubecast.jit.compile_apart import Piece
    from cubecast.jit.sources import sources_of_class
    from cubecast.live import warm

    sources = [sources_of_class(state) for state in warm.states()]
    return [Piece(warm.__name__, warm.MEMBER, frozenset().union(*sources))]
