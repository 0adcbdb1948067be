"""Keys, the status server, the group without asyncio, and the light mode."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from itertools import islice
from pathlib import Path

import pytest

from cubecast.cli.app import run as run_command
from cubecast.live.credentials import Credentials
from cubecast.live.demo import fetch_status
from cubecast.live.group import LiveGroup
from cubecast.live.local import Spoken, free_addresses
from cubecast.live.status import StatusServer
from cubecast.live.sync import join_sync
from tests.live.harness import ROOT
from tests.live.test_group import groups_of

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
            await (await groups[1].multicast(b"x")).stable(5)
            await asyncio.sleep(0.3)
            found = await asyncio.to_thread(fetch_status, address)
            assert [one["stable"] for one in found["members"]] == [0, 1, 0]
            assert found["stats"]["delivered"] == 1
            line, metrics = await http(address, "/metrics")
            assert "200" in line
            assert 'cubecast_delivered_total{group="g",rank="0"} 1.0' in metrics
            line, page = await http(address, "/")
            assert "200" in line
            assert "http://" not in page.replace("http://www.w3.org", "")
            assert "404" in (await http(address, "/etc/passwd"))[0]

    asyncio.run(run())


def test_a_group_without_asyncio() -> None:
    addresses = free_addresses(2)
    taken: list[bytes] = []

    def second() -> None:
        with join_sync("sync", listen=addresses[1], peers=addresses, plaintext=True) as group:
            taken.extend(delivery.payload for delivery in islice(group.deliveries(timeout=20), 50))

    other = threading.Thread(target=second)
    other.start()
    with join_sync("sync", listen=addresses[0], peers=addresses, plaintext=True) as group:
        messages = [group.multicast(str(number).encode()) for number in range(50)]
        messages[-1].stable(timeout=10)
        assert messages[0].is_stable
        assert group.frontier[group.rank] == 50
        own = [delivery.payload for delivery in group.deliveries(timeout=0.5)]
    other.join(20)
    assert own == taken == [str(number).encode() for number in range(50)]


LIGHT = """
import asyncio, json, sys
from cubecast.live.group import join
from cubecast.live.settings import Settings

async def main(listen, peers):
    settings = Settings(join_timeout_s=0.1)
    async with join("light", listen=listen, peers=peers, plaintext=True, settings=settings) as group:
        await group.multicast(b"x")
        peak = next(line for line in open("/proc/self/status") if line.startswith("VmHWM"))
        print(json.dumps({"mib": int(peak.split()[1]) / 1024,
                          "heavy": [name for name in ("numba", "pyarrow", "scipy") if name in sys.modules]}))
        await group.leave(drain=False)

asyncio.run(main(sys.argv[1], sys.argv[2:]))
"""


def test_a_light_member_loads_neither_compiler_nor_laboratory() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, *free_addresses(2)],
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


def test_two_nodes_talk_over_the_command_line() -> None:
    first, second = free_addresses(2)

    command = [sys.executable, "-c", "from cubecast.cli import main; main()", "node", "chat", "--plaintext"]
    nodes = [
        Spoken([*command, "--listen", listen, "--peer", peer], folder=ROOT, errors=subprocess.DEVNULL, light=True)
        for listen, peer in ((first, second), (second, first))
    ]
    try:
        nodes[0].tell("hello\nworld")
        assert [nodes[1].hear() for _ in range(2)] == ["0:1 hello", "0:2 world"]
        for one in nodes:
            assert one.process.stdin is not None
            one.process.stdin.close()
        assert [one.process.wait(30) for one in nodes] == [0, 0]
    finally:
        for one in nodes:
            one.close()


def test_nodes_found_and_join_a_group_on_the_command_line_and_their_histories_are_judged(tmp_path: Path) -> None:
    first, second, status = free_addresses(3)
    command = [sys.executable, "-c", "from cubecast.cli import main; main()", "node", "chat", "--plaintext"]
    command += ["--keep", "all"]
    nodes = [_node([*command, "--listen", first, "--found", "--status", status, "--history", str(tmp_path / "one")])]
    try:
        nodes[0].tell("hello")
        assert nodes[0].hear() == f"{first} 1:1 hello"
        nodes.append(_node([*command, "--listen", second, "--contact", first, "--history", str(tmp_path / "two")]))
        assert nodes[1].hear() == f"{first} 1:1 hello"
        nodes[1].tell("world")
        assert [one.hear() for one in nodes] == [f"{second} 2:1 world"] * 2
        found = fetch_status(status)
        assert (found["view"], found["blocked"], len(found["members"])) == (2, False, 2)
        assert run_command(["status", status]) == 0
        for one in nodes:
            assert one.process.stdin is not None
            one.process.stdin.close()
        assert [one.process.wait(30) for one in nodes] == [0, 0]
    finally:
        for one in nodes:
            one.close()
    recorded = ["--recorded", str(tmp_path / "one"), "--recorded", str(tmp_path / "two")]
    assert run_command(["churn", *recorded]) == 0
    (tmp_path / "two").write_text((tmp_path / "two").read_text().replace('"restore"', '"forgot"'))
    assert run_command(["churn", *recorded]) == 1
    assert run_command(["churn", "--recorded", str(tmp_path / "nothing")]) == 2


def _node(command: list[str]) -> Spoken:
    return Spoken(command, folder=ROOT, errors=subprocess.DEVNULL, light=True)


def test_a_group_is_used_inside_its_block_only() -> None:
    group = LiveGroup.__new__(LiveGroup)
    group._member, group.name, group._left = None, "g", False
    with pytest.raises(Exception, match="async with"):
        _ = group.view


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--found", "--trace", "one.rows"], "--trace one.rows: it goes with --peer only"),
        (["--contact", "127.0.0.1:2", "--causal", "tree"], "--causal tree: it goes with --peer only"),
        (["--peer", "127.0.0.1:2", "--log", "one.log"], "--log one.log: it goes with --found or --contact only"),
        (["--peer", "127.0.0.1:2", "--keep", "all"], "--keep all: it goes with --found or --contact only"),
        (["--found", "--keep", "some"], "keep='some': choose none, all, or a number of messages"),
        (["--found", "--peer", "127.0.0.1:2"], "give --peer for every other member, or --found, or --contact"),
        ([], "give --peer for every other member, or --found, or --contact"),
    ],
)
def test_a_node_refuses_what_its_kind_of_group_would_ignore(options: list[str], said: str) -> None:
    command = [sys.executable, "-c", "from cubecast.cli import main; main()", "node", "chat", "--plaintext"]
    ended = subprocess.run(
        [*command, "--listen", "127.0.0.1:1", *options], capture_output=True, text=True, timeout=60, check=False
    )
    assert ended.returncode != 0
    assert said in ended.stderr
    assert len(ended.stderr.strip().splitlines()) == 1
