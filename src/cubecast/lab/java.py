"""Find a Java that Spark can run on, before Spark starts: Spark's own error is a page of stack trace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from pathlib import Path

from cubecast.errors import LocalProtocolError

VERSIONS = (17, 21)
MODULE = "jdk.incubator.vector"
ADVICE = "install Java 17 or 21 (Debian: apt-get install openjdk-17-jre-headless) or set JAVA_HOME to one"


def require_java() -> Path:
    """The Java that will be started; otherwise raise one line that says what is missing."""
    java = find_java()
    if java is None:
        raise LocalProtocolError(f"studies run on Spark, which needs Java, but no Java was found: {ADVICE}")
    try:
        finished = subprocess.run([java, "--list-modules"], capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise LocalProtocolError(f"{java} does not start ({error}): {ADVICE}") from error
    check_modules(java, finished.stdout, finished.stderr)
    return java


def find_java() -> Path | None:
    """Look in JAVA_HOME first, as Spark does, then on the path."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        if not java.is_file():
            raise LocalProtocolError(f"JAVA_HOME = {home}: it contains no bin/java; {ADVICE}")
        return java
    found = shutil.which("java")
    return Path(found) if found else None


def check_modules(java: Path, listed: str, complaint: str = "") -> None:
    """Check the output of `java --list-modules`: the right version, with the module that Spark needs."""
    base = re.search(r"^java\.base@(\d+)", listed, re.MULTILINE)
    if base is None:
        said = (complaint.strip().splitlines() or ["it lists no modules"])[0]
        raise LocalProtocolError(f"{java} is not a Java that Spark can use ({said}): {ADVICE}")
    if int(base[1]) not in VERSIONS:
        raise LocalProtocolError(f"{java} is Java {base[1]}, Spark needs {' or '.join(map(str, VERSIONS))}: {ADVICE}")
    if not re.search(rf"^{re.escape(MODULE)}@", listed, re.MULTILINE):
        raise LocalProtocolError(f"{java} lacks the module {MODULE} that Spark needs: {ADVICE}")
