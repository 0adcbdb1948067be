"""Compile everything once, so that later processes start at once.

What all protocols share is compiled first, then the rest on all cores at once: protocols that share no file share no
entry of the cache either, so one process for each such family cannot disturb the others. A fan-out of other processes
(a test run, a study) should find a warm cache; a lock lets one warming process compile while another waits for it.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from cubecast.core.compiled import COMPILED, cache_directory, compiler, protocol_sources, watch_compiler
from cubecast.core.registry import protocol_named, protocols
from cubecast.errors import LocalProtocolError
from cubecast.models.gossip_chain import GossipChain
from cubecast.sim.checkers import check_all
from cubecast.sim.simulate import simulate
from cubecast.trace import read_trace

Progress = Callable[[int, int, str], None]
"""Called with the pieces done, the pieces in all, and what is being compiled."""

CHECKERS, MODELS = "checkers", "models"
_FIRST = "coord"
"""Its run compiles the simulator, which all others find in the cache."""


def warm(progress: Progress | None = None) -> list[str]:
    """Compile what is not in the cache yet; returns the names of the functions that had to be.

    Each protocol is compiled with the layers it usually runs on. Other transports and failure detectors are compiled
    when they are first used: all combinations would take long.
    """
    with _alone():
        if _mark().is_file():
            return []
        _tell(progress, 0, "the simulator")
        compiled = compile_pieces([_FIRST])
        done = 1
        _tell(progress, done, "protocols")
        for pieces, names in _compile_apart(_families()):
            done += len(pieces)
            compiled += names
            _tell(progress, done, f"{', '.join(pieces)} done")
        _mark().parent.mkdir(parents=True, exist_ok=True)
        _mark().touch()
    return compiled


def everything() -> list[str]:
    """The names of all pieces."""
    return [*_protocol_names(), CHECKERS, MODELS]


def _protocol_names() -> list[str]:
    return [protocol.name for protocol in protocols()]


def _mark() -> Path:
    """A file that says: these sources are compiled."""
    return cache_directory(source for name in _protocol_names() for source in _sources(name)) / f"warm-{compiler()}"


def compile_pieces(pieces: Sequence[str]) -> list[str]:
    """Run each protocol once, as small as it goes, and whatever else is named; returns what had to be compiled."""
    with watch_compiler() as compiled:
        for piece in pieces:
            if piece == CHECKERS:
                _check_a_trace()
            elif piece == MODELS:
                _use_models()
            else:
                simulate(piece, members=4, network="chain", messages=1)
    return compiled


def _tell(progress: Progress | None, done: int, what: str) -> None:
    if progress is not None:
        progress(done, len(everything()), what)


def _families() -> list[list[str]]:
    """What shares a file comes together, as it must be compiled one after the other; the largest family first."""
    families: list[tuple[set[Path], list[str]]] = []
    for protocol in _protocol_names():
        sources, names = set(_sources(protocol)), [protocol]
        for family in [known for known in families if known[0] & sources]:
            families.remove(family)
            sources |= family[0]
            names = family[1] + names
        families.append((sources, names))
    rest = [[name for name in names if name != _FIRST] for _, names in families]
    return sorted([*(names for names in rest if names), [CHECKERS], [MODELS]], key=len, reverse=True)


def _sources(protocol: str) -> frozenset[Path]:
    module: ModuleType = sys.modules[protocol_named(protocol).state.__module__]
    return protocol_sources(Path(str(module.__file__)))


def _compile_apart(families: Sequence[Sequence[str]]) -> Iterator[tuple[Sequence[str], list[str]]]:
    """Each family in a process of its own, as many at once as there are cores."""
    if not COMPILED:
        return
    with ThreadPoolExecutor(os.cpu_count() or 1) as pool:
        waiting = {pool.submit(_compile_in_process, pieces): pieces for pieces in families}
        for ended in as_completed(waiting):
            yield waiting[ended], ended.result()


def _compile_in_process(pieces: Sequence[str]) -> list[str]:
    call = "print(json.dumps(compile_pieces(sys.argv[1:])))"
    program = f"import json, sys; from cubecast.sim.warm import compile_pieces; {call}"
    ended = subprocess.run([sys.executable, "-c", program, *pieces], capture_output=True, text=True, check=False)
    if ended.returncode != 0:
        raise LocalProtocolError(
            f"cannot compile {', '.join(pieces)}: {(ended.stderr.strip() or 'killed').splitlines()[-1]}"
        )
    names: list[str] = json.loads(ended.stdout.splitlines()[-1])
    return names


def _check_a_trace() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warm.parquet"
        simulate(_FIRST, members=4, network="chain", trace=path)
        check_all(read_trace(path))


def _use_models() -> None:
    chain = GossipChain(members=4)
    chain.distribution(2)
    chain.incomplete_course(2)
    chain.micro_steps_for(0.1)


@contextmanager
def _alone() -> Iterator[None]:
    """Hold the lock of the cache; a process that dies lets go of it."""
    lock = cache_directory().parent / "warming.lock"
    try:
        lock.parent.mkdir(parents=True, exist_ok=True)
        file = lock.open("w")
    except OSError as error:
        raise LocalProtocolError(
            f"cannot keep compiled code in {lock.parent}: {error.strerror}; set CUBECAST_CACHE_DIR to a writable folder"
        ) from error
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
