"""The first program of the README prints what the README says, and the programs of two other pages run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from cubecast.cli import app
from cubecast.live import status
from cubecast.live.local import free_ports

pytestmark = pytest.mark.live

ROOT = Path(__file__).parents[2]


def blocks(page: str, language: str) -> list[str]:
    """The code blocks of a page in one language."""
    found = re.findall(r"^```(\w*)\n(.*?)^```$", (ROOT / page).read_text("utf-8"), re.MULTILINE | re.DOTALL)
    return [text for its_language, text in found if its_language == language]


def start(program: str, folder: Path) -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder), "CUBECAST_JIT": "off"}
    return subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True, env=environment)


def test_the_first_program_is_ten_lines_and_prints_what_is_shown(tmp_path: Path) -> None:
    program, shown = blocks("README.md", "python")[0], blocks("README.md", "")[0]
    assert len([line for line in program.splitlines() if line.strip()]) == 10
    port = free_ports(1)[0]

    def moved(text: str) -> str:
        return text.replace(":7100", f":{port}").replace(":7101", f":{port + 1}")

    first = start(moved(program), tmp_path)
    second = None
    try:
        assert first.stdout is not None
        said = [first.stdout.readline()]
        second = start(moved(program), tmp_path)
        said.append(first.stdout.readline())
        assert "".join(said) == moved(shown)
    finally:
        for process in (first, second):
            if process is not None:
                process.kill()
                process.communicate()


def test_the_program_of_the_bus_runs(tmp_path: Path) -> None:
    (program,) = blocks("docs/bus.md", "python")
    running = start(program.replace(":7110", f":{free_ports(1)[0]}"), tmp_path)
    try:
        assert running.communicate(timeout=60)[0].splitlines() == ["{'id': 7}", "3", "42"]
    finally:
        running.kill()
        running.communicate()


def test_the_program_of_the_documents_runs(tmp_path: Path) -> None:
    (program,) = blocks("docs/pycrdt.md", "python")
    running = start(program.replace(":7001", f":{free_ports(1)[0]}"), tmp_path)
    try:
        assert running.communicate(timeout=60)[0] == "Good bye in epoch 1 with 0 bytes of history\n"
    finally:
        running.kill()
        running.communicate()


def test_the_deployment_examples_name_options_and_probes_that_exist() -> None:
    text = "".join((ROOT / "deploy" / name).read_text("utf-8") for name in ("statefulset.yaml", "cubecast@.service"))
    text = re.sub(r"^#.*$", "", text, flags=re.MULTILINE)
    shown = CliRunner().invoke(app, ["node", "--help"], env={"COLUMNS": "200", "NO_COLOR": "1"}).output
    options = set(re.findall(r"[ \"](--[a-z][a-z-]+) ", text))
    assert {"--advertise", "--journal", "--contact"} <= options
    assert [option for option in options if option not in shown] == []
    probes = set(re.findall(r"path: (/\w+)", text))
    assert probes == {"/livez", "/readyz"}
    assert [path for path in probes if path not in (status.__doc__ or "")] == []
