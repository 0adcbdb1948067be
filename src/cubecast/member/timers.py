"""Timers: calls by time; ties in the order of scheduling."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any


class Timers:
    """A heap of calls; those of an earlier epoch are dropped."""

    def __init__(self) -> None:
        """No call is scheduled."""
        self._heap: list[tuple[int, int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = 0
        self._epoch = 0

    def begin_epoch(self) -> None:
        """Drop all calls."""
        self._epoch += 1
        self._heap.clear()

    def at(self, time_ns: int, function: Callable[..., None], *arguments: Any) -> None:
        """Schedule a call."""
        self._order += 1
        heapq.heappush(self._heap, (time_ns, self._order, self._epoch, function, arguments))

    def run(self, now_ns: int) -> None:
        """Make the calls that are due; what they schedule is due at the next run at the earliest."""
        last = self._order
        heap = self._heap
        later = []
        while heap and heap[0][0] <= now_ns:
            entry = heapq.heappop(heap)
            if entry[1] > last:
                later.append(entry)
            elif entry[2] == self._epoch:
                entry[3](*entry[4])
        for entry in later:
            if entry[2] == self._epoch:
                heapq.heappush(heap, entry)

    @property
    def next_ns(self) -> int | None:
        """When the first call is due."""
        return self._heap[0][0] if self._heap else None
