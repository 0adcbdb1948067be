"""A Spark session: started quietly, with the settings for a study or for checking traces."""

from __future__ import annotations

import logging
import os
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO
from urllib.parse import urlsplit

from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.extras import explain as explain_extra
from cubecast.lab.java import require_java
from cubecast.lab.remote import AnyPath
from cubecast.lab.spark.archive import use_archive
from cubecast.lab.spark.failures import explain, first_line
from cubecast.lab.spark.settings import connect_address, session_settings, spark_defaults

LOCAL = "local[*]"
PY4J_SENDER = "java_gateway"
"""The module of Py4J that sends commands to Java; it logs to the root logger."""
JAVA_EXIT_SECONDS = 2.0
"""How long after an error the Java that raised it may end."""
ANSWER_SECONDS = 10.0
CONNECT_PORT = 15002
STOP_SECONDS = 10.0
"""How long Spark may take to stop before Java is killed."""


@contextmanager
def session(
    master: str | None,
    *,
    heavy: bool = False,
    conf: dict[str, str] | None = None,
    meanwhile: Callable[[], None] = lambda: None,
    archive: str | None = None,
) -> Iterator[SparkSession]:
    """A Spark session on `master`, stopped at the end; `heavy` if Spark itself has to process much data.

    The default master is that of Spark's configuration, otherwise all cores of this machine. `conf` are Spark settings
    that take precedence over all others. `meanwhile` is called while Java starts. `archive` are Java's options for
    the archive of Spark's classes; the default uses it. Inside another session the other one is returned, whatever the
    master: a process has one Spark at a time.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_news)
    running = SparkSession.getActiveSession()
    if running is not None:
        meanwhile()
        yield running
        return
    theirs = spark_defaults() | (conf or {})
    if (address := connect_address(master, theirs)) is not None:
        meanwhile()
        yield from _connected(address, conf or {})
        return
    require_java()
    beside = threading.Thread(target=meanwhile, name="cubecast-meanwhile", daemon=True)
    beside.start()
    chosen = master or theirs.get("spark.master", LOCAL)
    settings = session_settings(
        theirs, master=chosen, heavy=heavy, archive=use_archive() if archive is None else archive
    )
    spark = _start(chosen, settings)
    try:
        beside.join()
        yield spark
    finally:
        _stop(spark)


def _connected(address: str, conf: dict[str, str]) -> Iterator[SparkSession]:
    """A session of a Spark Connect server, which has its own Java."""
    _require_answer(address)
    builder = SparkSession.builder.remote(address)
    for key, value in conf.items():
        builder = builder.config(key, value)
    try:
        spark = builder.getOrCreate()
    except ImportError as error:
        raise explain_extra(ModuleNotFoundError(name="grpc"), f"--master {address}") or error from None
    except PySparkException as error:
        raise LocalProtocolError(f"Spark does not answer at --master {address}: {first_line(error)}") from error
    try:
        yield spark
    finally:
        spark.stop()


def _require_answer(address: str) -> None:
    """Require that the server answers; Spark itself would try for ten minutes to reach it."""
    place = urlsplit(address)
    try:
        socket.create_connection((place.hostname or "", place.port or CONNECT_PORT), ANSWER_SECONDS).close()
    except (OSError, ValueError) as error:
        raise LocalProtocolError(f"Spark does not answer at --master {address}: {error}") from error


def _stop(spark: SparkSession) -> None:
    """End Spark; a Java that does not answer is killed, so that this process can end."""

    def stop() -> None:
        with suppress(Exception):  # of a Java that has ended already
            spark.stop()

    ending = threading.Thread(target=stop, name="cubecast-stop", daemon=True)
    ending.start()
    ending.join(STOP_SECONDS)
    java = _java()
    if ending.is_alive() and java is not None:
        java.kill()


def _java() -> subprocess.Popen[bytes] | None:
    """The Java that this process started, or None."""
    return getattr(SparkContext._gateway, "proc", None)


def java_exit() -> int | None:
    """The exit code of Java; None while it runs, or if it was not started from here."""
    java = _java()
    with suppress(subprocess.TimeoutExpired):
        return None if java is None else java.wait(JAVA_EXIT_SECONDS)
    return None


@contextmanager
def one_line(what: str, *, kept: AnyPath | None = None) -> Iterator[None]:
    """Turn a failure of Spark into an error of one line; `kept` is the folder of the finished results."""
    try:
        yield
    except CubecastError:
        raise
    except Exception as error:
        ended = java_exit()
        if ended is None and not isinstance(error, PySparkException | Py4JError):
            raise
        why = explain(error, java_exit=ended, folders=(kept,) if isinstance(kept, Path) else ())
        remains = "" if kept is None else f"; finished runs are kept in {kept}"
        raise LocalProtocolError(f"{what} stopped: {why}{remains}") from error


def _start(master: str, settings: dict[str, str]) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("cubecast").master(_with_retries(master))
    for key, value in settings.items():
        builder = builder.config(key, value)
    with _stderr_in_file() as said:
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            raise LocalProtocolError(f"Spark does not start on --master {master}: {_reason_in(said, error)}") from error
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _is_news(record: logging.LogRecord) -> bool:
    """Drop the page that Py4J logs when Ctrl-C interrupts a command to Java; the error itself is raised too."""
    return record.module != PY4J_SENDER


@contextmanager
def _stderr_in_file() -> Iterator[IO[bytes]]:
    """Start Java with a file as its stderr, so that output of Java and the workers does not reach the user."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _reason_in(said: IO[bytes], error: Exception) -> str:
    """Why Java did not start: the line of its output that says so, otherwise the error itself."""
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    causes = [line for line in lines if "Exception" in line or "Error" in line]
    return causes[-1].strip() if causes else first_line(error)


def _with_retries(master: str) -> str:
    """Let a local master try a failed task three times, as a cluster does; by default it gives up at once."""
    return master.replace("]", ",3]") if master.startswith("local[") and "," not in master else master
