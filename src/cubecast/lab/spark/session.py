"""A Spark session: started quietly, with the settings that a study or a pass over traces wants."""

from __future__ import annotations

import logging
import os
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from cubecast.errors import LocalProtocolError
from cubecast.lab.java import require_java
from cubecast.lab.spark.archive import use_archive

DRIVER_MEMORY = "2g"
_LOG4J = Path(__file__).parents[1] / "log4j2.properties"
_LOGGING = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
# The heavy work is in Python: a quick start matters more than Java at its fastest.
QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# The work is in Python and the tables are small: compiling SQL to Java costs more than it saves.
_NO_CODE_GENERATION = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_PACKAGE_ROOT = Path(__file__).resolve().parents[3]


@contextmanager
def session(
    master: str,
    *,
    heavy: bool = False,
    meanwhile: Callable[[], None] = lambda: None,
    archive: str | None = None,
) -> Iterator[SparkSession]:
    """A Spark session on `master`, stopped at the end; `heavy` when Spark itself has much data to go through.

    While Java starts, `meanwhile` is done here. `archive` is what Java is told of the archive of Spark's classes, by
    default to use it. Inside another session it is that other one, whatever the master: a process has one Spark at a
    time.
    """
    logging.getLogger("py4j").setLevel(logging.CRITICAL)
    logging.getLogger().addFilter(_is_news)
    running = SparkSession.getActiveSession()
    if running is not None:
        meanwhile()
        yield running
        return
    require_java()
    beside = threading.Thread(target=meanwhile, name="cubecast-meanwhile", daemon=True)
    beside.start()
    spark = _start(master, heavy=heavy, archive=use_archive() if archive is None else archive)
    try:
        beside.join()
        yield spark
    finally:
        spark.stop()


def _start(master: str, *, heavy: bool, archive: str) -> SparkSession:
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    builder = SparkSession.builder.appName("cubecast").master(_with_retries(master))
    for key, value in _settings(heavy, archive if heavy else f"{QUICK_START} {archive}").items():
        builder = builder.config(key, value)
    with _stderr_in_file() as said:
        try:
            spark = builder.getOrCreate()
        except Exception as error:
            raise LocalProtocolError(f"Spark does not start on --master {master}: {_told(said, error)}") from error
    spark.sparkContext.setLogLevel("OFF")
    return spark


def _is_news(record: logging.LogRecord) -> bool:
    """Py4J logs a page when a command to Java is cut short by Ctrl-C; the error itself is raised too."""
    return not str(record.msg).startswith("Exception while sending command")


@contextmanager
def _stderr_in_file() -> Iterator[IO[bytes]]:
    """Java keeps the stderr it is started with; what it and the workers say there goes to a file, not to the user."""
    with tempfile.TemporaryFile() as file:
        kept = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            yield file
        finally:
            os.dup2(kept, 2)
            os.close(kept)


def _told(said: IO[bytes], error: Exception) -> str:
    """Why Java did not come up: the line of its own that says so, otherwise the error itself."""
    said.seek(0)
    lines = said.read().decode(errors="replace").splitlines()
    causes = [line for line in lines if "Exception" in line or "Error" in line]
    return causes[-1].strip() if causes else first_line(error)


def _with_retries(master: str) -> str:
    """A local master gives up at the first failure of a task; let it try three times, as a cluster does."""
    return master.replace("]", ",3]") if master.startswith("local[") and "," not in master else master


def _settings(heavy: bool, java_options: str) -> dict[str, str]:
    settings = {
        "spark.driver.memory": os.environ.get("CUBECAST_SPARK_MEMORY", DRIVER_MEMORY),
        "spark.driver.extraJavaOptions": f"{_LOGGING} {java_options}",
        "spark.executor.extraJavaOptions": java_options,
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.autoBroadcastJoinThreshold": "256m",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.session.timeZone": "UTC",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(
            [str(_PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }
    if not heavy:
        settings |= _NO_CODE_GENERATION
    cache = os.environ.get("CUBECAST_CACHE_DIR")
    return settings | ({"spark.executorEnv.CUBECAST_CACHE_DIR": cache} if cache else {})


def first_line(error: Exception) -> str:
    text = error.getMessage() if isinstance(error, PySparkException) else None
    return next((line.strip() for line in (text or str(error)).splitlines() if line.strip()), type(error).__name__)
