"""The status of a member and its group, over HTTP.

| address        | gives                                                                            |
|----------------|----------------------------------------------------------------------------------|
| `/`            | the page of this member and its whole group; it loads nothing else               |
| `/status.json` | `Group.status()`, the views it saw, and samples of the last minutes              |
| `/group.json`  | the whole group: every member's report, asked for now (`live/whole_group.py`)    |
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

import msgspec

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.live import http
from cubecast.live.member_report import journal_report, received_by
from cubecast.live.whole_group import WholeGroup
from cubecast.member.settings import Settings, parse_address

if TYPE_CHECKING:
    from cubecast.live.group import Group
    from cubecast.protocol.overlays import Overlay

SAMPLE_S = 1.0
SAMPLES = 600
REQUEST_TIMEOUT_S = 5.0


def status_of(group: Group) -> dict[str, Any]:
    """The status of a member and its group, as the member knows it."""
    member = group._entered().member
    stats = group.stats
    links = _with_paths(group, stats.pop("links"))
    view = member.view
    members = view.members if view is not None else ()
    behind = dict(member.laggards())
    frontier, received = member.frontier, received_by(member)
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
        "journal": msgspec.to_builtins(journal_report(group)),
        "stats": stats,
    }


def _with_paths(group: Group, links: dict[str, dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """The links with the quality of their paths, as the system reports it."""
    driver = group._entered()
    for name, found in links.items():
        pipe = driver.member.links.links[name].pipe
        path = None if pipe is None else driver.connections.path_quality(pipe.number)
        found["rtt_ms"] = None if path is None else path.rtt_ms
        found["segments"] = 0 if path is None else path.segments
        found["retransmitted"] = 0 if path is None else path.retransmitted
    return links


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
        self._whole = WholeGroup(group)
        self._host, self._port = parse_address(listen)
        self._course: deque[dict[str, float]] = deque(maxlen=SAMPLES)
        self._server: asyncio.Server | None = None
        self._sampling: asyncio.Task[None] | None = None

    async def __aenter__(self) -> StatusServer:
        """Open the port."""
        try:
            self._server = await asyncio.start_server(
                self._serve, self._host, self._port, limit=http.REQUEST_BYTES_MAX, start_serving=False
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
        self._whole.close()
        if self._server is not None:
            self._server.close()

    async def _sample(self) -> None:
        while True:
            with suppress(CubecastError):
                self._course.append(_sample_of(self._group.stats))
            await asyncio.sleep(SAMPLE_S)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S):
                request = await reader.readuntil(http.END_OF_HEAD)
                answer = await self._answer(http.path_of(request))
                writer.write(http.encode_answer(*answer, has_body=not http.is_head(request)))
                await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(self, path: str) -> tuple[str, str, bytes]:
        try:
            if path == "/":
                return http.OK, http.HTML, _page()
            if path == "/status.json":
                return http.OK, http.JSON, json.dumps(self._own_status()).encode()
            if path == "/group.json":
                return http.OK, http.JSON, json.dumps(await self._whole.status()).encode()
            if path == "/metrics":
                from cubecast.live.metrics import metrics_text

                return http.OK, "text/plain; version=0.0.4; charset=utf-8", metrics_text(self._group)
            if path in ("/livez", "/readyz"):
                reason = self._why_not_live() if path == "/livez" else self._why_not_ready()
                return http.UNAVAILABLE if reason else http.OK, http.TEXT, f"{reason or 'ok'}\n".encode()
        except CubecastError as error:
            return http.UNAVAILABLE, http.TEXT, str(error).encode()
        known = b"try /, /status.json, /group.json, /metrics, /livez or /readyz\n"
        return http.NOT_FOUND, http.TEXT, known

    def _own_status(self) -> dict[str, Any]:
        views = msgspec.to_builtins(list(self._group._notices.history.views))
        return self._group.status() | {"views": views, "course": list(self._course)}

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


def _sample_of(stats: dict[str, Any]) -> dict[str, float]:
    """What the charts of the page show: counts so far, and sizes now."""
    links = stats["links"].values()
    return {
        "time": time.time(),
        "lag": float(stats["unstable_messages"]),
        "bytes": float(stats["unstable_bytes"]),
        "delivered": float(stats["delivered"]),
        "published": float(stats["published"]),
        "bytes_in": float(sum(link["bytes_in"] for link in links)),
        "bytes_out": float(sum(link["bytes_out"] for link in links)),
    }
