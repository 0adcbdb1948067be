"""The reason of a failure on Spark, in one line.

Nothing is guessed from the text of Spark's messages. These sources decide, in this order:

| source | reason |
|---|---|
| a message that our code in a worker made (`reported`) | one of our errors, word by word |
| the exit code of Java | it ran out of memory (`ExitOnOutOfMemoryError`) or was killed |
| the classes in Java's chain of causes, their conditions and who threw them | no memory, cancelled, a worker died |
| the disk itself | it is full |
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException

from cubecast.errors import CubecastError
from cubecast.lab.spark.settings import DRIVER_MEMORY, MEMORY_VARIABLE

MARK = "cubecast-error "
"""Prefix of the message of a worker: JSON, in one line."""
JAVA_OUT_OF_MEMORY = 3
"""Exit code of Java when it runs out of memory, with `ExitOnOutOfMemoryError`."""
_FULL_DISK_BYTES = 1 << 20
_CANCELLED = "SPARK_JOB_CANCELLED"
_NO_MEMORY = "java.lang.OutOfMemoryError"
_PIPE_ENDED = "java.io.EOFException"
_FRAMES = 8
_STARTS_WORKERS = "org.apache.spark.api.python.PythonWorkerFactory"
NO_WORKERS = "workers do not start, probably because of too little memory; use fewer cores (--master local[1])"
WORKER_DIED = (
    "a worker died repeatedly, probably because of too little memory; "
    "use fewer cores (--master local[1]) or fewer members"
)


class WorkerError(Exception):
    """One of our errors on its way from a worker to the driver; Spark transfers only its text."""


class Cause(NamedTuple):
    """One exception in Java's chain of causes."""

    kind: str
    condition: str | None
    thrown_in: tuple[str, ...]
    """The classes whose code threw it, the innermost first."""
    message: str


@contextmanager
def reported() -> Iterator[None]:
    """In a worker: let one of our errors reach the driver unchanged."""
    try:
        yield
    except CubecastError as error:
        raise WorkerError(MARK + json.dumps({"kind": type(error).__name__, "message": str(error)})) from None


def reported_message(error: BaseException) -> str | None:
    """The message of our code in a worker, extracted from Spark's text."""
    text = str(error)
    place = text.find(MARK)
    if place < 0:
        return None
    found, _ = json.JSONDecoder().raw_decode(text, place + len(MARK))
    return str(found["message"])


def explain(error: Exception, *, java_exit: int | None, folders: tuple[Path, ...] = ()) -> str:
    """The reason of a failure; `folders` are those that were written to."""
    said = reported_message(error)
    if said is not None:
        return said
    causes = list(java_causes(error))
    kinds = {cause.kind for cause in causes}
    if java_exit == JAVA_OUT_OF_MEMORY or _NO_MEMORY in kinds:
        memory = os.environ.get(MEMORY_VARIABLE, DRIVER_MEMORY)
        return f"Spark ran out of memory; set {MEMORY_VARIABLE} above {memory}"
    if java_exit is not None:
        return f"Java ended with exit code {java_exit}"
    if _CANCELLED in {cause.condition for cause in causes}:
        return "it was cancelled"
    if any(is_full(folder) for folder in folders):
        return "the disk is full; free disk space and run the study again"
    if _PIPE_ENDED in kinds:
        return WORKER_DIED
    if any(name.startswith(_STARTS_WORKERS) for cause in causes for name in cause.thrown_in):
        return NO_WORKERS
    return _innermost(causes) or first_line(error)


def java_causes(error: Exception) -> Iterator[Cause]:
    """Java's chain of causes, the outermost first; empty if the error is not Java's."""
    one = error.java_exception if isinstance(error, Py4JJavaError) else getattr(error, "_origin", None)
    while one is not None:
        kind = str(one.getClass().getName())
        thrown_in = tuple(str(frame.getClassName()) for frame in list(one.getStackTrace())[:_FRAMES])
        yield Cause(kind, _condition(one), thrown_in, str(one.getMessage() or ""))
        one = one.getCause()


def _condition(one: Any) -> str | None:
    """Spark's name for this kind of error, if it has one."""
    try:
        return None if one.getCondition() is None else str(one.getCondition())
    except Exception:  # Py4J has no way to ask whether a Java object has a method
        return None


def is_full(folder: Path) -> bool:
    """Is the disk full? Tested by writing a file."""
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            os.posix_fallocate(file.fileno(), 0, _FULL_DISK_BYTES)
    except OSError as error:
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    return False


def _innermost(causes: list[Cause]) -> str | None:
    """The innermost cause, with its class, for the user to search for."""
    if not causes:
        return None
    cause = causes[-1]
    line = next((line.strip() for line in cause.message.splitlines() if line.strip()), "")
    return f"{cause.kind}: {line}" if line else cause.kind


def first_line(error: Exception) -> str:
    """The first line of an error that is not empty."""
    text = error.getMessage() if isinstance(error, PySparkException) else None
    return next((line.strip() for line in (text or str(error)).splitlines() if line.strip()), type(error).__name__)
