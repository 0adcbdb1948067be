"""Memory for the large arrays of one view, used again by the next.

A data protocol needs room for the actions of a whole window of every member: tens of megabytes, of which it touches a
few kilobytes. Allocating them at each view change costs more than the rest of a stack.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import DTypeLike

_ALIGNMENT = 64


class Arena:
    """Arrays cut from one block, all given back at once."""

    def __init__(self) -> None:
        """No memory yet."""
        self._block = np.empty(0, np.uint8)
        self._used = 0

    def reset(self) -> None:
        """Take back all arrays; the caller no longer uses them."""
        if self._used > len(self._block):
            self._block = np.empty(self._used + self._used // 4, np.uint8)
        self._used = 0

    def empty(self, shape: int | tuple[int, ...], dtype: DTypeLike) -> np.ndarray:
        """An array with unknown content."""
        size = math.prod(shape if isinstance(shape, tuple) else (shape,)) * np.dtype(dtype).itemsize
        start, end = self._used, self._used + size
        self._used = end + -end % _ALIGNMENT
        if end > len(self._block):  # the next reset makes room for it
            return np.empty(shape, dtype)
        return self._block[start:end].view(dtype).reshape(shape)
