"""What is true for a while, told from neighbour to neighbour: who asks to be taken in, who is too slow.

Each is told with its age, and grows older by a tick with every hop; so none goes round for longer than its cause lasts.
"""

from __future__ import annotations

from collections.abc import Container, Iterable

from cubecast.core.membership.messages import Aged
from cubecast.core.membership.views import MemberId


class Rumours:
    """Members of whom something was said, and when it was true last."""

    def __init__(self, span_ns: int, tick_ns: int) -> None:
        """None yet; they are forgotten after `span_ns`."""
        self.span_ns = span_ns
        self.tick_ns = tick_ns
        self._true_ns: dict[MemberId, int] = {}

    def see(self, who: MemberId, now_ns: int) -> None:
        """It is true now."""
        self._true_ns[who] = now_ns

    def hear(self, told: Iterable[Aged], now_ns: int) -> None:
        """Another member said so."""
        for who, age_ns in told:
            true_ns = now_ns - age_ns - self.tick_ns
            if true_ns > self._true_ns.get(who, true_ns - 1):
                self._true_ns[who] = true_ns

    def lately(self, now_ns: int) -> tuple[Aged, ...]:
        """Who it is said of, and how old that is."""
        if not self._true_ns:
            return ()
        self._true_ns = {who: then for who, then in self._true_ns.items() if now_ns - then <= self.span_ns}
        return tuple((who, now_ns - then) for who, then in sorted(self._true_ns.items()))

    def forget(self, members: Container[MemberId]) -> None:
        """It has come about for these."""
        self._true_ns = {who: then for who, then in self._true_ns.items() if who not in members}
