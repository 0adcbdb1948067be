"""A member's status over HTTP: a page that updates itself, the same as JSON, and metrics for Prometheus.

| path           | gives                                                                    |
|----------------|--------------------------------------------------------------------------|
| `/`            | the page; it needs nothing but this member                               |
| `/status.json` | `snapshot`: members, overlay, frontier, laggards, buffers, recent course |
| `/metrics`     | the Prometheus text format                                               |
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from contextlib import suppress
from functools import lru_cache
from importlib import resources
from itertools import combinations
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.live.settings import Settings, parse_address

if TYPE_CHECKING:
    from cubecast.live.changing.group import ChangingGroup
    from cubecast.live.group import LiveGroup

SAMPLE_S = 1.0
SAMPLES = 600
REQUEST_BYTES_MAX = 8192
REQUEST_TIMEOUT_S = 5.0
_GAUGES = (
    *("members", "unstable_messages", "unstable_bytes", "waiting_messages", "backlog_bytes", "round_ms"),
    *("blocked", "view", "lives"),
)
_COUNTERS = ("published", "delivered", "rounds", "refused_connections")


def look(group: LiveGroup | ChangingGroup) -> dict[str, Any]:
    """What a member of either kind of group knows of itself and its group."""
    return group.status() if hasattr(group, "status") else snapshot(group)


def snapshot(group: LiveGroup) -> dict[str, Any]:
    """What a member of a group of fixed members knows."""
    stats = group.stats
    received = group.received
    return {
        "group": group.name,
        "rank": group.rank,
        "address": group.addresses[group.rank],
        "view": group.view.number,
        "members": [
            {
                "rank": rank,
                "address": address,
                "member": rank in group.view.members,
                "link": stats["links"].get(rank),
                "received": received[rank],
                "stable": group.frontier[rank],
            }
            for rank, address in enumerate(group.addresses)
        ],
        "overlay": _overlay(len(group.addresses), group.view.members, group.settings),
        "laggards": [{"rank": one.rank, "address": one.address, "behind": one.behind} for one in group.laggards()],
        "stats": {name: value for name, value in stats.items() if name != "links"},
    }


@lru_cache(maxsize=8)
def _overlay(ranks: int, members: tuple[int, ...], settings: Settings) -> list[tuple[int, int]]:
    """Who is whose neighbour among these members, the lower rank first."""
    from cubecast.core.failure.survivors import survivors  # a member of a changing group never loads the compiler
    from cubecast.core.overlays import hypercube

    cube = hypercube(ranks)
    pairs: set[tuple[int, int]] = set()
    for rank in members:
        near = survivors(cube, rank, members).neighbours.tolist()
        pairs.update((rank, other) for other in near if rank < other)
    way = settings.causal_for(ranks)
    if way == "star":
        centre, *others = sorted(members)
        pairs.update((centre, other) for other in others)
    elif way == "timestamp":
        pairs.update(combinations(sorted(members), 2))
    return sorted(pairs)


class _Collector(Collector):
    """Metrics read at the moment they are asked for."""

    def __init__(self, group: LiveGroup | ChangingGroup) -> None:
        self._group = group

    def collect(self) -> list[Metric]:
        """Part of prometheus_client."""
        seen = look(self._group)
        labels = {"group": seen["group"], "rank": str(seen["rank"])}
        stats = {"view": seen["view"], **seen["stats"]}
        found: list[Metric] = []
        for name in [name for name in _GAUGES if name in stats]:
            gauge = GaugeMetricFamily(f"cubecast_{name}", name.replace("_", " "), labels=list(labels))
            gauge.add_metric(list(labels.values()), float(stats[name]))
            found.append(gauge)
        for name in [name for name in _COUNTERS if name in stats]:
            counter = CounterMetricFamily(f"cubecast_{name}", name.replace("_", " "), labels=list(labels))
            counter.add_metric(list(labels.values()), float(stats[name]))
            found.append(counter)
        behind = GaugeMetricFamily("cubecast_behind", "messages behind the first member", labels=[*labels, "member"])
        for one in seen["laggards"]:
            behind.add_metric([*labels.values(), str(one["rank"])], float(one["behind"]))
        return [*found, behind]


class StatusServer:
    """Serves the status of one member: `async with StatusServer(group, "127.0.0.1:9001")`."""

    def __init__(self, group: LiveGroup | ChangingGroup, listen: str) -> None:
        """Nothing is opened before `async with`."""
        self._group = group
        self._host, self._port = parse_address(listen)
        self._registry = CollectorRegistry()
        self._registry.register(_Collector(group))
        self._course: deque[dict[str, float]] = deque(maxlen=SAMPLES)
        self._server: asyncio.Server | None = None
        self._sampling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StatusServer:
        """Open the port."""
        try:
            self._server = await asyncio.start_server(self._serve, self._host, self._port, limit=REQUEST_BYTES_MAX)
        except OSError as error:
            raise LocalProtocolError(f"cannot serve status on {self._host}:{self._port}: {error.strerror}") from error
        self._sampling = asyncio.get_running_loop().create_task(self._sample())
        return self

    async def __aexit__(self, *_: object) -> None:
        """Close it."""
        if self._sampling is not None:
            self._sampling.cancel()
        if self._server is not None:
            self._server.close()

    async def _sample(self) -> None:
        while True:
            with suppress(CubecastError):
                stats = self._group.stats
                self._course.append(
                    {
                        "time": time.time(),
                        "lag": float(stats["unstable_messages"]),
                        "bytes": float(stats["unstable_bytes"]),
                        "delivered": float(stats["delivered"]),
                    }
                )
            await asyncio.sleep(SAMPLE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await reader.readuntil(b"\r\n\r\n")
                words = request.split(b"\r\n", 1)[0].split(b" ")
                path = words[1].decode("latin-1").split("?")[0] if len(words) == 3 and words[0] == b"GET" else ""
                writer.write(_response(*self._answer(path)))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    def _answer(self, path: str) -> tuple[str, str, bytes]:
        try:
            if path == "/":
                return "200 OK", "text/html; charset=utf-8", _page()
            if path == "/status.json":
                body = json.dumps(look(self._group) | {"course": list(self._course)})
                return "200 OK", "application/json", body.encode()
            if path == "/metrics":
                return "200 OK", "text/plain; version=0.0.4; charset=utf-8", generate_latest(self._registry)
        except CubecastError as error:
            return "503 Service Unavailable", "text/plain; charset=utf-8", str(error).encode()
        return "404 Not Found", "text/plain; charset=utf-8", b"try /, /status.json or /metrics\n"


def _page() -> bytes:
    return resources.files("cubecast.live").joinpath("status.html").read_bytes()


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
