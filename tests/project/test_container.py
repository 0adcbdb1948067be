"""deploy/Dockerfile, instruction by instruction, in folders that serve as root file systems."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import tomllib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from cubecast.live.local import free_ports
from tests.support.container import Image, build, instructions, is_possible
from tests.support.locked import write_constraints

ROOT = Path(__file__).parents[2]
DOCKERFILE = ROOT / "deploy" / "Dockerfile"
WAIT_S = 60.0


def test_everything_that_is_copied_is_part_of_the_build_context() -> None:
    lines = (ROOT / ".dockerignore").read_text("utf-8").splitlines()
    copied = [rest.split() for word, rest in instructions(DOCKERFILE.read_text("utf-8")) if word == "COPY"]
    named = {name for words in copied if not words[0].startswith("--") for name in words[:-1]}
    assert "*" in lines
    assert named == {line[1:] for line in lines if line.startswith("!")}


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """The image. Its instructions get the locked packages from a folder, not from the network."""
    folder = tmp_path_factory.mktemp("image")
    for above in (folder, *folder.parents[:2]):
        above.chmod(0o755)  # the user of the image passes through
    needed = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    constraints = write_constraints(folder / "constraints.txt")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "download", "-qq", "--only-binary", ":all:"]
    command = [*pip, "--dest", folder / "packages", "--constraint", constraints, "setuptools>=77", *needed]
    subprocess.run(command, check=True, timeout=300)
    return build(DOCKERFILE, ROOT, folder / "stages", folder / "packages")


def until(condition: Callable[[], bool], log: Path) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, log.read_text("utf-8")
        time.sleep(0.05)


def first_process(container: subprocess.Popen[bytes]) -> int:
    """Process 1 of a container, as this machine numbers it."""
    return int(Path(f"/proc/{container.pid}/task/{container.pid}/children").read_text("utf-8"))


@contextmanager
def member(image: Image, log: Path, *options: str) -> Iterator[subprocess.Popen[bytes]]:
    """A container of a member."""
    with log.open("wb") as output:
        container = image.start([*image.entrypoint, "node", "orders", "--plaintext", *options], output)
    try:
        until(lambda: "ready: " in log.read_text("utf-8") or container.poll() is not None, log)
        assert container.poll() is None, log.read_text("utf-8")
        yield container
    finally:
        if container.poll() is None:
            os.kill(first_process(container), signal.SIGKILL)
            container.wait(WAIT_S)


@pytest.mark.live
@pytest.mark.slow
@pytest.mark.skipif(not is_possible(), reason="a root file system needs root and Linux")
def test_the_image_runs_members_that_are_not_root_answer_probes_and_leave_at_its_stop_signal(
    image: Image, tmp_path: Path
) -> None:
    status, output = image.run([*image.entrypoint, *image.command])
    assert status == 0
    assert "Usage: cubecast" in output

    ports = free_ports(3)
    addresses = [f"127.0.0.1:{port}" for port in ports]
    logs = [tmp_path / "first.log", tmp_path / "second.log"]
    founding = ["--listen", addresses[0], "--found"]
    joining = ["--listen", addresses[1], "--contact", addresses[0], "--status", addresses[2]]
    joining += ["--journal", f"{image.folder}/orders.journal"]
    with member(image, logs[0], *founding), member(image, logs[1], *joining) as container:
        process = Path(f"/proc/{first_process(container)}")
        uids = re.search(r"^Uid:\s+(.*)$", (process / "status").read_text("utf-8"), re.MULTILINE)
        assert uids is not None
        assert set(uids[1].split()) == {"10001"}
        assert (image.root / image.folder.lstrip("/") / "orders.journal").stat().st_uid == 10001
        assert image.run(["sh", "-c", "touch /opt/cubecast/x /x"])[0] != 0  # its own code is not its to change
        check = health_check().replace("9001", str(ports[2]))
        assert image.run(["sh", "-c", check]) == (0, "")
        assert image.run(["sh", "-c", check.replace(str(ports[2]), str(ports[2] + 1))])[0] != 0
        began = time.monotonic()
        os.kill(int(process.name), signal.Signals[image.signal])
        assert container.wait(WAIT_S) == 0, logs[1].read_text("utf-8")
        assert time.monotonic() - began < 15  # what the deployment page asks supervisors to wait
        until(lambda: logs[0].read_text("utf-8").splitlines()[-1].endswith(f": 1 member: {addresses[0]}"), logs[0])


def health_check() -> str:
    """The health check of the deployment page."""
    page = (ROOT / "docs" / "deployment.md").read_text("utf-8")
    found = re.search(r"--health-cmd '(.*?)'", page)
    assert found is not None
    return found[1]
