"""When stability rounds begin: Δ after the last one while something is unstable, or at once when the buffer says so.

A stability core that ended a round rests until it is woken for the next one: after Δ, earlier when the sender's buffer
reaches the level of guo ch. 6 or somebody asks for a round, and not at all while everything is stable. A message that
ends a quiet time is given the time of a few rounds before one begins: a round at once would be in vain, and would
compete with the message.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cubecast.core.stability.trigger import trigger_level
from cubecast.wire import frame

if TYPE_CHECKING:
    from cubecast.live.member import Member

_SMOOTH = 0.2
_HEAD_START = 0.3
_HEAD_START_MAX_S = 0.01
_AFTER_QUIET_ROUNDS = 2


class Rounds:
    """The pause between rounds."""

    def __init__(self, member: Member) -> None:
        """No round yet."""
        self._member = member
        self._next: tuple[int, int] | None = None
        """The timer and its tag that wake the core for the next round; None while a round runs."""
        self._due = False
        self._wanted = 0
        self._began_s = 0.0
        self._rate_at = (time.monotonic(), 0)
        self.round_s = 0.01
        self.rate_per_s = 0.0
        self.count = 0

    def start(self) -> None:
        """Begin the first round."""
        self._member.start_rounds()

    def rest(self, timer: int, tag: int, delay_ns: int) -> None:
        """The core rests and wants to be woken with (timer, tag)."""
        self._next, self._due = (timer, tag), False
        self._member.later(delay_ns / 1e9, self._delay_is_over, tag)
        self.watch()

    def ask(self, sequence: int) -> None:
        """Begin rounds, one after the other, until this own message is stable.

        A round that overtakes the message is in vain, and one takes about as long as a message takes to reach everybody
        (both cross the cube): so the message is given a little of that time as a start.
        """
        self._member.later(min(_HEAD_START * self.round_s, _HEAD_START_MAX_S), self._want, sequence)

    def _want(self, sequence: int) -> None:
        self._wanted = max(self._wanted, sequence)
        self.watch()

    def watch(self) -> None:
        """Begin the next round if there is a reason to."""
        if self._next is None:
            return
        member = self._member
        if self._wanted > member.traffic.store.freed[member.rank] or self._buffer_calls():
            self._wake_core()
        elif self._due and self._unstable():
            self._due = False
            pause_s = min(_AFTER_QUIET_ROUNDS * self.round_s, member.settings.round_every_s)
            member.later(pause_s, self._delay_is_over, self._next[1])

    def _wake_core(self) -> None:
        assert self._next is not None
        self._member.later(0, self._begin, *self._next)
        self._next = None

    def note(self, *, done: bool) -> None:
        """A round began or ended."""
        now = time.monotonic()
        if not done:
            self._began_s = now
            self._next = None
            return
        self.count += 1
        self.round_s += _SMOOTH * (now - self._began_s - self.round_s)
        since, published = self._rate_at
        if now - since > 0.05:
            self.rate_per_s = (self._member.traffic.published - published) / (now - since)
            self._rate_at = (now, self._member.traffic.published)

    def _begin(self, timer: int, tag: int) -> None:
        self._member.fire(self._member.cores.stability, frame.CONTROL, timer, tag)

    def _delay_is_over(self, tag: int) -> None:
        if self._next is not None and self._next[1] == tag:
            if self._unstable():
                self._wake_core()
            else:
                self._due = True

    def _unstable(self) -> bool:
        return self._member.traffic.store.bytes > 0

    def _buffer_calls(self) -> bool:
        member = self._member
        held = member.traffic.published - member.traffic.store.freed[member.rank]
        if held == 0:
            return False
        level = trigger_level(room=member.cores.window, rate_per_s=self.rate_per_s, round_s=self.round_s)
        return held >= max(level, 1) or 2 * member.traffic.own_bytes >= member.settings.window_bytes
