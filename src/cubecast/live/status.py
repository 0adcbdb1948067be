"""The status of a member and its group, over HTTP.

| address        | gives                                                                            |
|----------------|----------------------------------------------------------------------------------|
| `/`            | the page; it needs nothing but this member                                       |
| `/status.json` | `Group.status()` and its recent history                                          |
| `/metrics`     | the Prometheus text format (`live/metrics.py`)                                   |
| `/livez`       | 200 while the event loop runs and the member has not failed: restart it if not   |
| `/readyz`      | 200 while the member is in the group and not blocked; 503 with the reason if not |
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

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.member.settings import Settings, parse_address

if TYPE_CHECKING:
    from cubecast.live.group import Group
    from cubecast.member.member import Member
    from cubecast.protocol.overlays import Overlay
    from cubecast.protocols.membership.views import MemberId

SAMPLE_S = 1.0
SAMPLES = 600
REQUEST_BYTES_MAX = 8192
REQUEST_TIMEOUT_S = 5.0


def status_of(group: Group) -> dict[str, Any]:
    """The state of a member and its group, as the member knows it."""
    member = group._entered().member
    stats = group.stats
    links = _with_paths(group, stats.pop("links"))
    view = member.view
    members = view.members if view is not None else ()
    behind = dict(member.laggards())
    frontier, received = member.frontier, _received(member)
    return {
        "group": group.name,
        "rank": members.index(member.me) if member.me in members else -1,
        "address": member.me.name,
        "incarnation": member.me.incarnation,
        "view": view.number if view is not None else 0,
        "phase": member.phase,
        "blocked": member.is_blocked,
        "changing": member.is_changing,
        "waiting_for": "" if member.phase == "member" else member.waiting_for(),
        "members": [
            {
                "rank": rank,
                "address": who.name,
                "incarnation": who.incarnation,
                "link": links.get(who.name),
                "received": received.get(who, 0),
                "stable": frontier.get(who, 0),
                "behind": behind.get(who, 0),
            }
            for rank, who in enumerate(members)
        ],
        "gone": list(group._notices.gone.values()),
        "overlay": _overlay(len(members), group.settings),
        "stability": {
            "protocol": group.settings.stability_entry.name,
            "parameters": dict(group.settings.stability_parameters),
            "round_every_s": group.settings.round_every_s,
        },
        "stats": stats,
    }


def _with_paths(group: Group, links: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The links with what the system knows of their connections."""
    driver = group._entered()
    for name, found in links.items():
        pipe = driver.member.links.links[name].pipe
        path = None if pipe is None else driver.connections.path_quality(pipe.number)
        found["rtt_ms"] = None if path is None else path.rtt_ms
        found["segments"] = 0 if path is None else path.segments
        found["retransmitted"] = 0 if path is None else path.retransmitted
    return links


def _received(member: Member) -> dict[MemberId, int]:
    """How many messages of each member of the view this one has."""
    view, delivered = member.view, member.delivered()
    if view is None or len(delivered) != len(view.members):
        return {}
    return {who: sent + count for who, sent, count in zip(view.members, view.sent, delivered, strict=True)}


@lru_cache(maxsize=8)
def _overlay(members: int, settings: Settings) -> list[tuple[int, int]]:
    """Which ranks hold a link to each other, the lower one first."""
    if not members:
        return []
    data = settings.data_for(members).live
    assert data is not None
    if data.overlay is None:
        return list(combinations(range(members), 2))
    from cubecast.protocol.overlays import hypercube

    return sorted(_pairs(hypercube(members)) | _pairs(data.overlay(members)))


def _pairs(overlay: Overlay) -> set[tuple[int, int]]:
    ranks = range(len(overlay.offsets) - 1)
    return {
        (min(rank, int(other)), max(rank, int(other)))
        for rank in ranks
        for other in overlay.neighbours[overlay.offsets[rank] : overlay.offsets[rank + 1]]
    }


class StatusServer:
    """Serves the status of one member: `async with StatusServer(group, "127.0.0.1:9001")`, or `join(status=...)`."""

    def __init__(self, group: Group, listen: str) -> None:
        """Nothing is opened before `async with`."""
        self._group = group
        self._host, self._port = parse_address(listen)
        self._course: deque[dict[str, float]] = deque(maxlen=SAMPLES)
        self._server: asyncio.Server | None = None
        self._sampling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StatusServer:
        """Open the port."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=REQUEST_BYTES_MAX, start_serving=False
            )
        except OSError as error:
            raise LocalProtocolError(f"cannot serve status on {self._host}:{self._port}: {error.strerror}") from error
        try:
            await self._server.start_serving()
        except BaseException:  # cancelled: the port must be free again
            self._server.close()
            raise
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
                body = json.dumps(self._group.status() | {"course": list(self._course)})
                return "200 OK", "application/json", body.encode()
            if path == "/metrics":
                from cubecast.live.metrics import metrics_text

                return "200 OK", "text/plain; version=0.0.4; charset=utf-8", metrics_text(self._group)
            if path in ("/livez", "/readyz"):
                reason = self._why_not_live() if path == "/livez" else self._why_not_ready()
                status = "503 Service Unavailable" if reason else "200 OK"
                return status, "text/plain; charset=utf-8", f"{reason or 'ok'}\n".encode()
        except CubecastError as error:
            return "503 Service Unavailable", "text/plain; charset=utf-8", str(error).encode()
        return "404 Not Found", "text/plain; charset=utf-8", b"try /, /status.json, /metrics, /livez or /readyz\n"

    def _why_not_live(self) -> str:
        driver = self._group._entered()
        if driver.failure is not None:
            return f"failed: {driver.failure}"
        return "this member has left" if driver.is_ended else ""

    def _why_not_ready(self) -> str:
        reason = self._why_not_live()
        member = self._group._entered().member
        if not reason and member.phase != "member":
            reason = member.waiting_for() or member.phase
        return reason or ("blocked: too few members reachable" if member.is_blocked else "")


def _page() -> bytes:
    return resources.files("cubecast.live").joinpath("status.html").read_bytes()


def _response(status: str, kind: str, body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
