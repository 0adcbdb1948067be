"""Total order: all members deliver the same messages in the same order.

Each message carries a Lamport clock: larger than that of every message that its sender's application had processed
before the multicast. Messages are ordered by (view, clock, sender). A message can be delivered to the application when
no message with a smaller key can still arrive:

- when it is causally stable: what still arrives in its view follows it, and has a larger clock. Those with smaller keys
  must be causally stable too: others may continue without a message that not all members have;
- when the next view begins: nothing of the old view arrives after that.

So all members deliver the same sequence, and an excluded member a prefix of it. A message that an application multicast
while it was not in the group, with an old clock, is no exception: it is sent, and counted, in the view in which its
sender joins.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Generic, NamedTuple, TypeVar

from cubecast.protocols.membership.views import MemberId

_Item = TypeVar("_Item")


class Key(NamedTuple):
    """The place of a message in the order."""

    view: int
    clock: int
    sender: MemberId
    sequence: int


class TotalOrder(Generic[_Item]):
    """Messages that were delivered and wait for their turn."""

    def __init__(self) -> None:
        """No message waits."""
        self.waiting: list[tuple[Key, _Item]] = []
        """In the order of their keys."""

    def add(self, key: Key, item: _Item) -> None:
        """Add a delivered message."""
        place = len(self.waiting)
        while place and self.waiting[place - 1][0] > key:
            place -= 1
        self.waiting.insert(place, (key, item))

    def stable(self, is_causally_stable: Callable[[Key], bool]) -> list[tuple[Key, _Item]]:
        """More is causally stable: remove and return the messages whose turn it is, in order."""
        count = 0
        while count < len(self.waiting) and is_causally_stable(self.waiting[count][0]):
            count += 1
        return self._take(count)

    def begin_view(self, number: int) -> list[tuple[Key, _Item]]:
        """A view begins: remove and return all messages of earlier views, in order."""
        return self._take(sum(key.view < number for key, _ in self.waiting))

    def _take(self, count: int) -> list[tuple[Key, _Item]]:
        taken, self.waiting = self.waiting[:count], self.waiting[count:]
        return taken

    def put_back(self, waiting: Iterable[tuple[Key, _Item]]) -> None:
        """Install the waiting messages of another member."""
        self.waiting = sorted(waiting, key=lambda one: one[0])
