"""`cubecast node` under supervisors: whatever its input and output are, it stays a member, and a signal ends it."""

from __future__ import annotations

import asyncio
import configparser
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cubecast.live import node as live_node
from cubecast.live.keys import init, issue
from cubecast.live.local import free_addresses
from tests.live.cast import ROOT
from tests.live.members import WAIT_S

pytestmark = pytest.mark.live

NODE = [sys.executable, "-c", "from cubecast.cli import main; main()", "node", "chat", "--plaintext"]
LIGHT = {**os.environ, "CUBECAST_JIT": "off"}


def start(folder: Path, name: str, *options: str, **streams: object) -> subprocess.Popen[bytes]:
    errors = (folder / f"{name}.err").open("wb")
    return subprocess.Popen([*NODE, *options], stderr=errors, env=LIGHT, **streams)  # type: ignore[call-overload,no-any-return]


def wait_for(folder: Path, name: str, words: str) -> None:
    end_s = time.monotonic() + 60
    while words not in (folder / f"{name}.err").read_text():
        assert time.monotonic() < end_s, (folder / f"{name}.err").read_text()
        time.sleep(0.05)


def test_a_node_with_no_input_stays_until_a_signal_ends_it(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    node = start(tmp_path, "one", "--listen", address, "--found", stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
    try:
        wait_for(tmp_path, "one", "ready")
        with pytest.raises(subprocess.TimeoutExpired):
            node.wait(1)
        node.send_signal(signal.SIGTERM)
        assert node.wait(WAIT_S) == 0
    finally:
        node.kill()


def test_the_command_of_the_systemd_unit_stays_reads_its_credentials_again_and_leaves(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    keys = tmp_path / "keys"
    init(keys)
    member = issue(keys, address, name="one")
    options = f"--listen {address} --found --credentials {member} --ca {keys / 'group.pem'}"
    unit = configparser.ConfigParser(interpolation=None, strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "deploy" / "cubecast@.service")
    command = unit["Service"]["ExecStart"].replace("$GROUP", "orders").replace("$OPTIONS", options).split()
    assert command[:2] == ["/opt/cubecast/bin/cubecast", "node"]
    command = [word.replace("/var/lib/cubecast/%i", str(tmp_path / "orders")) for word in command[2:]]
    assert unit["Service"]["StandardInput"] == "null"
    with (tmp_path / "one.err").open("wb") as errors:
        node = subprocess.Popen(
            [*NODE[:4], *command], stdin=subprocess.DEVNULL, stdout=errors, stderr=errors, env=LIGHT
        )
    try:
        wait_for(tmp_path, "one", "ready")
        assert "-HUP" in unit["Service"]["ExecReload"]
        node.send_signal(signal.SIGHUP)
        with pytest.raises(subprocess.TimeoutExpired):
            node.wait(0.3)
        node.send_signal(signal.SIGTERM)
        assert node.wait(WAIT_S) == 0
        assert (tmp_path / "orders.journal").exists()
    finally:
        node.kill()


def test_a_node_multicasts_the_lines_of_a_file_and_leaves_at_its_end(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    lines = tmp_path / "lines.txt"
    lines.write_text("one\ntwo\r\nthree")
    with lines.open("rb") as file:
        node = start(tmp_path, "one", "--listen", address, "--found", stdin=file, stdout=subprocess.PIPE)
    output, _ = node.communicate(timeout=WAIT_S)
    assert node.returncode == 0
    assert output.decode().splitlines() == [
        f"{address} {place} {word}" for place, word in ((1, "one"), (2, "two"), (3, "three"))
    ]


def test_a_line_that_is_too_long_ends_the_node_with_one_clear_line(tmp_path: Path) -> None:
    (address,) = free_addresses(1)
    node = start(tmp_path, "one", "--listen", address, "--found", stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    node.communicate(b"x" * (3 << 20) + b"\n", timeout=WAIT_S)
    said = (tmp_path / "one.err").read_text()
    assert node.returncode == 2
    assert "payload_bytes_max" in said.splitlines()[-1]
    assert "Traceback" not in said


def test_an_output_that_nobody_reads_holds_up_neither_the_member_nor_its_end(tmp_path: Path) -> None:
    first, second = free_addresses(2)
    quick = ("--heartbeat", "0.1", "--suspect-after", "1.5")
    sender = start(
        tmp_path, "sender", "--listen", first, "--found", "--rate", "2000", "--quiet", *quick,
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
    )  # fmt: skip
    stuck = None
    try:
        wait_for(tmp_path, "sender", "ready")
        stuck = start(
            tmp_path, "stuck", "--listen", second, "--contact", first, *quick,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )  # fmt: skip
        wait_for(tmp_path, "stuck", "ready")
        time.sleep(4)  # several times as long as silence is forgiven, and enough to fill the pipe
        assert "excluded" not in (tmp_path / "stuck.err").read_text()
        stuck.send_signal(signal.SIGTERM)
        assert stuck.wait(WAIT_S) == 0
    finally:
        for node in (sender, stuck):
            if node is not None:
                node.kill()
                node.wait()


def test_a_group_of_two_says_which_member_it_depends_on(tmp_path: Path) -> None:
    first, second = free_addresses(2)
    nodes = [
        start(tmp_path, name, "--listen", own, "--peer", other, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        for name, own, other in (("one", first, second), ("two", second, first))
    ]
    try:
        for name in ("one", "two"):
            wait_for(tmp_path, name, f"a group of two is blocked while its first rank, {first}, is down")
    finally:
        for node in nodes:
            node.kill()
            node.wait()


def test_a_node_that_waits_for_the_others_to_leave_says_so_and_a_second_signal_ends_it(tmp_path: Path) -> None:
    first, second = free_addresses(2)
    slow = ("--suspect-after", "30")  # leaving would take a minute
    nodes = [
        start(tmp_path, name, "--listen", own, "--peer", other, *slow, stdin=subprocess.DEVNULL)
        for name, own, other in (("one", first, second), ("two", second, first))
    ]
    try:
        for name in ("one", "two"):
            wait_for(tmp_path, name, "ready: ")
        nodes[0].kill()
        nodes[1].send_signal(signal.SIGTERM)
        wait_for(tmp_path, "two", "leaving: waiting until the others agree")
        nodes[1].send_signal(signal.SIGINT)
        assert nodes[1].wait(WAIT_S) == 0
    finally:
        for node in nodes:
            node.kill()
            node.wait()


def test_a_second_signal_ends_a_node_before_it_says_that_it_waits(capsys: pytest.CaptureFixture[str]) -> None:
    class Stuck:
        async def leave(self) -> None:
            await asyncio.Event().wait()

    async def run() -> None:
        signalled = asyncio.Event()
        leaving = asyncio.create_task(live_node._leave(Stuck(), signalled))  # type: ignore[arg-type]
        await asyncio.sleep(0)
        signalled.set()
        await asyncio.wait_for(leaving, WAIT_S)

    asyncio.run(run())
    assert "leaving" not in capsys.readouterr().err


def test_a_node_in_a_terminal_says_what_it_waits_for_when_it_is_ready_and_what_to_do(tmp_path: Path) -> None:
    first, second = free_addresses(2)
    master, terminal = pty.openpty()
    patient = ("--join-timeout", "120")
    waiting = start(
        tmp_path, "one", "--listen", first, "--peer", second, *patient, stdin=terminal, stdout=subprocess.PIPE
    )
    other = None
    try:
        wait_for(tmp_path, "one", f"waiting for {second} (no process listens there)")
        assert "ready" not in (tmp_path / "one.err").read_text()
        other = start(
            tmp_path, "two", "--listen", second, "--peer", first, *patient,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        )  # fmt: skip
        wait_for(tmp_path, "one", "ready: ")
        wait_for(tmp_path, "one", "type a line to multicast it; Ctrl-D leaves the group")
        os.write(master, b"hello\n")
        assert other.stdout is not None
        assert other.stdout.readline().decode().endswith(" hello\n")
        assert "type a line" not in (tmp_path / "two.err").read_text()
        os.write(master, b"\x04")
        assert waiting.wait(60) == 0
    finally:
        for node in (waiting, other):
            if node is not None:
                node.kill()
                node.wait()
        os.close(master)
        os.close(terminal)
