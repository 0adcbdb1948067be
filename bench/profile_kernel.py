"""Profile compiled code with Linux `perf`, which by itself shows it as addresses without names.

    perf record python bench/profile_kernel.py cube_full_dist --members 500 --rounds 200
    perf report

The arguments are those of `cubecast simulate`. At the end of the run the names of all entry points are written to
`/tmp/perf-PID.map`, where `perf report` looks for them. Functions that are linked or inlined into an entry point count
as part of it: `sim.kernel.run` is the event loop with links and queues, `protocol.bound.act` the handlers of a
protocol. Compiled code that the cache lacks is compiled first, so run `cubecast warm` before.
"""

from __future__ import annotations

import gc
import os
import sys
from pathlib import Path
from typing import Any

from cubecast.cli.app import run
from cubecast.jit.backend import COMPILED
from cubecast.sim import kernel

SIZE_MAX = 1 << 20
"""The last function of a block of memory counts as this large, in bytes."""


def entry_points() -> dict[int, str]:
    """The compiled functions of this process: their names by address."""
    found = {}
    kind: Any = type(kernel.run)
    gc.unfreeze()  # `get_objects` does not list what a live member of this process has frozen
    for function in gc.get_objects():
        if type(function) is not kind:
            continue
        for made in function.overloads.values():
            place = f"{function.py_func.__module__}.{function.py_func.__qualname__}"
            inner, wrappers = made.fndesc.llvm_func_name, made.fndesc.llvm_cfunc_wrapper_name
            found[made.library.get_pointer_to_function(inner)] = place
            found[made.library.get_pointer_to_function(wrappers)] = f"{place} (wrapper)"
    return {address: name for address, name in found.items() if address}


def write_names(path: Path) -> None:
    """Write start, size and name of each function. Sizes are not known: a function ends where the next one begins."""
    found = entry_points()
    starts = sorted(found)
    ends = [*starts[1:], sys.maxsize]
    lines = [
        f"{start:x} {min(end - start, SIZE_MAX):x} {found[start]}" for start, end in zip(starts, ends, strict=True)
    ]
    path.write_text("\n".join(lines) + "\n", "utf-8")


def main() -> int:
    """Simulate, then write the names."""
    if not COMPILED:
        sys.exit("nothing is compiled: unset CUBECAST_JIT, or install numba")
    status = run(["simulate", *sys.argv[1:]])
    write_names(Path(f"/tmp/perf-{os.getpid()}.map"))
    return status


if __name__ == "__main__":
    sys.exit(main())
