"""`cubecast warm`: compile everything once."""

from __future__ import annotations

import time
from importlib.util import find_spec
from typing import TYPE_CHECKING

from cubecast.cli.output import JsonOption, print_json, waiting

if TYPE_CHECKING:
    from cubecast.sim.compile_apart import Piece


def warm(json: JsonOption = False) -> None:
    """Compile every protocol and the checkers, so that later runs start at once.

    Compiled code is kept in ~/.cache/cubecast, or in $CUBECAST_CACHE_DIR, and made
    again when its sources change. Warm the cache before several processes share it.
    """
    from cubecast.core.compiled import cache_directory
    from cubecast.sim.warm import warm as run

    began = time.perf_counter()
    with waiting("looking at what is compiled") as step:
        compiled = run(lambda done, total, what: step(done, total, f"compiling, once: {what}"), _live_pieces())
    seconds = time.perf_counter() - began
    place = cache_directory().parent
    if json:
        print_json({"compiled": len(compiled), "seconds": seconds, "cache": str(place)})
    elif compiled:
        print(f"compiled {len(compiled)} functions in {seconds:.1f} s; they are kept in {place}")
    else:
        print(f"nothing to compile: all is in {place}")


def _live_pieces() -> list[Piece]:
    """What a live member calls; nothing where the packages it needs are not installed."""
    if find_spec("msgspec") is None:
        return []
    from cubecast.core.compiled import state_sources
    from cubecast.live import warm
    from cubecast.sim.compile_apart import Piece

    sources = [state_sources(state) for state in warm.states()]
    return [Piece(warm.__name__, warm.MEMBER, frozenset().union(*sources))]
