"""Compare the bus between web workers with Redis: messages per second and latency, one process per worker.

python -m bench.bus                     # Channels layers and Socket.IO managers, 4 workers, alternating
python -m bench.bus --repeat 3 --seconds 5
python -m bench.bus --yields            # no worker has two messages in one turn of its event loop

Every worker sends to all, and every worker receives each message, including its sender. *Rate*: all workers send as
fast as they can with at most `--window` of their own messages in transit; the result is the deliveries per second of
all workers, and the processor time per delivery of all processes, including Redis, which depends less on other load of
the machine. *Latency*: one worker sends 100 messages per second, and the others measure the time from the call to the
reception.
`redis-server` (Debian: redis-server) is started on a free port, without persistence.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from cubecast.live.local import free_ports
from cubecast.live.loop import run
from tests.support.processes import LineProcess

ROOT = Path(__file__).parents[1]
KINDS = {
    "channels": ["cubecast", "channels_redis", "channels_redis pub/sub"],
    "socketio": ["cubecast", "Redis manager"],
}
LATENCY_PAUSE_S = 0.01
SETTLE_S = 0.5
START_S = 180.0
Receive = Callable[[dict[str, Any]], None]


# Worker.


class Traffic:
    """Sends and counts the messages of one worker."""

    def __init__(self, worker: int, send: Callable[[dict[str, Any]], Awaitable[None]], window: int) -> None:
        """Nothing sent."""
        self.worker = worker
        self.received = 0
        self.latencies_ns: list[int] = []
        self._send = send
        self._under_way = 0
        self._window = window
        self._room = asyncio.Event()

    def receive(self, message: dict[str, Any]) -> None:
        """Count a message that arrived."""
        self.received += 1
        if message["from"] == self.worker:
            self._under_way -= 1
            self._room.set()
        else:
            self.latencies_ns.append(time.monotonic_ns() - message["at"])

    async def send_all_the_time(self, text: str, *, yields: bool) -> None:
        """Send as fast as the window allows; let other tasks run after each message if it `yields`."""
        while True:
            while self._under_way >= self._window:
                self._room.clear()
                await self._room.wait()
            await self._send_one(text)
            if yields:
                await asyncio.sleep(0)

    async def send_at_times(self, text: str) -> None:
        """Send one message at a time."""
        while True:
            await self._send_one(text)
            await asyncio.sleep(LATENCY_PAUSE_S)

    async def _send_one(self, text: str) -> None:
        self._under_way += 1
        await self._send({"type": "m", "from": self.worker, "at": time.monotonic_ns(), "text": text})


async def channels_worker(chosen: argparse.Namespace) -> Traffic:
    """A worker with a channel layer and one channel in the group."""
    layer = _channel_layer(chosen)
    channel = await layer.new_channel()
    await layer.group_add("g", channel)
    traffic = Traffic(chosen.worker, lambda message: layer.group_send("g", message), chosen.window)

    async def receive() -> None:
        while True:
            traffic.receive(await layer.receive(channel))

    chosen.tasks.append(asyncio.create_task(receive()))
    return traffic


def _channel_layer(chosen: argparse.Namespace) -> Any:
    large = 100_000
    if chosen.who == "cubecast":
        from cubecast.contrib.channels import CubecastChannelLayer

        return CubecastChannelLayer(workers=chosen.bus, count=chosen.workers, plaintext=True, capacity=large)
    hosts = [f"redis://127.0.0.1:{chosen.redis}/0"]
    if chosen.who == "channels_redis":
        from channels_redis.core import RedisChannelLayer

        return RedisChannelLayer(hosts=hosts, capacity=large)
    from channels_redis.pubsub import RedisPubSubChannelLayer

    return RedisPubSubChannelLayer(hosts=hosts)


async def socketio_worker(chosen: argparse.Namespace) -> Traffic:
    """A worker with a Socket.IO server; messages for its clients are counted by the traffic."""
    import socketio

    holder: list[Traffic] = []
    manager = _socketio_manager(chosen, lambda message: holder[0].receive(message))
    server = socketio.AsyncServer(async_mode="asgi", client_manager=manager)
    manager.initialize()
    holder.append(Traffic(chosen.worker, lambda message: server.emit("m", message, room="g"), chosen.window))
    return holder[0]


def _socketio_manager(chosen: argparse.Namespace, receive: Receive) -> Any:
    if chosen.who == "cubecast":
        from cubecast.contrib.socketio import CubecastManager

        base: Any = CubecastManager
        options: dict[str, Any] = {"workers": chosen.bus, "count": chosen.workers, "plaintext": True}
    else:
        import socketio

        base = socketio.AsyncRedisManager
        options = {"url": f"redis://127.0.0.1:{chosen.redis}/0"}

    class Counted(base):  # type: ignore[misc]
        """Counts the messages that it would send to its clients."""

        async def _handle_emit(self, message: dict[str, Any]) -> None:
            receive(message["data"][0])

    return Counted(**options)


async def work(chosen: argparse.Namespace) -> None:
    """Serve one measurement: join, report ready, send on command, report."""
    chosen.tasks = []
    traffic = await {"channels": channels_worker, "socketio": socketio_worker}[chosen.kind](chosen)
    await _wait_for_all(traffic, chosen.workers)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    text = "x" * chosen.payload
    if chosen.latency:
        sending = asyncio.create_task(traffic.send_at_times(text)) if chosen.worker == 0 else None
    else:
        sending = asyncio.create_task(traffic.send_all_the_time(text, yields=chosen.yields))
    await asyncio.sleep(SETTLE_S)
    before, traffic.latencies_ns = traffic.received, []
    began, cpu_s = time.monotonic(), time.process_time()
    await asyncio.sleep(chosen.seconds)
    received = traffic.received - before
    rate, cpu_s = received / (time.monotonic() - began), time.process_time() - cpu_s
    latencies = sorted(traffic.latencies_ns)
    some = latencies[:: max(1, len(latencies) // 2000)]
    print(json.dumps({"rate": rate, "received": received, "cpu_s": cpu_s, "latencies_ns": some}), flush=True)
    if sending is not None:
        sending.cancel()
    await asyncio.to_thread(sys.stdin.readline)


async def _wait_for_all(traffic: Traffic, workers: int) -> None:
    """Send from time to time until messages of all workers arrive here, and ours at all of them."""
    seen: set[int] = set()
    receive = traffic.receive

    def note(message: dict[str, Any]) -> None:
        receive(message)
        seen.add(message["from"])

    traffic.receive = note  # type: ignore[method-assign]
    async with asyncio.timeout(START_S):
        while len(seen) < workers:
            await traffic._send_one("")
            await asyncio.sleep(0.05)
        for _ in range(10):
            await traffic._send_one("")
            await asyncio.sleep(0.05)
    traffic.receive = receive  # type: ignore[method-assign]


# The measurement.


class Redis(NamedTuple):
    """A running server."""

    port: int
    process: int

    def cpu_s(self) -> float:
        """Processor time used so far."""
        words = Path(f"/proc/{self.process}/stat").read_text("utf-8").rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@contextmanager
def redis_server() -> Iterator[Redis]:
    """A temporary Redis server."""
    program = shutil.which("redis-server")
    if program is None:
        sys.exit("redis-server is missing; on Debian or Ubuntu: sudo apt-get install redis-server")
    (port,) = free_ports(1)
    options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--appendonly", "no"]
    with tempfile.TemporaryDirectory() as folder:
        server = subprocess.Popen([program, *options], cwd=folder, stdout=subprocess.DEVNULL)
        try:
            yield Redis(port, server.pid)
        finally:
            server.terminate()
            server.wait()


def _first_of_free_ports(count: int) -> int:
    """The first of several consecutive ports that are free, below those that systems give to clients."""
    for first in range(20_000 + os.getpid() % 10_000, 32_000, count):
        with ExitStack() as sockets:
            try:
                for port in range(first, first + count):
                    sockets.enter_context(socket.create_server(("127.0.0.1", port)))
            except OSError:
                continue
            return first
    sys.exit(f"no {count} consecutive ports are free")


def measure(kind: str, who: str, redis: Redis, chosen: argparse.Namespace, *, latency: bool) -> dict[str, Any]:
    """One measurement with all workers."""
    bus = _first_of_free_ports(chosen.workers)
    options = [f"--{name}={getattr(chosen, name)}" for name in ("workers", "seconds", "window", "payload")]
    command = [sys.executable, "-m", "bench.bus", f"--kind={kind}", f"--who={who}", f"--redis={redis.port}"]
    command += [f"--bus=127.0.0.1:{bus}", *options]
    command += ["--latency"] * latency + ["--yields"] * chosen.yields
    workers = [LineProcess([*command, f"--worker={number}"], folder=ROOT) for number in range(chosen.workers)]
    try:
        for worker in workers:
            assert worker.read_line() == "ready"
        began_s = redis.cpu_s()
        for worker in workers:
            worker.write_line("go")
        found = [json.loads(worker.read_line()) for worker in workers]
    finally:
        for worker in workers:
            worker.close()
    latencies = sorted(one for part in found for one in part["latencies_ns"])
    if latency:
        return {
            "median_ms": statistics.median(latencies) / 1e6,
            "p99_ms": latencies[int(len(latencies) * 0.99)] / 1e6,
        }
    share = chosen.seconds / (chosen.seconds + SETTLE_S)
    cpu_s = sum(part["cpu_s"] for part in found) + (redis.cpu_s() - began_s) * share
    received = sum(part["received"] for part in found)
    return {"rate": sum(part["rate"] for part in found), "cpu_us_per_delivery": 1e6 * cpu_s / max(1, received)}


def compare(chosen: argparse.Namespace) -> None:
    """Measure all contenders, alternating, `--repeat` times."""
    with redis_server() as redis:
        runs: dict[tuple[str, str], list[dict[str, Any]]] = {}
        for _ in range(chosen.repeat):
            for kind, names in KINDS.items():
                for who in names:
                    rate = measure(kind, who, redis, chosen, latency=False)
                    late = measure(kind, who, redis, chosen, latency=True)
                    runs.setdefault((kind, who), []).append(rate | late)
    for (kind, who), found in runs.items():
        row = {key: round(statistics.median(one[key] for one in found), 2) for key in found[0]}
        print(json.dumps({"kind": kind, "who": who, "workers": chosen.workers, **row}), flush=True)


def main() -> None:
    """Measure, or be a worker of a measurement."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--payload", type=int, default=100, help="characters of text in a message")
    parser.add_argument("--window", type=int, default=100, help="own messages of a worker in transit")
    parser.add_argument("--yields", action="store_true", help="a worker lets other tasks run after each message")
    for name in ("kind", "who", "bus"):
        parser.add_argument(f"--{name}", help=argparse.SUPPRESS)
    for name in ("worker", "redis"):
        parser.add_argument(f"--{name}", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--latency", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.worker is None:
        compare(chosen)
    else:
        run(work(chosen))


if __name__ == "__main__":
    main()
