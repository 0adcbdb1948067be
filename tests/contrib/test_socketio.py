"""The Socket.IO manager in uses that would break it; tests/contrib/test_examples.py has real workers and clients."""

from __future__ import annotations

import asyncio
import json
import socket
from typing import Any

import pytest
import socketio

from cubecast.contrib.socketio import CubecastManager
from cubecast.errors import LocalProtocolError
from cubecast.live.group import Group, join
from cubecast.live.local import free_addresses
from tests.live.members import quick

pytestmark = pytest.mark.live


class Octets:
    """A JSON package that returns bytes, as several fast ones do."""

    loads = staticmethod(json.loads)

    @staticmethod
    def dumps(value: Any, **_options: Any) -> bytes:
        return json.dumps(value).encode()


def alone(**options: Any) -> CubecastManager:
    (address,) = free_addresses(1)

    async def enter() -> Group:
        return await join("s", listen=address, found=True, plaintext=True, settings=quick()).__aenter__()

    return CubecastManager(join=enter, **options)


@pytest.mark.parametrize("package", [None, Octets])
def test_text_and_bytes_are_emitted_and_what_cannot_be_encoded_is_refused_in_one_line(package: Any) -> None:
    async def run() -> None:
        manager = alone(json=package, write_only=True)  # with a server, the package of the server is used
        for data in ("text", b"\x00\xff", {"a": [1, None]}):
            await manager.emit("event", data, namespace="/")
        with pytest.raises(LocalProtocolError, match="the data of 'event' cannot be encoded"):
            await manager.emit("event", {1, 2}, namespace="/")
        await manager.close()

    asyncio.run(run())


def test_a_manager_that_cannot_join_says_why_although_the_server_does_not(caplog: pytest.LogCaptureFixture) -> None:
    (address,) = free_addresses(1)
    host, _, port = address.rpartition(":")

    async def run() -> None:
        with socket.create_server((host, int(port))):
            manager = CubecastManager(workers=address, count=1, plaintext=True)
            server = socketio.AsyncServer(async_mode="asgi", client_manager=manager)
            app = socketio.ASGIApp(server, on_startup=manager.open)
            asked = iter([{"type": "lifespan.startup"}])
            answers: list[Any] = []

            async def receive() -> Any:
                return next(asked)

            async def send(answer: Any) -> None:
                answers.append(answer)

            await app({"type": "lifespan"}, receive, send)
            assert [answer["type"] for answer in answers] == ["lifespan.startup.failed"]

    asyncio.run(run())
    (reason,) = [record.getMessage() for record in caplog.records if record.name == "cubecast.contrib.socketio"]
    assert reason.startswith(f"client manager cannot join error=all 1 addresses from {address} are taken")


def test_a_manager_that_cannot_join_pauses_between_its_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("cubecast.contrib.socketio.RETRY_S", 0.1)
    attempts = 0

    async def fail() -> Group:
        nonlocal attempts
        attempts += 1
        raise LocalProtocolError("all addresses are taken")

    async def run() -> None:
        manager = CubecastManager(join=fail)
        manager.set_server(socketio.AsyncServer(client_manager=manager, logger=False))
        listening = asyncio.create_task(manager._thread())
        await asyncio.sleep(0.35)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)

    asyncio.run(run())
    assert 1 < attempts < 6
