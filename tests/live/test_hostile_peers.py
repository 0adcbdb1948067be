"""Peers that are not members, lie, send garbage or nothing at all: refused with a reason, and the group goes on."""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from cubecast.live.credentials import Credentials
from cubecast.live.group import LiveGroup, join
from cubecast.live.keys import init, issue, revoke
from cubecast.live.local import free_addresses
from cubecast.live.settings import Settings
from cubecast.wire import frame, greeting
from cubecast.wire.greeting import Greeting

pytestmark = pytest.mark.live


@asynccontextmanager
async def pair(folder: Path | None = None, *, missing: int = 0, **settings: float) -> AsyncIterator[list[LiveGroup]]:
    """Two members in this process, and addresses of members that nobody started."""
    addresses = free_addresses(2 + missing)
    own = addresses[:2]
    if folder is not None:
        init(folder)
    chosen = Settings(join_timeout_s=0.1 if missing else 30.0, **settings)  # type: ignore[arg-type]
    groups = [
        join(
            "pair",
            listen=address,
            peers=addresses,
            credentials=Credentials.load(issue(folder, address), ca=folder / "group.pem") if folder else None,
            plaintext=folder is None,
            settings=chosen,
        )
        for address in own
    ]
    async with asyncio.TaskGroup() as tasks:
        for group in groups:
            tasks.create_task(group.__aenter__())
    try:
        yield groups
    finally:
        await asyncio.gather(*(group.leave(drain=False) for group in groups))


async def require_alive(groups: list[LiveGroup]) -> None:
    """A message still reaches everybody and becomes stable."""
    message = await groups[0].multicast(b"still here")
    await message.stable(10, hurry=True)


async def speak(address: str, octets: bytes, context: ssl.SSLContext | None = None) -> bytes:
    """Connect, say something, and read until the other side closes."""
    host, port = address.split(":")
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        writer.write(octets)
        return await asyncio.wait_for(reader.read(1 << 16), 10)
    finally:
        writer.close()


def hello(knocked_at: LiveGroup, /, **changes: object) -> bytes:
    """The greeting of a member that was never started (rank 2), changed."""
    assert knocked_at._member is not None
    said = {
        "group": "pair",
        "rank": 2,
        "towards": 0,
        "incarnation": 77,
        "knows": 0,
        "received": 0,
        "terms": knocked_at._member.transport.terms,
    }
    body = greeting.encode(Greeting(**(said | changes)))  # type: ignore[arg-type]
    return frame.encode_frame(frame.HELLO, 0, body)


@pytest.mark.parametrize(
    ("octets", "reason"),
    [
        (b"GET / HTTP/1.1\r\nHost: cubecast\r\n\r\n", "version"),
        (bytes(64), "version 0"),
        (frame.encode_frame(frame.DATA, 1, b""), "not with a greeting"),
        (frame.encode_header(frame.HELLO, 0, 1 << 30), "the limit is"),
        (frame.encode_frame(frame.HELLO, 0, b"\xff" * 40), "malformed greeting"),
    ],
)
def test_garbage_is_refused_and_the_group_goes_on(octets: bytes, reason: str, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        async with pair() as groups:
            await speak(groups[0].addresses[0], octets)
            await asyncio.sleep(0.05)
            assert reason in caplog.text
            assert groups[0].stats["refused_connections"] == 1
            await require_alive(groups)

    with caplog.at_level(logging.INFO):
        asyncio.run(run())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"group": "other"}, "of group 'other'"),
        ({"rank": 0}, "says it is rank 0"),
        ({"rank": 40}, "says it is rank 40"),
        ({"towards": 1}, "speaks to rank 1"),
        ({"terms": bytes(16)}, "settings differ"),
        ({"rank": 1, "incarnation": 99}, "started again"),
        ({"knows": 1234}, "started again"),
    ],
)
def test_a_greeting_that_is_not_ours_is_refused(changes: dict[str, object], reason: str) -> None:
    async def run() -> None:
        async with pair(missing=1) as groups:
            answer = await speak(groups[0].addresses[0], hello(groups[0], **changes))
            (refused,) = frame.FrameReader(4096).feed(answer)
            assert refused.kind == frame.REFUSE
            assert reason in greeting.decode(greeting.Refusal, refused.body).reason

    asyncio.run(run())


def test_a_member_that_breaks_the_protocol_after_its_greeting_loses_its_connection() -> None:
    async def run() -> None:
        async with pair(missing=1) as groups:
            gap = frame.encode_frame(frame.DATA, 5, b"")
            answer = await speak(groups[0].addresses[0], hello(groups[0]) + gap)
            assert next(iter(frame.FrameReader(4096).feed(answer))).kind == frame.WELCOME

    asyncio.run(run())


def test_a_connection_that_says_nothing_is_closed_in_time() -> None:
    async def run() -> None:
        async with pair(greeting_timeout_s=0.3) as groups:
            assert await speak(groups[0].addresses[0], b"") == b""
            assert await speak(groups[0].addresses[0], b"\x01") == b""
            await require_alive(groups)

    asyncio.run(run())


def test_a_crowd_of_silent_connections_does_not_shut_the_group_down() -> None:
    async def run() -> None:
        async with pair(greeting_timeout_s=2.0) as groups:
            host, port = groups[0].addresses[0].split(":")
            crowd = [socket.create_connection((host, int(port))) for _ in range(200)]
            await require_alive(groups)
            await asyncio.sleep(0.1)
            assert groups[0]._member is not None
            assert len(groups[0]._member.transport._greeting) <= 64
            for one in crowd:
                one.close()

    asyncio.run(run())


def client_context(certificate: Path, ca: Path) -> ssl.SSLContext:
    """TLS that trusts whoever answers, to knock with a certificate of our choice."""
    context = Credentials.load(certificate, ca=ca).client
    context.verify_mode = ssl.CERT_NONE
    return context


CERTIFICATE_FAULTS = {
    "none": "did not return a certificate",
    "other group": "certificate verify failed",
    "expired": "certificate has expired",
    "revoked": "certificate revoked",
    "another member's": "its certificate is for",
}


@pytest.mark.parametrize("fault", CERTIFICATE_FAULTS)
def test_a_certificate_that_does_not_count_is_refused(
    fault: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with pair(tmp_path / "keys", missing=1) as groups:
            knocked = await knock(groups, tmp_path, fault)
            frames = list(frame.FrameReader(4096).feed(knocked))
            assert all(one.kind == frame.REFUSE for one in frames)
            await asyncio.sleep(0.05)
            assert groups[0]._member is not None
            assert 2 not in groups[0]._member.transport.links or not groups[0]._member.transport.links[2].is_up
            assert CERTIFICATE_FAULTS[fault] in caplog.text
            assert groups[0].stats["refused_connections"] == (fault != "revoked")

    asyncio.run(run())


async def knock(groups: list[LiveGroup], folder: Path, fault: str) -> bytes:
    """Greet as rank 2 with a wrong certificate; what came back, nothing when TLS itself refused."""
    address = groups[0].addresses[2]
    keys = folder / "keys"
    if fault == "none":
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    elif fault == "other group":
        init(folder / "other")
        context = client_context(issue(folder / "other", address), folder / "other" / "group.pem")
    elif fault == "expired":
        context = client_context(issue(keys, address, days=0), keys / "group.pem")
    elif fault == "revoked":
        certificate = issue(keys, address)
        revoke(keys, certificate)
        return await knock_at_new_member(keys, certificate)
    else:
        context = client_context(issue(keys, "127.0.0.1:9"), keys / "group.pem")
    try:
        return await speak(groups[0].addresses[0], hello(groups[0]), context)
    except (ssl.SSLError, ConnectionError):
        return b""


async def knock_at_new_member(keys: Path, certificate: Path) -> bytes:
    """A member started after the revocation obeys it."""
    own, other = free_addresses(2)
    credentials = Credentials.load(issue(keys, own), ca=keys / "group.pem")
    settings = Settings(join_timeout_s=0.3)
    async with join("pair", listen=own, peers=[other], credentials=credentials, settings=settings) as group:
        try:
            return await speak(own, hello(group, rank=1), client_context(certificate, keys / "group.pem"))
        except (ssl.SSLError, ConnectionError):
            return b""
        finally:
            await group.leave(drain=False)


def test_a_member_with_its_own_certificate_is_welcome(tmp_path: Path) -> None:
    async def run() -> None:
        async with pair(tmp_path, missing=1) as groups:
            context = client_context(issue(tmp_path, groups[0].addresses[2]), tmp_path / "group.pem")
            answer = await speak(groups[0].addresses[0], hello(groups[0]), context)
            assert next(iter(frame.FrameReader(4096).feed(answer))).kind == frame.WELCOME

    asyncio.run(run())
