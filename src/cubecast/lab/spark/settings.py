"""The settings of a Spark session: those of the user take precedence over our defaults.

The user's settings are `spark-defaults.conf` (of `SPARK_CONF_DIR`, or of Spark's installation) and `--conf`, which
takes precedence. Options for Java are the exception: ours and the user's are combined.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from pathlib import Path

from cubecast.errors import LocalProtocolError

DRIVER_MEMORY = "1500m"
"""Of the heap. Java uses a third of a GiB beside it, so this keeps it below 2 GB."""
MEMORY_VARIABLE = "CUBECAST_SPARK_MEMORY"
_LOG4J = Path(__file__).parents[1] / "log4j2.properties"
_LOGGING = f"-Dlog4j2.configurationFile={_LOG4J.as_uri()}"
# Otherwise the thread that ran out of memory ends, and the others wait for it silently.
_EXIT = "-XX:+ExitOnOutOfMemoryError"
# The heavy work is in Python: a quick start matters more than Java at its fastest.
QUICK_START = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
# The work is in Python and the tables are small: compiling SQL to Java and many partitions cost more than they save.
_LIGHT = {
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.shuffle.partitions": "4",
    "spark.sql.adaptive.enabled": "false",
    "spark.sql.autoBroadcastJoinThreshold": "256m",
}
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.executor.extraJavaOptions")
_LINE = re.compile(r"(?P<key>[^#!\s=:][^\s=:]*)\s*[\s=:]\s*(?P<value>.+)")
CONNECT = "sc://"
_PACKAGE_ROOT = Path(__file__).resolve().parents[3]


def parse_conf(words: Iterable[str]) -> dict[str, str]:
    """Settings from the command line, `key=value` each."""
    settings = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not key.startswith("spark."):
            raise LocalProtocolError(f"--conf {word}: write spark.KEY=VALUE")
        settings[key] = value
    return settings


def spark_defaults() -> dict[str, str]:
    """The user's `spark-defaults.conf`: a key and a value per line, with a blank, a colon or an equals sign between."""
    from pyspark.find_spark_home import _find_spark_home

    folder = Path(os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home()) / "conf")
    try:
        lines = (folder / "spark-defaults.conf").read_text("utf-8").splitlines()
    except OSError:
        return {}
    found = (_LINE.fullmatch(line.strip()) for line in lines)
    return {line["key"]: line["value"] for line in found if line is not None}


def connect_address(master: str | None, theirs: dict[str, str]) -> str | None:
    """The Spark Connect server to use, by `--master`, or by Spark's own `SPARK_REMOTE` or `spark.remote` without it."""
    if master is not None:
        return master if master.startswith(CONNECT) else None
    return os.environ.get("SPARK_REMOTE") or theirs.get("spark.remote")


def session_settings(theirs: dict[str, str], *, master: str, heavy: bool, archive: str) -> dict[str, str]:
    """The settings of a session; `heavy` if Spark itself has to process much data."""
    java = f"{_EXIT} {archive}" if heavy else f"{_EXIT} {QUICK_START} {archive}"
    ours = {
        "spark.driver.memory": DRIVER_MEMORY,
        "spark.driver.extraJavaOptions": f"{_LOGGING} {java}",
        "spark.executor.extraJavaOptions": java,
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.parquet.compression.codec": "zstd",
        "spark.sql.session.timeZone": "UTC",
        "spark.hadoop.mapreduce.fileoutputcommitter.algorithm.version": "2",
        "spark.hadoop.mapreduce.fileoutputcommitter.marksuccessfuljobs": "false",
        "spark.executorEnv.PYTHONPATH": os.pathsep.join(
            [str(_PACKAGE_ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        ),
    }
    if not heavy:
        ours |= _LIGHT
    if master.startswith("local"):
        ours["spark.ui.enabled"] = "false"  # a study on one machine need not wait for a web server
    if cache := os.environ.get("CUBECAST_CACHE_DIR"):
        ours["spark.executorEnv.CUBECAST_CACHE_DIR"] = cache
    settings = ours | theirs
    for key in _JAVA_OPTIONS:
        settings[key] = " ".join(filter(None, [ours[key], theirs.get(key)]))
    if memory := os.environ.get(MEMORY_VARIABLE):
        settings["spark.driver.memory"] = memory
    return settings
