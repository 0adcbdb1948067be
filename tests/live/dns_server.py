"""A DNS server on loopback, for tests: it answers from a table that a test changes at any time."""

from __future__ import annotations

import asyncio
import ipaddress
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

A, AAAA, SRV = 1, 28, 33


class DnsServer(asyncio.DatagramProtocol):
    """`records[name, kind]` is a list of addresses, or of (target, port); a name without records does not exist."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, int], list[Any]] = {}
        self.questions: list[tuple[str, int]] = []
        self.is_silent = False
        self.spoils: Any = None
        """A function that changes an answer before it is sent."""
        self.address = ""
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: Any) -> None:
        self._transport = transport
        self.address = "127.0.0.1:{}".format(transport.get_extra_info("sockname")[1])

    def datagram_received(self, data: bytes, address: Any) -> None:
        answer = self.answer(data)
        if not self.is_silent and self._transport is not None:
            self._transport.sendto(self.spoils(answer) if self.spoils else answer, address)

    def answer(self, request: bytes) -> bytes:
        """The answer to a query, names compressed as real servers do."""
        labels, place = [], 12
        while request[place]:
            labels.append(request[place + 1 : place + 1 + request[place]].decode())
            place += 1 + request[place]
        kind = struct.unpack_from(">H", request, place + 1)[0]
        name = ".".join(labels)
        self.questions.append((name, kind))
        exists = any(known == name for known, _ in self.records)
        found = self.records.get((name, kind), [])
        head = request[:2] + struct.pack(">HHHHH", 0x8180 | (0 if exists else 3), 1, len(found), 0, 0)
        return head + request[12 : place + 5] + b"".join(_record(kind, one) for one in found)


def _record(kind: int, value: Any) -> bytes:
    if kind == SRV:
        target, port = value
        name = b"".join(bytes([len(one)]) + one.encode() for one in target.split(".")) + b"\0"
        data = struct.pack(">HHH", 0, 0, port) + name
    else:
        data = ipaddress.ip_address(value).packed
    return b"\xc0\x0c" + struct.pack(">HHIH", kind, 1, 0, len(data)) + data


@asynccontextmanager
async def dns_server() -> AsyncIterator[DnsServer]:
    """A server on a free port."""
    loop = asyncio.get_running_loop()
    transport, server = await loop.create_datagram_endpoint(DnsServer, local_addr=("127.0.0.1", 0))
    try:
        yield server
    finally:
        transport.close()
