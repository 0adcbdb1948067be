"""Log lines that a stranger can provoke: at most a few per key and interval, then one line with the number suppressed.

| field     | shape                   | meaning                                                          |
|-----------|-------------------------|------------------------------------------------------------------|
| `windows` | (level, key) → `LogWindow` | the current interval of each key, ordered by its start        |

Invariants: all intervals have the same length, so the windows that have ended are the first ones; at most `keys_max`
keys have a window of their own, further keys share one. Memory is bounded whatever a stranger does.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

OTHER_KEYS = "(other keys)"


@dataclass(slots=True)
class LogWindow:
    """One interval of one key: `message` and `args` are those of the last suppressed line."""

    began_s: float
    written: int = 0
    suppressed: int = 0
    message: str = ""
    args: tuple[object, ...] = ()


class RateLimitedLog:
    """Writes the first `messages_max` lines of each key in each interval, then one "… 37 more like this" line."""

    def __init__(
        self,
        logger: logging.Logger,
        *,
        messages_max: int = 3,
        interval_s: float = 10.0,
        keys_max: int = 256,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """The line with the rest appears at the first call (of any key, or of `sweep`) after the interval's end."""
        self.interval_s = interval_s
        self._logger = logger
        self._messages_max = messages_max
        self._keys_max = keys_max
        self._clock = clock
        self._windows: dict[tuple[int, str], LogWindow] = {}

    def log(self, level: int, key: str, message: str, *args: object) -> None:
        """Write the line, or count it. Lines of different levels do not share a limit."""
        if not self._logger.isEnabledFor(level):
            return
        self.sweep()
        window = self._window(level, key)
        if window.written < self._messages_max:
            window.written += 1
            self._logger.log(level, message, *args)
        else:
            window.suppressed += 1
            window.message, window.args = message, args

    def warning(self, key: str, message: str, *args: object) -> None:
        """`log` at level WARNING."""
        self.log(logging.WARNING, key, message, *args)

    def info(self, key: str, message: str, *args: object) -> None:
        """`log` at level INFO."""
        self.log(logging.INFO, key, message, *args)

    def sweep(self) -> None:
        """Write how many lines were suppressed in every interval that has ended."""
        ended_s = self._clock() - self.interval_s
        while self._windows:
            level_and_key = next(iter(self._windows))
            if self._windows[level_and_key].began_s > ended_s:
                return
            self._summarise(level_and_key)

    def flush(self) -> None:
        """Write how many lines were suppressed, without waiting for the end of the intervals."""
        for level_and_key in list(self._windows):
            self._summarise(level_and_key)

    def _window(self, level: int, key: str) -> LogWindow:
        if (level, key) not in self._windows and len(self._windows) >= self._keys_max:
            key = OTHER_KEYS
        return self._windows.setdefault((level, key), LogWindow(self._clock()))

    def _summarise(self, level_and_key: tuple[int, str]) -> None:
        window = self._windows.pop(level_and_key)
        if window.suppressed:
            last = window.message % window.args if window.args else window.message
            self._logger.log(level_and_key[0], "… %d more like this, the last: %s", window.suppressed, last)
