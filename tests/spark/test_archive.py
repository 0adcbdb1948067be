"""Java's archive of Spark's classes: what `cubecast warm` made is used, and what does not fit does no harm."""

from __future__ import annotations

import os
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from cubecast.lab.java import require_java

pytestmark = [pytest.mark.spark]


def _start_java(*options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([require_java(), *options, "--version"], capture_output=True, text=True, check=False)


def test_java_starts_from_the_archive(spark: Any) -> None:
    from cubecast.lab.spark.archive import archive_path, use_archive
    from cubecast.lab.spark.settings import QUICK_START

    path = archive_path()
    if path is None or not path.is_file():
        pytest.skip("there is no archive: `cubecast warm` makes it")
    jvm = spark.sparkContext._jvm.java.lang
    told = jvm.management.ManagementFactory.getRuntimeMXBean().getInputArguments()
    assert f"-XX:SharedArchiveFile={path}" in list(told)
    # -Xshare:on makes Java refuse to start when the archive is not of this Java and these classes.
    started = _start_java(
        "-Xshare:on", *shlex.split(f"{QUICK_START} {use_archive()}"), "-cp", jvm.System.getProperty("java.class.path")
    )
    assert started.returncode == 0, started.stderr
    assert _start_java("-Xshare:on", *shlex.split(use_archive()), "-cp", "elsewhere.jar").returncode != 0


def test_pyspark_installed_again_wants_a_new_archive_in_place_of_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java refuses an archive when one file has another time, even if its bytes are the same."""
    archive = pytest.importorskip("cubecast.lab.spark.archive")
    jar = tmp_path / "jars" / "spark.jar"
    jar.parent.mkdir()
    jar.write_bytes(b"classes")
    monkeypatch.setattr(archive.pyspark, "__file__", str(tmp_path / "__init__.py"))
    monkeypatch.setattr(archive, "cache_root", lambda: tmp_path)
    first = archive.archive_path()
    assert archive.archive_path() == first
    os.utime(jar, (1, 1))
    second = archive.archive_path()
    assert second != first
    second.parent.mkdir()
    for path in (first, second):
        path.touch()
    assert archive.older_archives(second) == [first]


def test_an_archive_that_does_not_fit_is_not_used_and_not_mentioned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = pytest.importorskip("cubecast.lab.spark.archive")
    path = tmp_path / "a folder" / "classes.jsa"
    path.parent.mkdir()
    path.write_bytes(b"no archive at all")
    monkeypatch.setattr(archive, "archive_path", lambda: path)
    started, plain = _start_java(*shlex.split(archive.use_archive())), _start_java("-Xshare:off")
    assert (started.returncode, started.stdout, started.stderr) == (0, plain.stdout, plain.stderr)
