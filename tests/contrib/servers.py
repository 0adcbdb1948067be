"""An example as a user runs it: uvicorn with several workers, or several daphne processes, and real clients."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import WebSocketException

from cubecast.live.local import free_ports

ROOT = Path(__file__).parents[2]
START_S = 120.0
TRIES_S = 0.2


class Served:
    """A server with several workers, or with one."""

    def __init__(
        self, port: int, process: subprocess.Popen[bytes], again: Callable[[int], Served] | None = None
    ) -> None:
        """Started; `again` starts it again."""
        self.port = port
        self.process = process
        self._again = again

    def kill(self) -> Served:
        """Kill it, and start it again."""
        assert self._again is not None
        self.process.kill()
        self.process.wait()
        return self._again(self.port)

    async def open(self, path: str = "/") -> tuple[ClientConnection, int]:
        """A websocket client, and the process that serves it."""
        async with asyncio.timeout(START_S):
            while True:
                assert self.process.poll() is None, "the server ended"
                try:
                    client = await connect(f"ws://127.0.0.1:{self.port}{path}")
                    return client, int(str(await client.recv()).rpartition(" ")[2])
                except (OSError, WebSocketException):
                    await asyncio.sleep(TRIES_S)

    async def clients(self, path: str, workers: int) -> dict[int, ClientConnection]:
        """One client of each worker, by its process."""
        found: dict[int, ClientConnection] = {}
        async with asyncio.timeout(START_S):
            while len(found) < workers:
                client, process = await self.open(path)
                if process in found:
                    await client.close()
                    await asyncio.sleep(0.01)
                else:
                    found[process] = client
        return found


def free_range(count: int) -> int:
    """The first of several free ports in a row."""
    while True:
        ports = free_ports(1)
        wanted = range(ports[0], ports[0] + count)
        if wanted[-1] < 1 << 16 and not [port for port in wanted if not _is_free(port)]:
            return ports[0]


def _is_free(port: int) -> bool:
    import socket

    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) != 0


@asynccontextmanager
async def served(example: str, workers: int, folder: Path) -> AsyncIterator[Served]:
    """Run `uvicorn examples.NAME:app --workers N`; in the end it must stop by itself after SIGTERM."""
    (port,) = free_ports(1)
    environment = {
        **os.environ,
        "BUS": f"127.0.0.1:{free_range(workers)}",
        "WORKERS": str(workers),
        "CUBECAST_JIT": "off",
        "TMPDIR": str(folder),
    }
    command = [sys.executable, "-m", "uvicorn", f"examples.{example}:app", "--port", str(port)]
    log = folder / "server.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "--workers", str(workers)],
            cwd=ROOT,
            env=environment,
            stdout=output,
            stderr=output,
            process_group=0,
        )
        try:
            yield Served(port, process)
            process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(process.wait, 60)
        except BaseException:
            print(log.read_text("utf-8")[-5000:])
            raise
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # also workers whose parent is gone
            process.wait()


@asynccontextmanager
async def daphne(folder: Path, workers: int) -> AsyncIterator[list[Served]]:
    """Run `daphne examples.bus_channels:app` once per worker, each with its port; all must stop after SIGTERM.

    `folder` has daphne, which is not among the locked packages.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(folder)])),
        "BUS": f"127.0.0.1:{free_range(workers)}",
        "WORKERS": str(workers),
        "CUBECAST_JIT": "off",
        "TMPDIR": str(folder),
    }
    log = folder / "server.log"
    with log.open("wb") as output:

        def start(port: int) -> Served:
            command = [sys.executable, "-m", "daphne", "--port", str(port), "examples.bus_channels:app"]
            return Served(
                port, subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=output), again=start
            )

        servers = [start(port) for port in free_ports(workers)]
        try:
            yield servers
            for server in servers:
                server.process.terminate()
            for server in servers:
                await asyncio.to_thread(server.process.wait, 60)
        except BaseException:
            print(log.read_text("utf-8")[-5000:])
            raise
        finally:
            for server in servers:
                server.process.kill()
                server.process.wait()


async def lines(client: ClientConnection, wanted: str, timeout_s: float = 20.0) -> list[str]:
    """What a client reads until the wanted line."""
    got: list[str] = []
    async with asyncio.timeout(timeout_s):
        while not got or got[-1] != wanted:
            got.append(str(await client.recv()))
    return got
