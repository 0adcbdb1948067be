"""The trace events of a member as rows of the one trace schema (`docs/trace.md`), in the file of its process.

The member records an event when it happens; the driver flushes the rows up to the `position` at which it took effects
when the journal has their events, and before any of these effects leaves the process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cubecast.live.trace_writer import MemberTraceWriter
from cubecast.protocols.membership.views import MemberId, View, ViewId
from cubecast.trace.schema import (
    BLOCKED,
    CAUSAL,
    EXCLUDED,
    LEAVE,
    MULTICAST,
    NOBODY,
    RESTART,
    RESTARTED,
    RETURNED,
    SENT,
    UNBLOCKED,
)

_PLAIN = {
    "blocked": BLOCKED,
    "unblocked": UNBLOCKED,
    "left": LEAVE,
    "restart": RESTART,
    "restarted": RESTARTED,
}


class TraceAdapter:
    """The `MemberTrace` of one process."""

    def __init__(self, path: str | Path) -> None:
        """Continue the file."""
        self._writer = MemberTraceWriter(path, writes_early=False)
        self._view = NOBODY
        self._is_replay = False
        self._unstable: deque[tuple[int, int]] = deque()
        """Serial and sequence of own messages that are sent and not stable."""
        self._causal_to: dict[MemberId, int] = {}
        self._notes: dict[str, Callable[..., None]] = {
            "multicast": self._multicast,
            "sent": self._sent,
            "install": self._install,
            "stable": self._stable,
            "causal": self._causal,
            "hold": self._hold,
            "restore": self._restore,
            "excluded": self._excluded,
            "incarnation": self._incarnation,
        }

    def note(self, now_ns: int, me: MemberId, event: str, **data: Any) -> None:
        """Record an event."""
        write = self._notes.get(event)
        if write is not None:
            write(now_ns, me, **data)
            return
        self._is_replay = event == "restart" or (self._is_replay and event != "restarted")
        self._writer.row(now_ns, _PLAIN[event], self._id(me), round=self._view)

    def deliveries(self, now_ns: int, me: MemberId, senders: list[MemberId], sequences: list[int]) -> None:
        """Record messages that were handed to the application, in this order."""
        self._writer.deliveries(now_ns, self._id(me), [self._id(sender) for sender in senders], sequences)

    @property
    def position(self) -> int:
        """The place of the next row."""
        return self._writer.position

    def flush(self, position: int | None = None) -> None:
        """Write the rows up to a position, or all."""
        self._writer.flush(position)

    def close(self, position: int | None = None) -> None:
        """Write what is left, up to a position or all, and close the file."""
        self._writer.close(position)

    def _id(self, who: MemberId) -> int:
        return self._writer.member_id(who.name, who.incarnation)

    def _multicast(self, now_ns: int, me: MemberId, *, serial: int) -> None:
        self._writer.row(now_ns, MULTICAST, self._id(me), message=serial)

    def _sent(self, now_ns: int, me: MemberId, *, view: ViewId, sequence: int, serial: int) -> None:
        self._unstable.append((serial, sequence))
        own = self._id(me)
        self._writer.row(now_ns, SENT, own, sender=own, sequence=sequence, round=view.number, message=serial)

    def _install(self, now_ns: int, me: MemberId, *, view: View, **_: Any) -> None:
        self._view = view.number
        members = [self._id(who) for who in view.members]
        self._writer.install(now_ns, self._id(me), view.number, view.tag, members)

    def _stable(self, now_ns: int, me: MemberId, *, sender: MemberId, sequence: int, **_: Any) -> None:
        if sender == me:
            while self._unstable and self._unstable[0][1] <= sequence:
                self._unstable.popleft()
        self._writer.stable(now_ns, self._id(me), [self._id(sender)], [sequence])

    def _causal(self, now_ns: int, me: MemberId, *, frontier: dict[MemberId, int], **_: Any) -> None:
        for sender, sequence in frontier.items():
            if sequence > self._causal_to.get(sender, 0):
                self._causal_to[sender] = sequence
                self._writer.row(now_ns, CAUSAL, self._id(me), sender=self._id(sender), sequence=sequence)

    def _hold(self, now_ns: int, me: MemberId, *, sender: MemberId, sequence: int, **_: Any) -> None:
        self._writer.holds(now_ns, self._id(me), [self._id(sender)], [sequence])

    def _restore(self, now_ns: int, me: MemberId, *, view: View) -> None:
        number, tag = (NOBODY, NOBODY) if self._is_replay else (view.number, view.tag)
        senders = [self._id(who) for who in view.members]
        self._writer.restore(now_ns, self._id(me), number, tag, senders, list(view.sent))

    def _excluded(self, now_ns: int, me: MemberId, *, returned: list[int], **_: Any) -> None:
        own, sequences = self._id(me), dict(self._unstable)
        for serial in returned:
            self._writer.row(now_ns, RETURNED, own, sender=own, sequence=sequences.get(serial, 0), message=serial)
        self._writer.row(now_ns, EXCLUDED, own, round=self._view)

    def _incarnation(self, _now_ns: int, me: MemberId) -> None:
        self._unstable.clear()
        self._causal_to.clear()
        self._view = NOBODY
        self._id(me)
