"""When stability rounds begin: Δ after the last one while something is unstable, or when the buffer is full enough.

A stability protocol that ended a round rests until it is woken for the next one: after Δ, earlier when the sender's
buffer reaches the level of guo ch. 6 or the application requests a round, and not at all while everything is stable.
After an idle period, the first round begins a few round times after the first message: an immediate round would find
nothing stable, and would compete with the message. While everything is stable, but an application or a disk has not
caught up (`member.levels`), the pauses between rounds grow, up to `_BEHIND_S_MAX`, until there is progress.

A buffer that stays full although a round has ended waits for a slow member, not for rounds: after a round that released
little of it, a full buffer triggers the next round only several round times later.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from cubecast.models.trigger_level import trigger_level

NS = 1_000_000_000
_SMOOTH = 0.2
_HEAD_START = 0.3
_HEAD_START_MAX_S = 0.01
_AFTER_QUIET_ROUNDS = 2
_RATE_NS = NS // 20
_BEHIND_S_MAX = 2.0
_LITTLE = 8
"""A round released little if it was less than this part of the window: several rounds release less than half of it."""
_PAUSE_ROUNDS = 4


class Paced(Protocol):
    """What the pacing needs of its stack."""

    now_ns: int
    window: int
    window_bytes: int
    round_every_s: float

    def later(self, delay_ns: int, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a while."""

    def begin_round(self, timer: int, tag: int) -> None:
        """Wake the stability protocol."""

    def own_unstable(self) -> tuple[int, int]:
        """Own messages that are not stable, and their bytes."""

    def published(self) -> int:
        """Own messages so far."""

    def own_stable(self) -> int:
        """Own messages that are stable."""

    def is_unstable(self) -> bool:
        """Is anything held that is not stable?"""

    def is_behind(self) -> bool:
        """Is anything stable that not all applications are known to have processed, or not all disks to have stored?"""


class Rounds:
    """The pause between rounds."""

    def __init__(self, stack: Paced, round_s: float = 0.01) -> None:
        """No round yet; one is expected to take `round_s`."""
        self._stack = stack
        self._next: tuple[int, int] | None = None
        """The timer and its tag that wake the protocol for the next round; None while a round runs."""
        self._due = False
        self._behind_s = 0.0
        """The pause before a round that is only for levels; 0: there was progress, the usual pause."""
        self._wanted = 0
        self._is_asked = False
        self._began_ns = 0
        self._released = 0
        """Own messages that were stable when the last round ended."""
        self._pause_until_ns = 0
        """The buffer requests no round before."""
        self._rate_at = (stack.now_ns, 0)
        self.round_s = round_s
        self.rate_per_s = 0.0
        self.count = 0

    def rest(self, timer: int, tag: int, delay_ns: int) -> None:
        """The protocol rests and wants to be woken with (timer, tag)."""
        self._next, self._due = (timer, tag), False
        self._stack.later(delay_ns, self._delay_is_over, tag)
        self.watch()

    def ask(self, sequence: int) -> None:
        """Begin rounds, one after another, until this own message is stable.

        A round that overtakes the message finds it unstable, and a round takes about as long as a message takes to
        reach all members (both cross the cube): so the message gets a little of that time as a head start.
        """
        delay_s = min(_HEAD_START * self.round_s, _HEAD_START_MAX_S)
        self._stack.later(round(delay_s * NS), self._want, sequence)

    def ask_once(self) -> None:
        """Begin one round, now or when the present one has ended."""
        self._is_asked = True
        self.watch()

    def _want(self, sequence: int) -> None:
        self._wanted = max(self._wanted, sequence)
        self.watch()

    def watch(self) -> None:
        """Begin the next round if there is a reason to."""
        if self._next is None:
            return
        if self._is_asked or self._wanted > self._stack.own_stable() or self._buffer_calls():
            self._is_asked = False
            self._wake()
        elif self._due and self._stack.is_unstable():
            self._due = False
            pause_s = min(_AFTER_QUIET_ROUNDS * self.round_s, self._stack.round_every_s)
            self._stack.later(round(pause_s * NS), self._delay_is_over, self._next[1])

    def news(self) -> None:
        """An application or a disk has advanced, here or, as a round showed, elsewhere."""
        self._behind_s = 0.0
        if self._due and self._next is not None and self._stack.is_behind():
            self._due = False
            self._stack.later(round(self._stack.round_every_s * NS), self._delay_is_over, self._next[1])

    def _wake(self) -> None:
        assert self._next is not None
        self._stack.later(0, self._stack.begin_round, *self._next)
        self._next = None

    def note(self, *, done: bool) -> None:
        """A round began or ended."""
        now_ns = self._stack.now_ns
        if not done:
            self._began_ns = now_ns
            self._next = None
            return
        self.count += 1
        self._pause_if_little_was_released()
        self.round_s += _SMOOTH * ((now_ns - self._began_ns) / NS - self.round_s)
        since_ns, published = self._rate_at
        if now_ns - since_ns > _RATE_NS:
            self.rate_per_s = (self._stack.published() - published) * NS / (now_ns - since_ns)
            self._rate_at = (now_ns, self._stack.published())

    def _delay_is_over(self, tag: int) -> None:
        if self._next is None or self._next[1] != tag:
            return
        if self._stack.is_unstable():
            self._wake()
        elif not self._stack.is_behind():
            self._due = True
        elif self._behind_s == 0.0:
            self._behind_s = self._stack.round_every_s
            self._wake()
        else:
            self._due = True
            self._behind_s, pause_s = min(2 * self._behind_s, _BEHIND_S_MAX), self._behind_s
            self._stack.later(round(pause_s * NS), self._behind_is_over, tag)

    def _behind_is_over(self, tag: int) -> None:
        if self._next is not None and self._next[1] == tag:
            self._wake()

    def _pause_if_little_was_released(self) -> None:
        stable = self._stack.own_stable()
        released, self._released = stable - self._released, stable
        if self._is_buffer_full() and released * _LITTLE < self._stack.window:
            pause_s = min(_PAUSE_ROUNDS * self.round_s, self._stack.round_every_s)
            self._pause_until_ns = self._stack.now_ns + round(pause_s * NS)
            self._stack.later(round(pause_s * NS), self.watch)

    def _buffer_calls(self) -> bool:
        return self._stack.now_ns >= self._pause_until_ns and self._is_buffer_full()

    def _is_buffer_full(self) -> bool:
        """Does the sender's buffer reach the level at which it requests a round?"""
        stack = self._stack
        held, held_bytes = stack.own_unstable()
        if held == 0:
            return False
        level = trigger_level(room=stack.window, rate_per_s=self.rate_per_s, round_s=self.round_s)
        return held >= max(level, 1) or 2 * held_bytes >= stack.window_bytes
