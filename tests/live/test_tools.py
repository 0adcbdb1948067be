"""Keys, the status server, the light mode, and members on the command line."""

from __future__ import annotations

import asyncio
import io
import json
import os
import signal
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from cubecast.cli.app import run as run_command
from cubecast.cli.live import _Screen
from cubecast.errors import LocalProtocolError
from cubecast.live.credentials import Credentials
from cubecast.live.demo import Demo, DemoVerdict, fetch_status
from cubecast.live.local import free_addresses
from cubecast.live.status import StatusServer
from tests.live.cast import ROOT
from tests.live.members import WAIT_S, groups_of, one, take, until
from tests.support.processes import LineProcess

pytestmark = pytest.mark.live


def test_the_command_line_makes_keys_that_members_can_use(tmp_path: Path) -> None:
    keys = str(tmp_path / "keys")
    assert run_command(["keys", "init", "--folder", keys]) == 0
    assert run_command(["keys", "issue", "127.0.0.1:7001", "--folder", keys, "--name", "one"]) == 0
    Credentials.load(tmp_path / "keys" / "one.pem", ca=tmp_path / "keys" / "group.pem")
    assert run_command(["keys", "revoke", str(tmp_path / "keys" / "one.pem"), "--folder", keys]) == 0
    assert (tmp_path / "keys" / "group.key").stat().st_mode & 0o077 == 0
    assert run_command(["keys", "init", "--folder", keys]) == 2
    assert run_command(["keys", "issue", "nowhere", "--folder", keys]) == 2
    assert run_command(["keys", "issue", "127.0.0.1:1", "--folder", str(tmp_path / "none")]) == 2


def test_a_certificate_is_replaced_only_on_request_and_the_old_one_is_revoked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = ["--folder", str(tmp_path)]
    assert run_command(["keys", "init", *folder]) == 0
    assert run_command(["keys", "issue", "127.0.0.1:7001", *folder, "--name", "one", "--replace"]) == 0
    assert "revoked" not in capsys.readouterr().out
    old = (tmp_path / "one.pem").read_bytes()
    assert run_command(["keys", "issue", "127.0.0.1:7001", *folder, "--name", "one"]) == 2
    assert "--replace" in capsys.readouterr().err
    assert (tmp_path / "one.pem").read_bytes() == old
    assert run_command(["keys", "issue", "127.0.0.1:7001", *folder, "--name", "one", "--replace"]) == 0
    assert "group.crl to every member" in capsys.readouterr().out
    credentials = Credentials.load(tmp_path / "one.pem", ca=tmp_path / "group.pem")
    assert credentials.is_revoked(ssl.PEM_cert_to_DER_cert(old.decode().partition("-----BEGIN PRIVATE")[0]))
    credentials.require_own("127.0.0.1:7001")
    assert (tmp_path / "one.pem").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("name", ["group", "../one", "a/b"])
def test_a_member_cannot_take_the_file_of_the_group_or_one_elsewhere(name: str, tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path)]
    assert run_command(["keys", "init", *folder]) == 0
    group = (tmp_path / "group.pem").read_bytes()
    assert run_command(["keys", "issue", "127.0.0.1:7001", *folder, "--name", name, "--replace"]) == 2
    assert (tmp_path / "group.pem").read_bytes() == group
    assert not (tmp_path.parent / "one.pem").exists()


def test_a_file_that_cannot_be_revoked_is_not_replaced(tmp_path: Path) -> None:
    folder = ["--folder", str(tmp_path)]
    assert run_command(["keys", "init", *folder]) == 0
    (tmp_path / "one.pem").write_text("not a certificate")
    assert run_command(["keys", "issue", "127.0.0.1:7001", *folder, "--name", "one", "--replace"]) == 2
    assert (tmp_path / "one.pem").read_text() == "not a certificate"


async def http(address: str, path: str) -> tuple[str, str]:
    """Status line and body of a GET."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
    answer = (await asyncio.wait_for(reader.read(), 5)).decode()
    writer.close()
    head, body = answer.split("\r\n\r\n", 1)
    return head.splitlines()[0], body


def test_a_member_tells_its_status() -> None:
    async def run() -> None:
        (address,) = free_addresses(1)
        async with groups_of(3) as groups, StatusServer(groups[0], address):
            await (await groups[1].multicast(b"x")).stable(WAIT_S)
            await until(lambda: groups[0].frontier[groups[1].me] == 1)
            found = await asyncio.to_thread(fetch_status, address)
            assert [member["stable"] for member in found["members"]] == [0, 1, 0]
            assert [member["received"] for member in found["members"]] == [0, 1, 0]
            assert (found["phase"], found["blocked"], found["gone"]) == ("member", False, [])
            line, page = await http(address, "/")
            assert "200" in line
            assert "http://" not in page.replace("http://www.w3.org", "")
            assert "404" in (await http(address, "/etc/passwd"))[0]
            await groups[2].leave()
            await until(lambda: len(groups[0].view.members) == 2)
            found = await asyncio.to_thread(fetch_status, address)
            assert [(gone["address"], gone["how"]) for gone in found["gone"]] == [(groups[2].address, "left")]

    asyncio.run(run())


def test_metrics_follow_the_conventions_and_say_what_they_are() -> None:
    async def run() -> str:
        (status,) = free_addresses(1)
        async with groups_of(2, each=lambda place: {"status": status} if place == 0 else {}) as groups:
            for _ in range(3):
                await (await groups[0].multicast(b"x")).stable(WAIT_S)
            await take(groups[0], 3)
            line, metrics = await http(status, "/metrics")
            assert "200" in line
            labels = f'{{group="g",member="{groups[0].address}"'
            assert f"cubecast_deliveries_total{labels}}} 3.0" in metrics
            assert f"cubecast_stable_seconds_count{labels}}} 3.0" in metrics
            assert f"cubecast_views_total{labels}}} 1.0" in metrics
            peer = groups[1].address
            assert f'cubecast_behind{labels},peer="{peer}"}}' in metrics
            assert f'cubecast_link_up{labels},peer="{peer}"}} 1.0' in metrics
            assert f'cubecast_link_sent_bytes_total{labels},peer="{peer}"}}' in metrics
            return metrics

    metrics = asyncio.run(run())
    helped = [line.split(" ", 3)[2:] for line in metrics.splitlines() if line.startswith("# HELP")]
    assert all(text.endswith(".") and text.replace(" ", "_") not in name for name, text in helped)
    assert not any(name.endswith("_ms") for name, _ in helped)


def test_a_member_that_waits_serves_its_status_too() -> None:
    async def run() -> None:
        own, other, status = free_addresses(3)
        group = one(listen=own, peers=[other], status=status)
        entering = asyncio.create_task(group.__aenter__())
        await asyncio.sleep(0.3)
        found = await asyncio.to_thread(fetch_status, status)
        assert found["phase"] == "forming"
        assert other in found["waiting_for"]
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering

    asyncio.run(run())


LIGHT = """
import asyncio, json, sys
import cubecast

async def main(listen):
    async with cubecast.join("light", listen=listen, found=True, plaintext=True) as group:
        await group.multicast(b"x")
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
        libraries = ("numba", "pyarrow", "scipy", "pyspark", "altair", "cubecast.sim", "cubecast.lab")
        print(json.dumps({"mib": int(peak.split()[1]) / 1024,
                          "heavy": [name for name in libraries if name in sys.modules]}))

asyncio.run(main(sys.argv[1]))
"""


def test_a_light_member_loads_neither_compiler_nor_laboratory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *free_addresses(1)],
        cwd=ROOT,
        env={**os.environ, "CUBECAST_JIT": "off"},
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    report = json.loads(done.stdout.splitlines()[0])
    assert report["heavy"] == []
    assert report["mib"] < 60


# The command line.

NODE = [sys.executable, "-c", "from cubecast.cli import main; main()", "node", "chat", "--plaintext"]


def node(folder: Path, *options: str) -> LineProcess:
    """A member on the command line; its standard error goes to a file."""
    with (folder / f"{len(list(folder.glob('*.said')))}.said").open("wb") as said:
        return LineProcess([*NODE, *options], folder=ROOT, errors=said.fileno(), light=True)


def finish(nodes: list[LineProcess]) -> None:
    """The input of all ends, and so do they."""
    for member in nodes:
        assert member.process.stdin is not None
        member.process.stdin.close()
    assert [member.process.wait(30) for member in nodes] == [0] * len(nodes)


def test_two_nodes_talk_over_the_command_line_and_a_third_joins(tmp_path: Path) -> None:
    first, second, third, status = free_addresses(4)
    nodes = [
        node(tmp_path, "--listen", first, "--peer", second, "--keep", "all", "--status", status),
        node(tmp_path, "--listen", second, "--peer", first, "--keep", "all"),
    ]
    try:
        nodes[0].write_line("hello\nworld")
        assert [nodes[1].read_line() for _ in range(2)] == [f"{first} 1 hello", f"{first} 2 world"]
        nodes.append(node(tmp_path, "--listen", third, "--contact", first, "--keep", "all"))
        assert [nodes[2].read_line() for _ in range(2)] == [f"{first} 1 hello", f"{first} 2 world"]
        nodes[2].write_line("three")
        assert nodes[1].read_line() == f"{third} 1 three"
        found = fetch_status(status)
        assert (found["view"], found["blocked"], len(found["members"])) == (2, False, 3)
        assert run_command(["status", status]) == 0
        finish(nodes)
    finally:
        for member in nodes:
            member.close()
    said = (tmp_path / "0.said").read_text()
    assert f"ready: {first} is rank" in said
    assert "view 2: 3 members" in said
    assert "WARNING" not in said
    assert "excluded" not in said


def test_a_node_says_what_it_waits_for_and_leaves_on_a_signal(tmp_path: Path) -> None:
    first, second = free_addresses(2)
    member = node(tmp_path, "--listen", first, "--peer", second)
    said = tmp_path / "0.said"
    try:
        deadline = time.monotonic() + 20
        while f"waiting for {second}" not in said.read_text():
            assert time.monotonic() < deadline, said.read_text()
            time.sleep(0.05)
        member.process.send_signal(signal.SIGTERM)
        assert member.process.wait(20) == 0
    finally:
        member.close()


def test_a_node_with_a_journal_continues_without_another_way_in(tmp_path: Path) -> None:
    (first,) = free_addresses(1)
    journal = str(tmp_path / "one.journal")
    member = node(tmp_path, "--listen", first, "--found", "--journal", journal)
    try:
        member.write_line("hello")
        assert member.read_line() == f"{first} 1 hello"
    finally:
        member.close()  # kill -9
    again = node(tmp_path, "--listen", first, "--journal", journal)
    try:
        assert again.read_line() == f"{first} 1 hello"
        again.write_line("world")
        assert again.read_line() == f"{first} 2 world"
        again.process.send_signal(signal.SIGINT)
        assert again.process.wait(20) == 0
    finally:
        again.close()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--found", "--keep", "some"], "keep='some': choose none, all, or a number of messages"),
        (["--found", "--quorum", "most"], "quorum='most': choose one of majority, any"),
        (["--found", "--data", "magic"], "data='magic': choose one of auto, causal_plumtree"),
        (["--found", "--stability", "magic"], "stability='magic': choose one of auto, cascade, coord"),
        (["--found", "--peer", "127.0.0.1:2"], "given: peers and found"),
        ([], "given: none of them"),
        (["--found", "--status", "nowhere"], "host:port"),
    ],
)
def test_a_node_refuses_bad_options_with_one_line(options: list[str], said: str) -> None:
    ended = subprocess.run(
        [*NODE, "--listen", "127.0.0.1:1", *options],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert ended.returncode != 0
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1, ended.stderr


@pytest.mark.parametrize("options", [["--members", "3"], ["--members", "4", "--kills", "1"]])
def test_the_demonstration_ends_with_a_verdict(options: list[str], tmp_path: Path) -> None:
    """`demo --members 3` must work with its default number of kills, and end with a verdict."""
    command = [sys.executable, "-c", "from cubecast.cli import main; main()", "demo", *options, "--seconds", "6"]
    trace = tmp_path / "run.parquet"
    ended = subprocess.run([*command, "--trace", str(trace)], capture_output=True, text=True, timeout=120, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert f"1 of {options[1]} killed, " in ended.stdout
    assert "messages, nothing lost, everything stable" in ended.stdout
    *_, verdict, page, written = ended.stdout.splitlines()
    assert verdict.endswith("nothing lost, everything stable")
    assert page.startswith("status page of the whole group: http://127.0.0.1:")
    assert str(trace) in written
    assert run_command(["check", str(trace)]) == 0


def start_demonstration() -> tuple[subprocess.Popen[str], str]:
    """One that stays after its verdict; returns it with the address of its page."""
    command = [sys.executable, "-c", "from cubecast.cli import main; main()", "demo"]
    options = ["--members", "3", "--seconds", "3", "--rate", "20", "--stay"]
    running = subprocess.Popen(
        [*command, *options],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "CUBECAST_JIT": "off"},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background job ignores it
    )
    assert running.stdout is not None
    line = ""
    while "status page of the whole group" not in line:
        line = running.stdout.readline()
        assert line, "it ended before its verdict"
    assert "Ctrl-C stops them" in running.stdout.readline()
    return running, line.split("http://")[1].strip().rstrip("/")


def test_the_survivors_of_a_demonstration_stay_until_ctrl_c_and_their_page_shows_the_verdict() -> None:
    running, page = start_demonstration()
    try:
        found = fetch_status(page)
        assert len(found["members"]) == 2
        assert found["stats"]["unstable_messages"] == 0
        assert [one["how"] for one in found["gone"]] == ["excluded"]
        running.send_signal(signal.SIGINT)
        assert running.wait(60) == 0
        with pytest.raises(LocalProtocolError):
            fetch_status(page)
    finally:
        running.kill()
        running.wait()


def test_a_demonstration_that_stays_ends_when_all_survivors_are_dead() -> None:
    running, _ = start_demonstration()
    try:
        for member in children_of(running.pid):
            os.kill(member, signal.SIGKILL)
        assert running.communicate(timeout=60)[0] == "all survivors have ended\n"
        assert running.returncode == 0
    finally:
        running.kill()
        running.wait()


def children_of(process: int) -> list[int]:
    """Of its first thread, as Linux knows them."""
    return list(map(int, Path(f"/proc/{process}/task/{process}/children").read_text().split()))


def test_ctrl_c_in_the_moment_in_which_a_demonstration_offers_it_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Terminal(io.StringIO):
        def flush(self) -> None:
            if "Ctrl-C" in self.getvalue():
                raise KeyboardInterrupt

    terminal = Terminal()
    monkeypatch.setattr("sys.stdout", terminal)
    demo = Demo(members=2, rate_per_s=1.0, folder=tmp_path)
    _Screen().stay(demo, DemoVerdict(is_good=True, line="good"))
    assert terminal.getvalue().startswith("good\n")
