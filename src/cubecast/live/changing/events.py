"""What the application is given, in order, and how many bytes of it the application has not taken.

A snapshot of the application is taken when the application has got to the place of the snapshot in this order: only
then does its state hold exactly the messages before it. The state of a newcomer is put in its place in the same way.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

import msgspec

from cubecast.core.membership import MemberId, View


class ChangingDelivery(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A message as the application gets it: message `sequence` of a sender in a view."""

    sender: MemberId
    view: int
    sequence: int
    payload: bytes
    is_history: bool = False
    """Was it delivered to the others before this member joined?"""


@dataclass(frozen=True, kw_only=True)
class ViewChange:
    """All deliveries after this one are in this view."""

    view: View
    pause_s: float
    """For how long this member delivered nothing because of the change."""


@dataclass(frozen=True, kw_only=True)
class TakeSnapshot:
    """The application's state is wanted here."""

    view: int


@dataclass(frozen=True, kw_only=True)
class PutState:
    """The application begins with this state here."""

    octets: bytes


Event = ChangingDelivery | ViewChange
Entry = Event | TakeSnapshot | PutState


class Inbox:
    """The queue of what the application is to take."""

    def __init__(self, bytes_max: int) -> None:
        """Empty."""
        self.entries: deque[Entry] = deque()
        self.bytes = 0
        self.is_closed = False
        self._bytes_max = bytes_max
        self._more: asyncio.Future[None] | None = None

    @property
    def is_full(self) -> bool:
        """Has the application enough to do?"""
        return self.bytes > self._bytes_max

    @property
    def has_room(self) -> bool:
        """Has it caught up with half of that?"""
        return 2 * self.bytes <= self._bytes_max

    def put(self, entry: Entry) -> None:
        """Add to the end."""
        self.entries.append(entry)
        if isinstance(entry, ChangingDelivery):
            self.bytes += len(entry.payload)
        self._wake()

    def take(self) -> Entry:
        """Take the first one."""
        entry = self.entries.popleft()
        if isinstance(entry, ChangingDelivery):
            self.bytes -= len(entry.payload)
        return entry

    def close(self) -> None:
        """Nothing more will come."""
        self.is_closed = True
        self._wake()

    async def wait(self) -> bool:
        """Wait for an entry; False when there will be none."""
        while not self.entries:
            if self.is_closed:
                return False
            self._more = asyncio.get_running_loop().create_future()
            await self._more
        return True

    def _wake(self) -> None:
        if self._more is not None and not self._more.done():
            self._more.set_result(None)
