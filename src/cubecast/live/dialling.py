"""Connect to the first address of a host that answers.

The host is resolved apart from the connection: uvloop's `create_connection`, cancelled while a name server is silent,
leaves an exception behind that is logged as an error of the program.
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TypeVar

_Connected = TypeVar("_Connected")


async def connect_first(host: str, port: int, connect: Callable[[str], Awaitable[_Connected]]) -> _Connected:
    """Call `connect` with one address after the other until one does not raise OSError; the last error is raised."""
    addresses = await _resolve(host, port)
    for address in addresses[:-1]:
        with suppress(OSError):
            return await connect(address)
    return await connect(addresses[-1])


async def _resolve(host: str, port: int) -> list[str]:
    """The IP addresses of a host; raises OSError if there is none."""
    with suppress(ValueError):
        ipaddress.ip_address(host.partition("%")[0])
        return [host]
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(name[0]) for *_, name in found))
