"""The deliveries that were handed to the application and that it has not processed, in order, across views.

The application reports bytes (`Member.taken`). It processes deliveries in the order in which it gets them, so the bytes
identify them. A batch holds deliveries of one view. A batch from before the present view began belongs to an earlier
view, and so may one that a newcomer gets later, after it waited for the state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import pairwise

from cubecast.member.effects import Delivery
from cubecast.protocols.membership.views import MemberId, View


class Untaken:
    """The deliveries that the application has not processed, and its progress in the present view."""

    def __init__(self) -> None:
        """Nothing was delivered yet."""
        self._processed: list[int] = []
        self._queue: deque[tuple[Sequence[Delivery], int, bool]] = deque()
        """Batches, their bytes, and whether they are of the present view."""
        self._octets = 0
        """Reported bytes of the first batch."""
        self._passed = self._passed_octets = 0
        """The deliveries of the first batch that are counted as processed, and their bytes."""
        self._view: View | None = None
        self._ranks: dict[MemberId, int] = {}

    @property
    def processed(self) -> list[int]:
        """By rank: the messages of the present view that the application has processed."""
        if self._octets > self._passed_octets:
            self._count_part()
        return self._processed

    @property
    def has_passed(self) -> bool:
        """Has the application processed all deliveries of earlier views that it got?"""
        return not self._queue or self._queue[0][2]

    def begin_view(self, view: View) -> None:
        """All deliveries until now belong to earlier views."""
        self._view = view
        self._ranks = {who: rank for rank, who in enumerate(view.members)}
        self._processed = [0] * len(view.members)
        self._queue = deque((batch, size, False) for batch, size, _ in self._queue)

    def add(self, batch: Sequence[Delivery], size: int) -> None:
        """Add deliveries of that many bytes, handed to the application."""
        self._queue.append((batch, size, self._view is not None and batch[0].view == self._view.number))

    def take(self, octets: int) -> None:
        """The application has processed the next deliveries, of that many bytes."""
        self._octets += octets
        queue = self._queue
        while queue and queue[0][1] <= self._octets:
            batch, size, is_present = queue.popleft()
            self._octets -= size
            self._passed = self._passed_octets = 0
            if is_present:
                self._count(batch)

    def _count_part(self) -> None:
        """Count the deliveries of the first batch that were taken: only on request, not for every report."""
        if not self._queue:
            return
        batch, _, is_present = self._queue[0]
        first, octets = self._passed, self._passed_octets
        count = first
        while (more := octets + len(batch[count].record)) <= self._octets:
            octets = more
            count += 1
        self._passed, self._passed_octets = count, octets
        if is_present and count > first:
            self._count(batch[first:count])

    def _count(self, batch: Sequence[Delivery]) -> None:
        assert self._view is not None
        first, last = batch[0], batch[-1]
        is_one_sender = first.sender is last.sender and last.sequence - first.sequence == len(batch) - 1
        for entry in (last,) if is_one_sender else _last_of_runs(batch):
            rank = self._ranks[entry.sender]
            self._processed[rank] = entry.sequence - self._view.sent[rank]


def _last_of_runs(batch: Sequence[Delivery]) -> list[Delivery]:
    """The deliveries that are followed by one of another sender, or by none."""
    return [*(entry for entry, after in pairwise(batch) if entry.sender is not after.sender), batch[-1]]
