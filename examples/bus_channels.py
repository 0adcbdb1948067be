"""A chat with Django Channels on several workers, without Redis.

    pip install 'cubecast[channels]' uvicorn websockets
    WORKERS=4 uvicorn examples.bus_channels:app --workers 4

daphne has no option for workers: start it once per worker, each with its port, behind a proxy.

    pip install 'cubecast[channels]' daphne
    WORKERS=2 daphne --port 8001 examples.bus_channels:app
    WORKERS=2 daphne --port 8002 examples.bus_channels:app

Websocket clients of ws://127.0.0.1:8000/ (or 8001 and 8002) see each other's lines; GET /announce says something to
all of them from synchronous code, as a Django view does.
"""

from __future__ import annotations

import os
from typing import Any

import django
from asgiref.sync import async_to_sync
from django.conf import settings

settings.configure(
    ROOT_URLCONF="examples.bus_channels",
    ALLOWED_HOSTS=["*"],
    SECRET_KEY=os.environ.get("SECRET_KEY", "only for this example"),
    CHANNEL_LAYERS={
        "default": {
            "BACKEND": "cubecast.contrib.channels.CubecastChannelLayer",
            "CONFIG": {
                "workers": os.environ.get("BUS", "127.0.0.1:7300"),
                "count": int(os.environ.get("WORKERS", "1")),
                "plaintext": True,
            },
        }
    },
)
django.setup()

# Django's modules read the settings when they are imported.
from channels.generic.websocket import AsyncWebsocketConsumer  # noqa: E402
from channels.layers import get_channel_layer  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.core.asgi import get_asgi_application  # noqa: E402
from django.http import HttpRequest, HttpResponse  # noqa: E402
from django.urls import path  # noqa: E402


class Chat(AsyncWebsocketConsumer):  # type: ignore[misc]
    """One client."""

    async def connect(self) -> None:
        """Join the room."""
        await self.channel_layer.group_add("room", self.channel_name)
        await self.accept()
        await self.send(text_data=f"connected to {os.getpid()}")

    async def disconnect(self, code: int) -> None:
        """Leave the room."""
        await self.channel_layer.group_discard("room", self.channel_name)

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A line of the client, for the whole room."""
        await self.channel_layer.group_send("room", {"type": "chat.line", "text": text_data})

    async def chat_line(self, event: dict[str, Any]) -> None:
        """A line of the room, for the client."""
        await self.send(text_data=event["text"])


def announce(request: HttpRequest) -> HttpResponse:
    """Say something to the whole room, from synchronous code."""
    async_to_sync(get_channel_layer().group_send)("room", {"type": "chat.line", "text": "an announcement"})
    return HttpResponse("announced\n")


urlpatterns = [path("announce", announce)]
app = ProtocolTypeRouter({"http": get_asgi_application(), "websocket": URLRouter([path("", Chat.as_asgi())])})
