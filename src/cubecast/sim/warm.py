"""Compile everything once, so that later processes start at once.

A cold cache filled by several processes at the same time can disturb them, so a fan-out (a test run, a study) warms it
first. A lock lets one process compile while another waits for it.
"""

from __future__ import annotations

import fcntl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from cubecast.core.compiled import cache_directory, watch_compiler
from cubecast.core.registry import protocols
from cubecast.errors import LocalProtocolError
from cubecast.models.gossip_chain import GossipChain
from cubecast.sim.checkers import check_all
from cubecast.sim.simulate import simulate
from cubecast.trace import read_trace

Progress = Callable[[int, int, str], None]
"""Called before each piece of work with the pieces done, the pieces in all, and what is next."""


class _Piece(NamedTuple):
    name: str
    do: Callable[[], None]


def warm(progress: Progress | None = None) -> list[str]:
    """Compile what is not in the cache yet; returns the names of the functions that had to be."""
    pieces = _pieces()
    with _alone(), watch_compiler() as compiled:
        for done, piece in enumerate(pieces):
            if progress is not None:
                progress(done, len(pieces), piece.name)
            piece.do()
    return compiled


def _pieces() -> list[_Piece]:
    """Each protocol with the layers it usually runs on, then what else is compiled.

    Other transports and failure detectors are compiled when they are first used: all combinations would take long.
    """
    pieces = []
    for protocol in protocols():
        if not protocol.carries_data:
            pieces.append(_Piece(protocol.title, _run_of(protocol.name, messages=0)))
        pieces.append(_Piece(f"{protocol.title} under data traffic", _run_of(protocol.name, messages=1)))
    return [*pieces, _Piece("checkers", _check_a_trace), _Piece("models", _use_models)]


def _run_of(protocol: str, *, messages: int) -> Callable[[], None]:
    def run() -> None:
        simulate(protocol, members=4, network="chain", messages=messages)

    return run


def _check_a_trace() -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "warm.parquet"
        simulate("coord", members=4, network="chain", trace=path)
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
