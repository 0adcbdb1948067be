"""Compile many pieces on all cores at once, each worker a process of its own.

A *piece* is something of a module that its function `compile_piece(name)` compiles. Pieces of the same sources share
a directory of the cache, where two writers would disturb each other: they go to one worker, one after the other.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from importlib import import_module
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from cubecast.errors import LocalProtocolError
from cubecast.jit.decorators import watch_compiler


class Piece(NamedTuple):
    """A unit that can be compiled by itself."""

    module: str
    name: str
    sources: frozenset[Path] = frozenset()
    """The protocol files that are compiled with it."""


def compile_apart(pieces: Sequence[Piece]) -> Iterator[tuple[list[Piece], list[str]]]:
    """Compile the pieces in order; yields those that are done, and which functions had to be compiled."""
    families = _families(pieces)
    workers: SimpleQueue[_Worker] = SimpleQueue()
    count = min(os.cpu_count() or 1, len(families))
    started = [_Worker() for _ in range(count)]
    try:
        for worker in started:
            workers.put(worker)
        with ThreadPoolExecutor(count) as pool:
            waiting = {pool.submit(_compile, workers, family): family for family in families}
            for ended in as_completed(waiting):
                yield waiting[ended], ended.result()
    finally:
        for worker in started:
            worker.stop()


def _families(pieces: Sequence[Piece]) -> list[list[Piece]]:
    families: dict[tuple[str, frozenset[Path]], list[Piece]] = {}
    for piece in pieces:
        alone = "" if piece.sources else piece.name
        families.setdefault((alone, piece.sources), []).append(piece)
    return list(families.values())


def _compile(workers: SimpleQueue[_Worker], family: Sequence[Piece]) -> list[str]:
    worker = workers.get()
    try:
        return [name for piece in family for name in worker.compile(piece)]
    finally:
        workers.put(worker)


class _Worker:
    """Another process that compiles one piece after the other."""

    def __init__(self) -> None:
        program = "from cubecast.jit.compile_apart import work; work()"
        self._process = subprocess.Popen(
            [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def compile(self, piece: Piece) -> list[str]:
        """Compile a piece; returns the functions that had to be compiled."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([piece.module, piece.name]), file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline()
        if not answer:
            raise LocalProtocolError(f"cannot compile {piece.name}: its process ended with {self._process.wait()}")
        names: list[str] = json.loads(answer)
        return names

    def stop(self) -> None:
        """End the process, whatever it is doing."""
        self._process.kill()
        self._process.wait()


def work() -> None:
    """Compile the pieces named on the lines of standard input, and answer each."""
    gc.disable()  # the compiler makes millions of objects and few cycles; the process ends soon
    for line in sys.stdin:
        module, name = json.loads(line)
        print(json.dumps(compile_here(module, name)), flush=True)


def compile_here(module: str, name: str) -> list[str]:
    """Compile a piece in this process; returns the functions that had to be compiled."""
    with watch_compiler() as compiled:
        import_module(module).compile_piece(name)
    return compiled
