"""Test the uses of Numba's internals, on a small scale; `backend` runs this in a separate process.

A tuple of arrays of several types and shapes is read through its table, and a function is called by its address; both
must see what Python sees. Linked code must compute what it computes in plain Python.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import compiled_for, entry_point, linked
from cubecast.jit.tables import address_of, arrays_in, call_at, held_at, hold, table_of

RECORD = np.dtype([("a", np.int64), ("b", np.int64)])


class Inner(NamedTuple):
    """A tuple in a tuple."""

    words: np.ndarray
    scale: int


class Sample(NamedTuple):
    """One of each kind of field that a state has."""

    inner: Inner
    numbers: np.ndarray
    records: np.recarray
    factor: float
    result: np.ndarray


@linked
def _weigh(sample, row):
    total = np.int64(0)
    for column in range(sample.numbers.shape[1]):
        total += sample.numbers[row, column]
    total += np.int64(sample.inner.words[row]) * sample.inner.scale
    sample.records[row].b = sample.records[row].a + 1
    return np.int64(total * sample.factor)


@entry_point
def _through_handle(handle, row):
    sample = held_at(handle, Sample)
    sample.result[row] = _weigh(sample, row)
    return sample.numbers.size


@entry_point
def _through_address(address, table, row, value):
    call_at(address, table, row, 0, 0, value, 0)


def _act(table, row, now_ns, what, a, b):
    sample = arrays_in(table)
    sample.result[row] = a + _weigh(sample, row)


def new_sample() -> Sample:
    """Three rows of numbers."""
    numbers = np.arange(12, dtype=np.int32).reshape(3, 4)
    words = np.array([1 << 40, 2, 3], np.uint64)
    records = np.zeros(3, RECORD).view(np.recarray)
    records["a"] = [5, 6, 7]
    return Sample(Inner(words, 3), numbers, records, 2.0, np.zeros(3, np.int64))


def expected(row: int) -> int:
    """The result of `_weigh`, computed without it."""
    sample = new_sample()
    return int(2 * (sample.numbers[row].sum() + int(sample.inner.words[row]) * sample.inner.scale))


def main() -> None:
    """Raise AssertionError, or crash, if anything differs from what we expect."""
    sample = new_sample()
    held = hold(sample)
    for row in range(3):
        assert _through_handle(held.handle, row) == 12
        assert sample.result[row] == expected(row)
        assert sample.records["b"][row] == sample.records["a"][row] + 1
    table = table_of(sample)
    address = address_of(compiled_for(_act, Sample), sample)
    for row in range(3):
        _through_address(address, table.ctypes.data, row, 1000)
        assert sample.result[row] == 1000 + expected(row)
