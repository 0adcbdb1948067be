"""When a trouble that persists is reported: once it has lasted long enough, and again at intervals.

| field      | meaning                                                              |
|------------|----------------------------------------------------------------------|
| `_begun`   | by trouble: since when it lasts                                      |
| `_reported`| by trouble: when it was reported last                                |

A trouble that is over is forgotten, and reported again when it returns.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from cubecast.member.effects import Notice

AGAIN_NS = 10_000_000_000


class Troubles:
    """The troubles of one member: suspected members, stragglers, an application that does not keep up."""

    def __init__(self, after_ns: int = 0) -> None:
        """There is no trouble yet. One is reported when it has lasted for `after_ns`."""
        self._after_ns = after_ns
        self._begun: dict[Notice, int] = {}
        self._reported: dict[Notice, int] = {}

    def due(self, now_ns: int, present: Iterable[Notice]) -> Sequence[Notice]:
        """Of all present troubles, those to report now."""
        self._begun = {one: self._begun.get(one, now_ns) for one in present}
        self._reported = {one: then for one, then in self._reported.items() if one in self._begun}
        found = [
            one
            for one, since_ns in self._begun.items()
            if now_ns - since_ns >= self._after_ns and now_ns - self._reported.get(one, -AGAIN_NS) >= AGAIN_NS
        ]
        self._reported |= dict.fromkeys(found, now_ns)
        return found
