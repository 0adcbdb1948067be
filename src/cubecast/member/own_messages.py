"""The own messages that are not stable, oldest first: a window of messages and bytes.

A message is *waiting* until the view allows it to be sent, then *sent* with a view and a number, then stable or
returned. They are sent in the order of the calls, so the oldest waiting one is always the next one sent, and what an
exclusion returns are the last ones.
"""

from __future__ import annotations

from collections import deque

from cubecast.errors import CubecastError, LocalProtocolError
from cubecast.member.effects import Effects, Outgoing


class StoppedError(LocalProtocolError):
    """The member was stopped before the message was stable; with a journal, the message continues after a restart."""


class OwnMessages:
    """The own messages of one member that are not stable."""

    def __init__(self, *, bytes_max: int) -> None:
        """There are no messages yet."""
        self.bytes = 0
        self.count = 0
        self.waiting: deque[Outgoing] = deque()
        self.sent: deque[Outgoing] = deque()
        self._bytes_max = bytes_max

    def __len__(self) -> int:
        """Messages that are not stable."""
        return len(self.sent) + len(self.waiting)

    def has_room(self, messages_max: int, more: int = 0, more_bytes: int = 0) -> bool:
        """May the application multicast one more, besides `more` messages that are certain to come?"""
        messages = len(self.sent) + len(self.waiting) + more
        return messages < messages_max and self.bytes + more_bytes < self._bytes_max

    def add(self, payload: bytes) -> Outgoing:
        """Add a message, which waits."""
        self.count += 1
        self.bytes += len(payload)
        outgoing = Outgoing(self.count, payload)
        self.waiting.append(outgoing)
        return outgoing

    def send(self, count: int, view: int, first: int) -> list[Outgoing]:
        """The oldest waiting messages are sent, with these numbers."""
        batch = []
        for sequence in range(first, first + count):
            outgoing = self.waiting.popleft()
            outgoing.view, outgoing.sequence, outgoing.was_sent = view, sequence, True
            batch.append(outgoing)
        self.sent.extend(batch)
        return batch

    def is_stable(self, sequence: int, effects: Effects) -> None:
        """Messages sent up to this number are stable."""
        sent = self.sent
        while sent and sent[0].sequence <= sequence:
            self._settle(sent.popleft(), effects)

    def returned(self, above: int, effects: Effects) -> list[Outgoing]:
        """This incarnation is over: what was sent up to `above` reached the group; the rest comes back."""
        self.is_stable(above, effects)
        back = [*self.sent, *self.waiting]
        self.sent.clear()
        self.waiting.clear()
        return back

    def again(self, outgoing: Outgoing) -> None:
        """A message that came back waits to be sent in the next incarnation."""
        outgoing.view = outgoing.sequence = 0
        outgoing.was_sent = False
        self.waiting.append(outgoing)

    def lose(self, outgoing: Outgoing, failure: CubecastError, effects: Effects) -> None:
        """A message that came back is not sent again."""
        self._settle(outgoing, effects, failure)

    def end(self, failure: CubecastError, effects: Effects) -> None:
        """Nothing more will be stable."""
        for outgoing in (*self.sent, *self.waiting):
            self._settle(outgoing, effects, failure)
        self.sent.clear()
        self.waiting.clear()

    def _settle(self, outgoing: Outgoing, effects: Effects, failure: CubecastError | None = None) -> None:
        self.bytes -= len(outgoing.payload)
        outgoing.is_stable = failure is None
        outgoing.failure = failure
        effects.settled.append(outgoing)
