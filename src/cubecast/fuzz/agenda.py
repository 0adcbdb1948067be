"""The event queue of a history: actions by time, ties broken by the order in which they were added."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

MS = 1_000_000
SECOND = 1_000 * MS


class Agenda:
    """Pending actions."""

    def __init__(self) -> None:
        """The agenda is empty, and the time is not 0: the clock of a driver never is."""
        self.now_ns = SECOND
        self.count = 0
        self._heap: list[tuple[int, int, Callable[..., Any], tuple[Any, ...]]] = []

    def at(self, time_ns: int, action: Callable[..., Any], *arguments: Any) -> None:
        """Call an action at that time, or now if that has passed."""
        self.count += 1
        heapq.heappush(self._heap, (max(time_ns, self.now_ns), self.count, action, arguments))

    def after(self, delay_ns: int, action: Callable[..., Any], *arguments: Any) -> None:
        """Call an action after that delay."""
        self.at(self.now_ns + delay_ns, action, *arguments)

    def run_until(self, end_ns: int) -> None:
        """Call everything that is due up to then."""
        heap = self._heap
        while heap and heap[0][0] <= end_ns:
            self.now_ns, _, action, arguments = heapq.heappop(heap)
            action(*arguments)
        self.now_ns = max(self.now_ns, end_ns)
