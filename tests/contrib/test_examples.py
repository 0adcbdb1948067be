"""The examples with several worker processes, and clients of each of them."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import socketio
from websockets.asyncio.client import ClientConnection

from tests.contrib.servers import Served, daphne, lines, served

pytestmark = [pytest.mark.live, pytest.mark.slow]

WORKERS = 3


async def talk(clients: dict[int, ClientConnection]) -> None:
    """Every client says a line, and all read all of them, each client's in their order."""
    for number in range(3):
        for process, client in clients.items():
            await client.send(f"{process} {number}")
    for process, client in clients.items():
        await client.send(f"{process} end")
    for client in clients.values():
        got = []
        for _ in range(4 * len(clients)):
            got.append(str(await asyncio.wait_for(client.recv(), 20)))
        for process in clients:
            assert [line for line in got if line.startswith(f"{process} ")] == [
                f"{process} {word}" for word in (0, 1, 2, "end")
            ]


async def lose_a_worker(server: Served, clients: dict[int, ClientConnection]) -> None:
    """Kill a worker: the others continue, and the one that replaces it joins them."""
    killed = next(iter(clients))
    os.kill(killed, signal.SIGKILL)
    del clients[killed]
    await talk(clients)
    for client in clients.values():
        await client.close()


@pytest.mark.parametrize(("example", "path"), [("bus_starlette", "/chat"), ("bus_channels", "/")])
def test_clients_of_all_workers_see_each_other_and_a_killed_worker_is_replaced(
    example: str, path: str, tmp_path: Path
) -> None:
    async def run() -> None:
        async with served(example, WORKERS, tmp_path) as server:
            clients = await server.clients(path, WORKERS)
            await talk(clients)
            await lose_a_worker(server, clients)
            again = await server.clients(path, WORKERS)
            await talk(again)
            for client in again.values():
                await client.close()

    asyncio.run(run())


def test_daphne_processes_share_a_room_and_a_killed_one_starts_again(tmp_path: Path) -> None:
    install = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "-q", "--target", str(tmp_path)]
    subprocess.run([*install, "daphne>=4.1,<5"], check=True, timeout=200)

    async def clients(servers: list[Served]) -> dict[int, ClientConnection]:
        found: dict[int, ClientConnection] = {}
        for server in servers:
            client, process = await server.open()
            assert process == server.process.pid
            found[process] = client
        return found

    async def run() -> None:
        async with daphne(tmp_path, WORKERS) as servers:
            before = await clients(servers)
            await talk(before)
            del before[servers[0].process.pid]
            servers[0] = servers[0].kill()
            await talk(before)
            everybody = before | await clients(servers[:1])
            await talk(everybody)
            with await asyncio.to_thread(
                urllib.request.urlopen, f"http://127.0.0.1:{servers[0].port}/announce", timeout=30
            ) as answer:
                assert answer.read() == b"announced\n"
            for client in everybody.values():
                assert await lines(client, "an announcement") == ["an announcement"]
                await client.close()

    asyncio.run(run())


def test_a_synchronous_view_reaches_the_clients_of_all_workers(tmp_path: Path) -> None:
    async def run() -> None:
        async with served("bus_channels", WORKERS, tmp_path) as server:
            clients = await server.clients("/", WORKERS)
            url = f"http://127.0.0.1:{server.port}/announce"
            with await asyncio.to_thread(urllib.request.urlopen, url, timeout=30) as answer:
                assert answer.read() == b"announced\n"
            for client in clients.values():
                assert await lines(client, "an announcement") == ["an announcement"]
                await client.close()

    asyncio.run(run())


@pytest.mark.parametrize(("example", "path"), [("bus_starlette", "/chat"), ("bus_channels", "/")])
def test_a_client_that_does_not_read_holds_up_nobody(example: str, path: str, tmp_path: Path) -> None:
    async def run() -> None:
        async with served(example, 2, tmp_path) as server:
            clients = await server.clients(path, 2)
            deaf, _ = await server.open(path)
            deaf.transport.pause_reading()
            talker, listener = clients.values()
            text = "x" * 10_000
            for number in range(2000):
                await talker.send(text)
                if number % 50 == 49:  # fewer than fit into the queue of a channel
                    await talker.send(f"mark {number}")
                    await lines(listener, f"mark {number}")
                    await lines(talker, f"mark {number}")
            deaf.transport.abort()
            if example == "bus_starlette":
                with await asyncio.to_thread(
                    urllib.request.urlopen, f"http://127.0.0.1:{server.port}/members", timeout=30
                ) as answer:
                    assert len(json.load(answer)["members"]) == 2
            for client in clients.values():
                await client.close()

    asyncio.run(run())


def test_socket_io_clients_of_all_workers_share_a_room_and_a_killed_worker_is_replaced(tmp_path: Path) -> None:
    async def run() -> None:
        async with served("bus_socketio", WORKERS, tmp_path) as server:
            clients = await socket_io_clients(server, WORKERS)
            await talk_in_a_room(clients)
            killed = next(iter(clients))
            os.kill(killed, signal.SIGKILL)
            del clients[killed]
            await talk_in_a_room(clients)
            for client in clients.values():
                await client.disconnect()
            again = await socket_io_clients(server, WORKERS)
            await talk_in_a_room(again)
            for client in again.values():
                await client.disconnect()

    asyncio.run(run())


class RoomClient(socketio.AsyncSimpleClient):  # type: ignore[misc]
    """A client of the room."""

    async def next(self, event: str) -> Any:
        """The value of the next event, which must be of this name."""
        name, value = await self.receive(timeout=20)
        assert name == event
        return value


async def socket_io_clients(server: Served, workers: int) -> dict[int, RoomClient]:
    """One client of each worker, by its process."""
    found: dict[int, RoomClient] = {}
    async with asyncio.timeout(120):
        while len(found) < workers:
            client = RoomClient()
            try:
                await client.connect(f"http://127.0.0.1:{server.port}", transports=["websocket"])
            except socketio.exceptions.ConnectionError:
                await asyncio.sleep(0.2)
                continue
            process = await client.next("welcome")
            if process in found:
                await client.disconnect()
            else:
                found[process] = client
    return found


async def talk_in_a_room(clients: dict[int, RoomClient]) -> None:
    """Every client says text and bytes, and all get all of it in the order of the speaker."""
    for process, client in clients.items():
        for value in (f"{process} text", {"of": process, "data": b"\x00\xff"}):
            await client.emit("say", value)
    for client in clients.values():
        got = [await client.next("said") for _ in range(2 * len(clients))]
        for process in clients:
            assert got.index(f"{process} text") < got.index({"of": process, "data": b"\x00\xff"})
