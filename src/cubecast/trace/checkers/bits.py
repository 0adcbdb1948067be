"""A table of bits that says which member has which message."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from cubecast.jit.decorators import allocating

Bits = npt.NDArray[np.uint8]


def no_bits(rows: int, columns: int) -> Bits:
    """Return a table in which no bit is set."""
    return np.zeros((rows, (columns + 7) // 8), np.uint8)


def set_bits(row: Bits, columns: int) -> npt.NDArray[np.bool_]:
    """Return one row of the table, a value for each column."""
    return np.unpackbits(row, count=columns, bitorder="little").view(np.bool_)


@allocating
def has_bit(row: Any, column: int) -> bool:
    """Is this bit of a row set?"""
    return bool(row[column >> 3] & np.uint8(1 << (column & 7)) != 0)


@allocating
def set_bit(row: Any, column: int) -> None:
    """Set this bit of a row."""
    row[column >> 3] |= np.uint8(1 << (column & 7))
