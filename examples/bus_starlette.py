"""A chat between the clients of several workers, without a server beside them: Starlette and `Broadcast`.

    pip install 'cubecast[starlette]' uvicorn websockets
    WORKERS=4 uvicorn examples.bus_starlette:app --workers 4

Open http://127.0.0.1:8000/ in several windows: each is served by some worker, and all see every line.
"""

from __future__ import annotations

import asyncio
import os

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from cubecast.contrib.starlette import Broadcast

broadcast = Broadcast(
    group="chat",
    workers=os.environ.get("BUS", "127.0.0.1:7100"),
    count=int(os.environ.get("WORKERS", "1")),
    plaintext=True,
)

PAGE = """<!doctype html><title>chat</title><form><input autofocus size=60></form><pre></pre><script>
const socket = new WebSocket(`ws://${location.host}/chat`)
socket.onmessage = event => document.querySelector("pre").prepend(event.data + "\\n")
document.querySelector("form").onsubmit = event => {
  event.preventDefault(); socket.send(event.target[0].value); event.target[0].value = "" }
</script>"""


async def page(request: Request) -> HTMLResponse:
    """The page."""
    return HTMLResponse(PAGE)


async def members(request: Request) -> JSONResponse:
    """The worker that answers, and the workers in the group."""
    view = broadcast.bus.group.view
    return JSONResponse({"process": os.getpid(), "members": [who.name for who in view.members]})


async def chat(websocket: WebSocket) -> None:
    """One client: its lines go to all, and all lines come to it."""
    await websocket.accept()
    async with broadcast.subscribe("chat") as lines:
        await websocket.send_text(f"connected to {os.getpid()}")

        async def forward() -> None:
            async for line in lines:
                await websocket.send_text(line.message)

        forwarding = asyncio.create_task(forward())
        try:
            while True:
                await broadcast.publish("chat", await websocket.receive_text())
        except WebSocketDisconnect:
            pass
        finally:
            forwarding.cancel()


app = Starlette(
    routes=[Route("/", page), Route("/members", members), WebSocketRoute("/chat", chat)], lifespan=broadcast.lifespan
)
