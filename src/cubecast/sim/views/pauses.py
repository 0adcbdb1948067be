"""How long members were paused, as a share of their time in views while messages flowed."""

from __future__ import annotations

from collections.abc import Iterable


class Pauses:
    """Sums over all members; time after `stop_ns` does not count."""

    def __init__(self, stop_ns: int) -> None:
        """No member has been in a view."""
        self.lengths_ns: list[int] = []
        """From the promise of a member until it installed the next view, one entry per member and view."""
        self._stop_ns = stop_ns
        self._paused_ns = 0
        self._in_view_ns = 0

    def add_pause(self, since_ns: int, now_ns: int, *, is_whole: bool) -> None:
        """Add a pause of a member; it is whole if a view follows."""
        self._paused_ns += self._counted(since_ns, now_ns)
        if is_whole:
            self.lengths_ns.append(now_ns - since_ns)

    def add_stay(self, since_ns: int, now_ns: int) -> None:
        """Add the time that a member spent in a view."""
        self._in_view_ns += self._counted(since_ns, now_ns)

    def share(self, now_ns: int, pauses: Iterable[int], stays: Iterable[int]) -> float:
        """Time paused over time in views, including pauses and stays that have not ended (given by their starts)."""
        paused_ns = self._paused_ns + sum(self._counted(since_ns, now_ns) for since_ns in pauses)
        in_view_ns = self._in_view_ns + sum(self._counted(since_ns, now_ns) for since_ns in stays)
        return paused_ns / in_view_ns if in_view_ns else 0.0

    def _counted(self, since_ns: int, now_ns: int) -> int:
        return min(now_ns, self._stop_ns) - min(since_ns, self._stop_ns)
