"""An archive of the Java classes that Spark loads, so that Java starts in half the time.

Spark loads 15,000 classes out of 280 files, and Java checks each of them. With a class-data archive (JDK 13 and later)
they are mapped into memory, checked already. The archive belongs to one Java and one PySpark; Java itself looks whether
it fits, and does without it when it does not. `cubecast warm` makes it, once.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from cubecast.core.compiled import cache_directory
from cubecast.lab.java import find_java

# Java tells on stdout why it does not use an archive, or leaves a class out of it: no news for the user.
_QUIET = "-Xlog:disable"


def archive_path() -> Path | None:
    """Where the archive of this Java and this PySpark is, or would be; none without Java."""
    found = find_java()
    if found is None:
        return None
    java = found.resolve()
    told = f"{java} {java.stat().st_mtime_ns} {pyspark.__file__} {pyspark.__version__}"
    return cache_directory().parents[1] / "java" / f"{hashlib.sha256(told.encode()).hexdigest()[:16]}.jsa"


def use_archive() -> str:
    """How Java is told to use the archive; nothing where there is none."""
    path = archive_path()
    return f'{_QUIET} "-XX:SharedArchiveFile={path}"' if path is not None and path.is_file() else ""


def write_archive(path: Path) -> str:
    """How Java is told to write an archive of what it has loaded, when it ends."""
    return f'{_QUIET} "-XX:ArchiveClassesAtExit={path}"'
