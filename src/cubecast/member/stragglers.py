"""Which members of a view still lack messages that were delivered here a while ago.

A member whose application does not keep up delays the stability of every message, and in the end every sender. The
known progress of other members is a little old, so at any moment all of them seem to be behind. Therefore it is
compared with the own progress `after_ns` ago: a healthy member passed that long ago, however high the rate.

| field      | meaning                                                                       |
|------------|-------------------------------------------------------------------------------|
| `_samples` | (time, messages delivered here), oldest first; all but the first are younger than `after_ns` |
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

SAMPLES = 8
"""Samples within `after_ns`."""


class Stragglers:
    """The own progress of the last `after_ns`, and the members that have not reached it."""

    def __init__(self, after_ns: int, messages: int) -> None:
        """A member is a straggler when it lacks more than `messages`."""
        self._after_ns = after_ns
        self._messages = messages
        self._samples: deque[tuple[int, int]] = deque()

    def begin_view(self) -> None:
        """Progress is counted from zero again."""
        self._samples.clear()

    def found(self, now_ns: int, own: int, progress: Sequence[int]) -> list[tuple[int, int]]:
        """The stragglers by rank, with the number of messages each lacks of those delivered here."""
        samples = self._samples
        if not samples or now_ns - samples[-1][0] >= self._after_ns // SAMPLES:
            samples.append((now_ns, own))
        while len(samples) > 1 and now_ns - samples[1][0] >= self._after_ns:
            samples.popleft()
        since_ns, before = samples[0]
        if now_ns - since_ns < self._after_ns:
            return []
        return [(rank, own - count) for rank, count in enumerate(progress) if before - count > self._messages]
