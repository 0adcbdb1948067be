"""No Java, a wrong Java, a Java that lacks a module: one clear line each, before Spark is asked."""

from __future__ import annotations

from pathlib import Path

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.lab.java import check_modules, require_java

GOOD = "java.base@17.0.9\njdk.incubator.vector@17.0.9\n"


def _fake_java(folder: Path, prints: str) -> Path:
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\ncat <<'END'\n{prints}END\n")
    java.chmod(0o755)
    return java


def test_no_java_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LocalProtocolError, match="no Java was found: install Java 17 or 21"):
        require_java()


def test_a_java_home_without_java_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(LocalProtocolError, match=r"it contains no bin/java"):
        require_java()


@pytest.mark.parametrize(
    ("prints", "message"),
    [
        ("java.base@11.0.2\njdk.incubator.vector@11\n", "is Java 11, Spark needs 17 or 21"),
        ("java.base@17.0.9\n", "lacks the module jdk.incubator.vector"),
        ("hello\n", "is not a Java that Spark can use"),
    ],
)
def test_a_wrong_java_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, prints: str, message: str) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    _fake_java(tmp_path, prints)
    with pytest.raises(LocalProtocolError, match=message) as caught:
        require_java()
    assert "\n" not in str(caught.value)


def test_a_right_java_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = _fake_java(tmp_path, GOOD)
    assert require_java() == java
    check_modules(Path("java"), GOOD.replace("17", "21"))
