"""Peers that are not members, lie, send garbage or nothing at all: refused with a reason, and the group continues."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from cubecast.live.credentials import Credentials
from cubecast.live.group import Group
from cubecast.live.keys import init, issue, revoke
from cubecast.live.local import free_addresses
from cubecast.member.settings import parse_address
from cubecast.wire import frame, handshake
from cubecast.wire.handshake import Hello
from tests.live.members import WAIT_S, enter, quick, until

pytestmark = pytest.mark.live

STRANGER = "127.0.0.1:9"


@asynccontextmanager
async def pair(folder: Path | None = None, **settings: Any) -> AsyncIterator[list[Group]]:
    """Two members in this process."""
    addresses = free_addresses(2)
    if folder is not None:
        init(folder)

    def own(address: str) -> dict[str, Any]:
        if folder is None:
            return {}
        return {"credentials": Credentials.load(issue(folder, address), ca=folder / "group.pem")}

    groups = await asyncio.gather(
        *(enter(listen=address, peers=addresses, settings=quick(**settings), **own(address)) for address in addresses)
    )
    try:
        yield list(groups)
    finally:
        await asyncio.gather(*(group.leave(drain=False) for group in groups))


async def require_alive(groups: list[Group]) -> None:
    """A message still reaches everybody and becomes stable."""
    await (await groups[0].multicast(b"still here")).stable(WAIT_S, hurry=True)
    assert len(groups[0].view.members) == len(groups)


async def speak(address: str, octets: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Connect, send bytes, and read until the other side closes, or sends nothing for a while."""
    reader, writer = await asyncio.open_connection(*parse_address(address), ssl=context)
    heard = b""
    try:
        writer.write(octets)
        async with asyncio.timeout(2):
            while piece := await reader.read(1 << 16):
                heard += piece
    except (TimeoutError, ConnectionError):
        pass
    finally:
        writer.close()
    return heard


def hello(towards: Group, /, **changes: object) -> bytes:
    """The HELLO of a newcomer, changed."""
    said: dict[str, Any] = {
        "oldest": frame.OLDEST,
        "newest": frame.VERSION,
        "group": "g",
        "group_id": 0,
        "name": STRANGER,
        "towards": towards.address,
        "incarnation": 77,
        "session": 5,
        "knows": 0,
        "knows_session": 0,
        "received": 0,
        "view_number": 0,
        "view_tag": 0,
        "view_members": 0,
        "settings": towards.settings.agreed(),
    }
    return frame.encode_frame(frame.HELLO, 0, 0, handshake.encode(Hello(**(said | changes))))


def kinds(heard: bytes) -> list[int]:
    """The kinds of the frames that came."""
    return [one.kind for one in frame.FrameReader(1 << 20).feed(heard)]


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: cubecast\r\n\r\n", "version"),
        (bytes(64), "version 0"),
        (b"\x16\x03\x01" + bytes(60), "the peer uses TLS"),
        (frame.encode_frame(frame.DATA, 1, 0, b""), "not with HELLO"),
        (frame.encode_frame(frame.HELLO, 0, 0, b"\xff" * 40), "malformed hello"),
    ],
)
def test_garbage_is_refused_and_the_group_continues(
    octets: bytes, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with pair() as groups:
            before = groups[0].stats["refused_connections"]
            await speak(groups[0].address, octets)
            await until(lambda: groups[0].stats["refused_connections"] == before + 1)
            assert reason in caplog.text
            await require_alive(groups)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"group": "other"}, "in group 'other'"),
        ({"group_id": 12345}, "founded apart"),
        ({"towards": STRANGER}, "dialled 127.0.0.1:9"),
        ({"settings": {}}, "settings differ"),
        ({"oldest": 200, "newest": 201}, "wire versions 200 to 201"),
    ],
)
def test_a_greeting_that_is_not_ours_is_refused(changes: dict[str, object], reason: str) -> None:
    async def run() -> None:
        async with pair() as groups:
            heard = await speak(groups[0].address, hello(groups[0], **changes))
            (refused,) = frame.FrameReader(1 << 16).feed(heard)
            assert refused.kind == frame.REFUSE
            assert reason in handshake.decode(handshake.HandshakeRefusal, refused.body).reason
            await require_alive(groups)

    asyncio.run(run())


def test_a_stranger_that_uses_the_name_of_a_member_does_not_disturb_it() -> None:
    async def run() -> None:
        async with pair() as groups:
            for name in (groups[0].address, groups[1].address):
                await speak(groups[0].address, hello(groups[0], name=name, incarnation=1))
            await require_alive(groups)

    asyncio.run(run())


def test_a_peer_that_breaks_the_protocol_after_its_greeting_loses_its_connection() -> None:
    async def run() -> None:
        async with pair() as groups:
            gap = frame.encode_frame(frame.DATA, 5, 0, b"")
            heard = await speak(groups[0].address, hello(groups[0]) + gap)
            assert kinds(heard)[0] == frame.WELCOME
            await require_alive(groups)

    asyncio.run(run())


def test_a_connection_that_says_nothing_is_closed_in_time() -> None:
    async def run() -> None:
        async with pair(handshake_timeout_s=0.3) as groups:
            assert await asyncio.wait_for(speak(groups[0].address, b""), 2) == b""
            assert await asyncio.wait_for(speak(groups[0].address, b"\x01"), 2) == b""
            await require_alive(groups)

    asyncio.run(run())


def test_a_crowd_of_silent_connections_does_not_shut_the_group_down() -> None:
    async def run() -> None:
        async with pair(handshake_timeout_s=2.0) as groups:
            crowd = [socket.create_connection(parse_address(groups[0].address)) for _ in range(200)]
            await require_alive(groups)
            await asyncio.sleep(0.1)
            assert groups[0]._entered().connections._listener.handshakes <= 64
            for one in crowd:
                one.close()

    asyncio.run(run())


CERTIFICATE_FAULTS = {
    "none": "no certificate",
    "other group": "not of this group",
    "expired": "expired",
    "revoked": "revoked",
    "another member's": "its certificate is for",
}


def client_context(certificate: Path, ca: Path) -> ssl.SSLContext:
    """TLS that trusts any server, to dial with a certificate of our choice."""
    context = Credentials.load(certificate, ca=ca).client
    context.verify_mode = ssl.CERT_NONE
    return context


@pytest.mark.parametrize("fault", CERTIFICATE_FAULTS)
def test_a_certificate_that_does_not_count_is_refused(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with pair(tmp_path / "keys") as groups:
            heard = await dial(groups, tmp_path, fault)
            assert all(kind == frame.REFUSE for kind in kinds(heard))
            await until(lambda: CERTIFICATE_FAULTS[fault] in caplog.text)
            await require_alive(groups)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())


async def dial(groups: list[Group], folder: Path, fault: str) -> bytes:
    """Send HELLO with a wrong certificate; returns the answer, nothing when TLS itself refused."""
    keys = folder / "keys"
    if fault == "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif fault == "other group":
        init(folder / "other")
        context = client_context(issue(folder / "other", STRANGER), folder / "other" / "group.pem")
    elif fault == "expired":
        context = client_context(issue(keys, STRANGER, days=0), keys / "group.pem")
    elif fault == "revoked":
        certificate = issue(keys, STRANGER)
        context = client_context(certificate, keys / "group.pem")
        revoke(keys, certificate)
        groups[0].refresh_credentials()
    else:
        context = client_context(issue(keys, "127.0.0.1:10"), keys / "group.pem")
    try:
        return await speak(groups[0].address, hello(groups[0]), context)
    except (ssl.SSLError, ConnectionError):
        return b""


def test_a_peer_with_its_own_certificate_is_welcome(tmp_path: Path) -> None:
    async def run() -> None:
        async with pair(tmp_path) as groups:
            context = client_context(issue(tmp_path, STRANGER), tmp_path / "group.pem")
            heard = await speak(groups[0].address, hello(groups[0]), context)
            assert kinds(heard)[0] == frame.WELCOME

    asyncio.run(run())
