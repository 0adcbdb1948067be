"""The blocks of a live process's trace file: rows and names on disk, robust against kills and restarts.

One process writes one file, for all its incarnations and restarts (`live.trace_writer`); others read it, also while it
grows (`lab.spark.live_source`). The file is a sequence of blocks; the reader ignores a block that a kill truncated, and
finds the blocks after it by their first bytes.

| field of a block's head | bytes | meaning |
|---|---|---|
| magic | 8 | `CUBETRC2` |
| kind | 4 | 1: names, as JSON `[[id, name, incarnation], …]`; 2: rows of `EVENT_DTYPE` |
| length | 4 | bytes after the head |
| session | 8 | identifies the opening of the file that wrote it: ids are valid within one session |
| checksum | 4 | CRC-32 of the bytes after the head |

The block that names an id comes before the rows that use it. A block at the end that is still being written cannot be
distinguished from a truncated one: neither is returned, and a later read from the end of the last complete block
decides.
"""

from __future__ import annotations

import json
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import numpy as np

from cubecast.errors import LocalProtocolError
from cubecast.trace.schema import EVENT_DTYPE, NOBODY, Events

MAGIC = b"CUBETRC2"
NAMES, ROWS = 1, 2
ID_COLUMNS = ("member", "peer", "sender")
READ_BYTES = 8 << 20  # several of the largest usual blocks
_HEAD = struct.Struct("<8sIIQI")
MemberName = tuple[Any, int]
"""Name and incarnation."""


class Block(NamedTuple):
    """A complete block; `end` is the place after it."""

    kind: int
    session: int
    body: bytes
    end: int


def make_block(kind: int, session: int, body: bytes | bytearray) -> bytes:
    """Return the bytes of a block."""
    return _HEAD.pack(MAGIC, kind, len(body), session, zlib.crc32(body)) + bytes(body)


def is_member_trace(path: str | Path) -> bool:
    """Return whether a live process made the file; an empty one counts: its process has written nothing yet."""
    with Path(path).open("rb") as file:
        return begins_with_block(file.read(2 * _HEAD.size))


def begins_with_block(data: bytes) -> bool:
    """Does the data begin with a block, or with the magic of one after the head of a truncated block?"""
    return MAGIC in data[: 2 * _HEAD.size] or MAGIC.startswith(data)


def blocks(data: bytes, place: int = 0) -> Iterator[Block]:
    """Every complete block; `place` is where the data begins in the file."""
    at = data.find(MAGIC)
    while 0 <= at <= len(data) - _HEAD.size:
        _, kind, length, session, checksum = _HEAD.unpack_from(data, at)
        end = at + _HEAD.size + length
        body = data[at + _HEAD.size : end]
        if len(body) == length and zlib.crc32(body) == checksum:
            yield Block(kind, session, body, place + end)
            at = data.find(MAGIC, end)
        else:
            at = data.find(MAGIC, at + 1)


def read_blocks(file: BinaryIO, start: int, end: int) -> Iterator[list[Block]]:
    """The complete blocks of a file between two places, a few megabytes at a time."""
    wanted = READ_BYTES
    while start < end:
        file.seek(start)
        data = file.read(min(wanted, end - start))
        found = list(blocks(data, start))
        if found:
            yield found
            start, wanted = found[-1].end, READ_BYTES
        elif len(data) < wanted:
            return  # the rest is not a whole block
        else:
            wanted *= 2


@dataclass(kw_only=True)
class Names:
    """The member of each id of a session; members are numbered from 0 over all sessions of a file."""

    members: dict[MemberName, int] = field(default_factory=dict)
    sessions: dict[int, dict[int, int]] = field(default_factory=dict)

    def learn(self, block: Block) -> None:
        """Add a block of names."""
        ids = self.sessions.setdefault(block.session, {})
        for local, name, incarnation in json.loads(block.body):
            ids[local] = self.members.setdefault((_hashable(name), incarnation), len(self.members))


def _hashable(name: Any) -> Any:
    """Turn a list back into a tuple, such as an address: JSON has no tuples."""
    return tuple(name) if isinstance(name, list) else name


def rows_of(path: str | Path, found: Iterable[Block], names: Names) -> list[Events]:
    """The rows of blocks in order, with the numbers of `names` instead of ids; blocks of names are added to `names`."""
    runs: list[tuple[int, list[bytes]]] = []
    for block in found:
        if block.kind == NAMES:
            names.learn(block)
        elif block.kind == ROWS:
            if not runs or runs[-1][0] != block.session:
                runs.append((block.session, []))
            runs[-1][1].append(block.body)
    return [_renumbered(path, b"".join(bodies), names.sessions.get(session, {})) for session, bodies in runs]


def _renumbered(path: str | Path, body: bytes, ids: Mapping[int, int]) -> Events:
    """Rows of one session, with the numbers of the file instead of the ids of the session."""
    rows = np.frombuffer(body, EVENT_DTYPE).copy()
    table = np.full(max(ids, default=-1) + 1, NOBODY, np.int32)
    table[list(ids.keys())] = list(ids.values())
    for column in ID_COLUMNS:
        used = rows[column] >= 0
        local = rows[column][used]
        if local.size and (int(local.max()) >= len(table) or (table[local] < 0).any()):
            raise LocalProtocolError(f"{path} has rows of a member whose name is missing; the file is damaged")
        rows[column][used] = table[local]
    return rows
