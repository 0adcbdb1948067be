"""An archive of the Java classes that Spark loads, so that Java starts in half the time.

Spark loads 15,000 classes from 280 files, and Java verifies each of them. With a class-data archive (JDK 13 and later)
they are mapped into memory already verified. The archive belongs to one Java and one installation of PySpark: Java
compares the size and the time of every file with those from which the archive was made, and ignores the archive if one
differs. So both are part of its name, and `cubecast warm` makes a new one after PySpark was installed again.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import pyspark

from cubecast.jit.sources import cache_root
from cubecast.lab.java import find_java

# Java prints on stdout why it does not use an archive, or omits a class from it: the user does not need this.
_QUIET = "-Xlog:disable"


def archive_path() -> Path | None:
    """The path of the archive of this Java and this PySpark, whether it exists or not; None without Java."""
    found = find_java()
    if found is None:
        return None
    java = found.resolve()
    jars = Path(pyspark.__file__).parent / "jars"
    stamps = [_stamp(java), *sorted(_stamp(jar) for jar in jars.iterdir())]
    return cache_root() / "java" / f"{_digest(str(jars))}-{_digest(*stamps)}.jsa"


def older_archives(path: Path) -> list[Path]:
    """Outdated archives in the same folder."""
    place, _ = path.name.split("-")
    return [other for other in path.parent.glob(f"{place}-*.jsa") if other != path]


def _stamp(file: Path) -> str:
    status = file.stat()
    return f"{file} {status.st_size} {status.st_mtime_ns}"


def _digest(*texts: str) -> str:
    return hashlib.sha256("\n".join(texts).encode()).hexdigest()[:16]


def use_archive() -> str:
    """Java's options to use the archive; empty if there is none."""
    path = archive_path()
    return f'{_QUIET} "-XX:SharedArchiveFile={path}"' if path is not None and path.is_file() else ""


def write_archive(path: Path) -> str:
    """Java's options to write an archive of the loaded classes when it exits."""
    return f'{_QUIET} "-XX:ArchiveClassesAtExit={path}"'
