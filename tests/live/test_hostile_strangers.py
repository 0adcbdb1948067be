"""The attacks of `attacks.py` on a running group: nobody is admitted, nothing stays open, and the group continues."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from pathlib import Path

import pytest

from cubecast.errors import LocalProtocolError
from cubecast.live.credentials import Credentials
from cubecast.live.group import Group
from cubecast.live.keys import issue
from cubecast.live.local import free_addresses
from tests.live import attacks
from tests.live.members import enter, groups_of, quick, until
from tests.live.test_hostile_peers import hello, pair, require_alive

pytestmark = pytest.mark.live

CONNECTIONS = {"garbage": 24, "half_open": 8, "slow_loris": 8, "liars": 4}
"""Of each attack with four knocks at each of two members."""
SLOW = ("garbage", "half_open", "slow_loris")
"""Attacks with connections that would never end by themselves; a few random bytes are less than a frame."""


async def require_untouched(groups: list[Group], connections: int) -> None:
    """Every connection was refused and dropped, and the view is still the first one."""
    await until(lambda: sum(group.stats["refused_connections"] for group in groups) >= connections)
    await until(lambda: not any(group._entered().connections._listener.handshakes for group in groups))
    await require_alive(groups)
    assert [group.view.number for group in groups] == [1, 1]


@pytest.mark.parametrize("name", CONNECTIONS)
def test_strangers_are_refused_and_the_group_continues(
    name: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(attacks, "KNOCKS", 4)

    async def run() -> None:
        async with groups_of(2, "test", handshake_timeout_s=0.3) as groups:
            assert await attacks.ATTACKS[name]([group.address for group in groups]) == 0
            await require_untouched(groups, CONNECTIONS[name])

    asyncio.run(run())
    assert ("not finished within 0.3 s" in caplog.text) == (name in SLOW)


def test_an_attack_counts_the_connections_that_get_welcome() -> None:
    async def run() -> None:
        async with groups_of(2) as groups:
            assert await attacks.knock(groups[0].address, hello(groups[0]), wait_s=1) == 1

    asyncio.run(run())


def test_a_recorded_handshake_of_a_member_admits_nobody_else(tmp_path: Path) -> None:
    async def run() -> None:
        async with pair(tmp_path, handshake_timeout_s=0.3) as groups:
            heard = await overhear(tmp_path, free_addresses(2))
            assert heard.startswith(b"\x16\x03")  # a handshake of TLS
            assert await attacks.replay([group.address for group in groups], heard) == 0
            await require_untouched(groups, 10)

    asyncio.run(run())


async def overhear(keys: Path, addresses: list[str]) -> bytes:
    """The first bytes that a member with a certificate of the group sends to a peer it dials."""
    heard: list[bytes] = []

    async def listen(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        heard.append(await reader.read(1 << 16))
        writer.close()

    host, port = addresses[0].rsplit(":", 1)
    async with await asyncio.start_server(listen, host, int(port)):
        credentials = Credentials.load(issue(keys, addresses[1]), ca=keys / "group.pem")
        with suppress(LocalProtocolError):
            await enter(
                listen=addresses[1], contact=addresses[0], credentials=credentials, settings=quick(join_timeout_s=0.5)
            )
    return heard[0]
