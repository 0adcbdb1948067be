"""Attacks on a running group by strangers: connections that belong to no member, many at a time.

Each attack knows only addresses (and, for a replay, what an eavesdropper saw) and returns how often it was admitted: it
counts WELCOME frames. `python -m tests.live.attacks NAME ADDRESS … [-- FILE]` runs one in a separate process.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any

from cubecast.errors import RemoteProtocolError
from cubecast.wire import frame, handshake
from cubecast.wire.handshake import Hello

KNOCKS = 40  # for each member


def stranger_hello(name: str, towards: str, group: str = "test") -> bytes:
    """A well-formed HELLO of a process that knows neither the settings nor an incarnation."""
    said = Hello(
        oldest=frame.OLDEST,
        newest=frame.VERSION,
        group=group,
        group_id=0,
        name=name,
        towards=towards,
        incarnation=77,
        session=7,
        knows=0,
        knows_session=0,
        received=0,
        view_number=0,
        view_tag=0,
        view_members=0,
        settings={},
    )
    return frame.encode_frame(frame.HELLO, 0, 0, handshake.encode(said))


async def knock(address: str, octets: bytes, *, wait_s: float = 8, context: ssl.SSLContext | None = None) -> int:
    """Send bytes and read the answer; 1 if it was WELCOME."""
    host, port = address.rsplit(":", 1)
    answer = b""
    with suppress(OSError, TimeoutError):
        async with asyncio.timeout(wait_s):
            reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
            writer.write(octets)
            while piece := await reader.read(4096):
                answer += piece
            writer.close()
    try:
        return int(frame.WELCOME in [one.kind for one in frame.FrameReader(1 << 20).feed(answer)])
    except RemoteProtocolError:  # not a frame: TLS answers a greeting in its own records
        return 0


async def garbage(addresses: list[str]) -> int:
    """Random bytes, damaged HELLO frames, other protocols."""
    chance = random.Random(5)
    accepted = 0
    for _ in range(KNOCKS):
        hello = bytearray(stranger_hello("127.0.0.1:9", addresses[0]))
        hello[chance.randrange(len(hello))] ^= 1 << chance.randrange(8)
        for octets in (chance.randbytes(chance.randrange(1, 4096)), bytes(hello), b"GET / HTTP/1.1\r\n\r\n"):
            accepted += sum(await asyncio.gather(*(knock(address, octets, wait_s=2) for address in addresses)))
    return accepted


async def half_open(addresses: list[str]) -> int:
    """Connections that never send anything."""
    return sum(await asyncio.gather(*(knock(address, b"") for address in addresses for _ in range(KNOCKS))))


async def slow_loris(addresses: list[str]) -> int:
    """HELLO frames sent byte by byte, for ever."""

    async def drip(address: str) -> int:
        host, port = address.rsplit(":", 1)
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(10):
                _, writer = await asyncio.open_connection(host, int(port))
                for octet in stranger_hello("127.0.0.1:9", address):
                    writer.write(bytes([octet]))
                    await writer.drain()
                    await asyncio.sleep(0.3)
        return 0

    return sum(await asyncio.gather(*(drip(address) for address in addresses for _ in range(KNOCKS))))


async def liars(addresses: list[str]) -> int:
    """HELLO frames in the name of every member."""
    pairs = [(name, towards) for name in addresses for towards in addresses]
    return sum(await asyncio.gather(*(knock(towards, stranger_hello(name, towards)) for name, towards in pairs)))


async def replay(addresses: list[str], heard: bytes) -> int:
    """The exact bytes that another member sent on its connection, replayed to each member."""
    return sum(await asyncio.gather(*(knock(address, heard) for address in addresses for _ in range(5))))


ATTACKS: dict[str, Callable[..., Coroutine[Any, Any, int]]] = {
    "garbage": garbage,
    "half_open": half_open,
    "slow_loris": slow_loris,
    "liars": liars,
    "replay": replay,
}


def main() -> None:
    """Run the attack named by the first argument."""
    name, *addresses = sys.argv[1:]
    heard: list[bytes] = []
    if "--" in addresses:
        heard = [Path(addresses[-1]).read_bytes()]
        addresses = addresses[: addresses.index("--")]
    print(asyncio.run(ATTACKS[name](addresses, *heard)))


if __name__ == "__main__":
    main()
