"""Encode vectors of numbers whose entries are mostly close or equal to the smallest one.

| bytes      | meaning                                                                               |
|------------|---------------------------------------------------------------------------------------|
| 2          | how many entries; nothing follows when there are none                                 |
| 1          | the bytes of a difference (0, 1, 2 or 4); `SPARSE` is added when zeros are left out   |
| 4          | the smallest entry                                                                    |
| 2          | if sparse: how many differences follow                                                |
| 2 each     | if sparse: the rank of each, ascending                                                |
| 0 … 4 each | the differences from the smallest entry                                               |

The writer chooses the shortest form. Promises, flushes, pulls and proposals carry vectors with one entry per member; in
large groups these are most of their bytes.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

from cubecast.errors import LocalProtocolError, RemoteProtocolError

if TYPE_CHECKING:
    from cubecast.wire.fields import Cursor

ENTRY_MAX = (1 << 32) - 1
ENTRIES_MAX = (1 << 16) - 1
SPARSE = 8
_LENGTH = struct.Struct("<H")
_HEAD = struct.Struct("<BI")
_CODES = {1: "B", 2: "H", 4: "I"}
_FORMS = (0, *_CODES, *(SPARSE | width for width in _CODES))


def write_vector(values: Sequence[int]) -> bytes:
    """Encode a vector in its shortest form."""
    count = len(values)
    if not count:
        return _LENGTH.pack(0)
    base, top = min(values), max(values)
    if base < 0 or top > ENTRY_MAX or count > ENTRIES_MAX:
        raise LocalProtocolError(f"a vector of {count} entries from {base} to {top} does not fit into a message")
    width = 0 if top == base else 1 if top - base < 1 << 8 else 2 if top - base < 1 << 16 else 4
    apart = count - values.count(base)
    head = _LENGTH.pack(count)
    if 2 + apart * (2 + width) < count * width:
        ranks = [rank for rank, value in enumerate(values) if value != base]
        differences = [values[rank] - base for rank in ranks]
        form = struct.pack(f"<BIH{apart}H{apart}{_CODES[width]}", SPARSE | width, base, apart, *ranks, *differences)
        return head + form
    head += _HEAD.pack(width, base)
    return head + struct.pack(f"<{count}{_CODES[width]}", *[value - base for value in values]) if width else head


def read_vector(cursor: Cursor) -> tuple[int, ...]:
    """Decode the output of `write_vector`; reject everything else."""
    (count,) = cursor.unpack(_LENGTH)
    if not count:
        return ()
    form, base = cursor.unpack(_HEAD)
    if form not in _FORMS:
        raise RemoteProtocolError(f"a vector of form {form}, which does not exist")
    if form & SPARSE:
        return _read_sparse(cursor, count, form & ~SPARSE, base)
    return _summed(base, _numbers(cursor, count, form)) if form else (base,) * count


def _read_sparse(cursor: Cursor, count: int, width: int, base: int) -> tuple[int, ...]:
    (apart,) = cursor.unpack(_LENGTH)
    ranks = _numbers(cursor, apart, 2)
    values = _summed(base, _numbers(cursor, apart, width))
    if any(rank >= following for rank, following in pairwise((*ranks, count))):
        raise RemoteProtocolError(f"a vector of {count} entries whose ranks are not in order, or beyond its end")
    entries = [base] * count
    for rank, value in zip(ranks, values, strict=True):
        entries[rank] = value
    return tuple(entries)


def _numbers(cursor: Cursor, count: int, width: int) -> tuple[int, ...]:
    return struct.unpack(f"<{count}{_CODES[width]}", cursor.take(width * count))


def _summed(base: int, differences: tuple[int, ...]) -> tuple[int, ...]:
    if base + max(differences, default=0) > ENTRY_MAX:
        raise RemoteProtocolError(f"a vector with an entry above {ENTRY_MAX}")
    return tuple([base + difference for difference in differences]) if base else differences
