"""`cubecast warm`: compile everything once."""

from __future__ import annotations

import time

from cubecast.cli.output import JsonOption, print_json, waiting


def warm(json: JsonOption = False) -> None:
    """Compile every protocol and the checkers, so that later runs start at once.

    Compiled code is kept in ~/.cache/cubecast, or in $CUBECAST_CACHE_DIR, and made
    again when its sources change. Warm the cache before several processes share it.
    """
    from cubecast.core.compiled import cache_directory
    from cubecast.sim.warm import warm as run

    began = time.perf_counter()
    with waiting("looking at what is compiled") as step:
        compiled = run(lambda done, total, what: step(done, total, f"compiling, once: {what}"))
        step(1, 1, "compiling, once: the live member")
        compiled += _warm_live()
    seconds = time.perf_counter() - began
    place = cache_directory().parent
    if json:
        print_json({"compiled": len(compiled), "seconds": seconds, "cache": str(place)})
    elif compiled:
        print(f"compiled {len(compiled)} functions in {seconds:.1f} s; they are kept in {place}")
    else:
        print(f"nothing to compile: all is in {place}")


def _warm_live() -> list[str]:
    """What a live member calls; nothing where the packages it needs are not installed."""
    from importlib.util import find_spec

    from cubecast.core.compiled import watch_compiler

    if find_spec("msgspec") is None:
        return []
    from cubecast.live.warm import warm as run

    with watch_compiler() as compiled:
        run()
    return compiled
