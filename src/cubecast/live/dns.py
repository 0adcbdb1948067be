"""Contacts from the DNS: `dns://name:port`, for members that find each other in a cluster.

| contact                        | stands for                                                                |
|--------------------------------|---------------------------------------------------------------------------|
| `dns://group.example:7001`     | port 7001 at every A and AAAA record: members advertise an IP address     |
| `dns://_cubecast._tcp.example` | target and port of every SRV record: members advertise the target's name  |
| `…?server=127.0.0.1:5353`      | the same, queried from this server                                        |

Without `server`, addresses come from the system's resolver. It does not support SRV records, so these come from the
servers of /etc/resolv.conf (RFC 1035 over UDP, over TCP when an answer is truncated; RFC 2782). An answer must come
from the server that was queried, with the number and the question of the query.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import secrets
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.member.settings import parse_address

SCHEME = "dns://"
A, AAAA, SRV = 1, 28, 33
_IN = 1
_HEADER = struct.Struct(">HHHHHH")
_NO_SUCH_NAME = 3
TIMEOUT_S = 2.0
TRIES = 2
LABEL_MAX, JUMPS_MAX = 63, 64
RESOLV_CONF = Path("/etc/resolv.conf")


class ResolveError(CubecastError):
    """The DNS gave no answer, or one that cannot be read."""


@dataclass(frozen=True)
class DnsContact:
    """A name whose records are contacts."""

    name: str
    port: int
    server: str | None

    @property
    def is_service(self) -> bool:
        """Does the name stand for SRV records?"""
        return self.name.startswith("_")

    async def resolve(self) -> list[str]:
        """The addresses that the DNS has now, without duplicates; empty if there is none. Raises ResolveError."""
        if self.is_service:
            found = [f"{target}:{port}" for target, port in await self._services()]
        elif self.server is not None:
            records = [await query(self.server, self.name, kind) for kind in (A, AAAA)]
            found = [_address(str(ipaddress.ip_address(one)), self.port) for part in records for one in part]
        else:
            found = await self._from_system()
        return list(dict.fromkeys(found))

    async def _services(self) -> list[tuple[str, int]]:
        records: list[bytes] = []
        for server, name in _questions(self.name, self.server):
            records = await query(server, name, SRV)
            if records:
                break
        return [_service(one) for one in records]

    async def _from_system(self) -> list[str]:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(TRIES * TIMEOUT_S):
                found = await loop.getaddrinfo(self.name, self.port, type=socket.SOCK_STREAM)
        except socket.gaierror as error:
            if error.errno in (socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)):
                return []
            raise ResolveError(f"{self.name}: {error.strerror}") from error
        except TimeoutError as error:
            raise ResolveError(f"{self.name}: the resolver does not answer") from error
        return [_address(str(place[0]), self.port) for *_, place in found]


def parse_contact(contact: str) -> DnsContact | None:
    """Read `dns://name:port?server=host:port`; None for a contact that is an address itself."""
    if not contact.startswith(SCHEME):
        parse_address(contact)
        return None
    place, _, option = contact.removeprefix(SCHEME).partition("?")
    key, _, server = option.partition("=")
    if option and key != "server":
        raise LocalProtocolError(f"contact {contact!r}: the only option is ?server=host:port")
    if option:
        parse_address(server)
    if place.startswith("_") and ":" not in place:
        return DnsContact(_encodable(place, contact), 0, server or None)
    host, port = parse_address(place)
    return DnsContact(_encodable(host, contact), port, server or None)


async def resolve_contacts(contacts: Iterable[str]) -> list[str]:
    """All addresses that the contacts stand for now; ResolveError if one fails and none is found."""
    found: list[str] = []
    failure: ResolveError | None = None
    for contact in contacts:
        name = parse_contact(contact)
        try:
            found += [contact] if name is None else await name.resolve()
        except ResolveError as error:
            failure = error
    if failure is not None and not found:
        raise failure
    return list(dict.fromkeys(found))


def _encodable(name: str, contact: str) -> str:
    labels = name.removesuffix(".").split(".")
    if not all(label.isascii() and 0 < len(label) <= LABEL_MAX for label in labels) or len(name) > 253:
        raise LocalProtocolError(f"contact {contact!r}: not a valid DNS name")
    return name


def _address(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _questions(name: str, server: str | None) -> list[tuple[str, str]]:
    """The servers to query, and the full names to query them for, in order."""
    if server is not None:
        return [(server, name)]
    words = [line.split() for line in _lines(RESOLV_CONF)]
    servers = [_address(line[1], 53) for line in words if line[:1] == ["nameserver"] and len(line) > 1]
    searched = [] if name.endswith(".") else [one for line in words if line[:1] == ["search"] for one in line[1:]]
    return [(one, full) for one in servers for full in (name, *(f"{name}.{domain}" for domain in searched))]


def _lines(file: Path) -> Sequence[str]:
    try:
        return file.read_text("utf-8").splitlines()
    except OSError as error:
        raise ResolveError(f"{file}: {error.strerror}; give ?server=host:port") from error


# One query.


async def query(server: str, name: str, kind: int) -> list[bytes]:
    """The data of all records of a kind under a name; empty if there are none."""
    host, port = parse_address(server)
    failure = "it does not answer"
    for _ in range(TRIES):
        number = secrets.randbits(16)
        question = _question(name, kind)
        request = _HEADER.pack(number, 0x0100, 1, 0, 0, 0) + question
        try:
            async with asyncio.timeout(TIMEOUT_S):
                answer = await _ask(host, port, request)
            return _records(answer, number, question, kind)
        except TimeoutError:
            continue
        except (OSError, ValueError, IndexError, struct.error) as error:
            failure = f"its answer cannot be used ({error})" if not isinstance(error, OSError) else str(error)
    raise ResolveError(f"{name}: the DNS server {server} failed: {failure}")


async def _ask(host: str, port: int, request: bytes) -> bytes:
    loop = asyncio.get_running_loop()
    answers: asyncio.Queue[bytes | OSError] = asyncio.Queue()
    transport, _ = await loop.create_datagram_endpoint(lambda: _Datagrams(answers), remote_addr=(host, port))
    try:
        transport.sendto(request)
        while True:
            answer = await answers.get()
            if isinstance(answer, OSError):
                raise answer
            if answer[:2] != request[:2]:
                continue  # of an earlier query, or not of the server at all
            is_truncated = len(answer) > 2 and answer[2] & 0x02
            return await _ask_by_stream(host, port, request) if is_truncated else answer
    finally:
        transport.close()


async def _ask_by_stream(host: str, port: int, request: bytes) -> bytes:
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(struct.pack(">H", len(request)) + request)
        size = struct.unpack(">H", await reader.readexactly(2))[0]
        return await reader.readexactly(size)
    except asyncio.IncompleteReadError as error:
        raise ValueError("the connection ended early") from error
    finally:
        writer.close()
        with contextlib.suppress(OSError):
            await writer.wait_closed()


class _Datagrams(asyncio.DatagramProtocol):
    """Puts what arrives into a queue."""

    def __init__(self, answers: asyncio.Queue[bytes | OSError]) -> None:
        self._answers = answers

    def datagram_received(self, data: bytes, _address: object) -> None:
        """Part of asyncio.DatagramProtocol."""
        self._answers.put_nowait(data)

    def error_received(self, error: Exception) -> None:
        """Part of asyncio.DatagramProtocol."""
        self._answers.put_nowait(error if isinstance(error, OSError) else OSError(str(error)))


# The format of RFC 1035.


def _question(name: str, kind: int) -> bytes:
    labels = [label.encode("ascii") for label in name.removesuffix(".").split(".")]
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0" + struct.pack(">HH", kind, _IN)


def _records(answer: bytes, number: int, question: bytes, kind: int) -> list[bytes]:
    found, flags, questions, answers, _, _ = _HEADER.unpack_from(answer)
    if found != number or not flags & 0x8000 or questions != 1:
        raise ValueError("it does not answer the query")
    place = _HEADER.size + len(question)
    if answer[_HEADER.size : place].lower() != question.lower():
        raise ValueError("it answers another question")
    code = flags & 0x0F
    if code == _NO_SUCH_NAME:
        return []
    if code:
        raise ValueError(f"error code {code}")
    records = []
    for _ in range(answers):
        place = _name(answer, place)[1]
        its_kind, its_class, _, size = struct.unpack_from(">HHIH", answer, place)
        place += 10
        data = answer[place : place + size]
        if len(data) != size:
            raise ValueError("it ends early")
        if (its_kind, its_class) == (kind, _IN):
            records.append(_expanded(answer, place) if kind == SRV else data)
        place += size
    return records


def _name(answer: bytes, place: int) -> tuple[str, int]:
    """A name that may point to labels elsewhere, and where it ends here."""
    labels: list[str] = []
    end = -1
    for _ in range(JUMPS_MAX):
        size = answer[place]
        if size >= 0xC0:
            end = place + 2 if end < 0 else end
            place = (size & 0x3F) << 8 | answer[place + 1]
        elif size > LABEL_MAX:
            raise ValueError("a label is too long")
        else:
            place += 1
            if not size:
                return ".".join(labels), place if end < 0 else end
            labels.append(answer[place : place + size].decode("ascii"))
            place += size
    raise ValueError("a name does not end")


def _expanded(answer: bytes, place: int) -> bytes:
    """An SRV record as its port and its target, which may be compressed."""
    port = struct.unpack_from(">H", answer, place + 4)[0]
    return struct.pack(">H", port) + _name(answer, place + 6)[0].encode()


def _service(record: bytes) -> tuple[str, int]:
    return record[2:].decode(), struct.unpack(">H", record[:2])[0]
