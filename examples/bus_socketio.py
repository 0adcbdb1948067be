"""Socket.IO clients of several workers in one room, without Redis: python-socketio and `CubecastManager`.

    pip install 'cubecast[socketio]' uvicorn websockets
    WORKERS=4 uvicorn examples.bus_socketio:app --workers 4

A client must speak websocket from the start (`transports=["websocket"]`): requests of long polling reach any worker.
"""

from __future__ import annotations

import os
from typing import Any

import socketio

from cubecast.contrib.socketio import CubecastManager

manager = CubecastManager(
    group="rooms",
    workers=os.environ.get("BUS", "127.0.0.1:7200"),
    count=int(os.environ.get("WORKERS", "1")),
    plaintext=True,
)
server = socketio.AsyncServer(async_mode="asgi", client_manager=manager)


@server.event  # type: ignore[untyped-decorator]
async def connect(sid: str, environ: dict[str, Any]) -> None:
    """A client came: say which worker it has."""
    await server.enter_room(sid, "everybody")
    await server.emit("welcome", os.getpid(), to=sid)


@server.event  # type: ignore[untyped-decorator]
async def say(sid: str, line: Any) -> None:
    """A client says something to everybody, at whichever worker they are."""
    await server.emit("said", line, room="everybody")


async def start() -> None:
    """Join the group before the first client comes."""
    await manager.open()


app = socketio.ASGIApp(server, on_startup=start, on_shutdown=manager.close)
