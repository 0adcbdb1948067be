"""The progress of the members of a view: what all have received, processed and written, and what is causally stable.

The stability protocol of a view folds one vector per member to its minimum. That vector has four blocks, each with one
number per rank:

| block     | what a member contributes                                                                             |
|-----------|-------------------------------------------------------------------------------------------------------|
| RECEIVED  | the messages of each rank that were delivered here                                                    |
| PROCESSED | 1 + the messages of each rank that the application has processed; 0 while it has not processed all    |
|           | messages of earlier views                                                                             |
| DURABLE   | 1 + the messages of each rank that are on this member's disk; 0 while not all messages of earlier     |
|           | views are; NOTHING where there is no journal                                                          |
| SENT      | for its own rank: the messages that its application has multicast, those that still wait included;    |
|           | NOTHING for all other ranks                                                                           |

A minimum of the first three says what *all* members have. The minimum of SENT is a vector V of what each member had
multicast when it contributed, for every other contribution to its number is NOTHING, which is above all numbers.

A message m is *causally stable* at a member when every message that its application still gets follows m: its sender
had processed m when it multicast it. *Claim*: when PROCESSED covers m and the application here has processed V_i
messages of every rank i, then m is causally stable here. *Proof*: let t be the moment when i contributed. PROCESSED
covers m, so the application of i had processed m at t. What i had multicast by t has a number up to V_i, and the
application here has processed it. Whatever else it gets of i has a higher number, hence was multicast after t and
follows m. What m is compared with are calls of `multicast`, not frames sent: a call that waits for the window or for
the next view is counted in V. The argument needs the two blocks of one contribution to come from one moment, which
they do because they travel in one vector; a protocol that mixes vectors of one member, element by element, with a
maximum (`cascade`) only raises V, so that more is waited for.

PROCESSED and DURABLE are one higher than a count, so that the number 1 stands for all messages of earlier views: all of
them are delivered before a view begins, but an application may not have processed them yet, nor a disk stored them.

`pending` keeps earlier results whose V the application has not reached: while messages flow, it may never reach the
newest one.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import ge

import numpy as np
from numpy.typing import NDArray

from cubecast.protocol.group import NOTHING, new_group

RECEIVED, PROCESSED, DURABLE, SENT = range(4)
BLOCKS = 4
_PENDING_MAX = 32


class Levels:
    """The contribution of one member in one view, and what is known of all members."""

    def __init__(self, rank: int, members: int, *, is_durable: bool) -> None:
        """Nothing is contributed yet."""
        self.rank = rank
        self.members = members
        self.group = new_group(members=members, senders=BLOCKS * members, ranks=np.array([rank]))
        self.causal = [0] * members
        """What is causally stable here, counted as PROCESSED is."""
        self._own: NDArray[np.int32] = self.group.received[0]
        self._all: NDArray[np.int32] = self.group.stable[0]
        self._pending: list[tuple[list[int], list[int]]] = []
        self._before = self._all.copy()
        self.block(SENT)[:] = NOTHING
        self.sent(0)
        if not is_durable:
            self.block(DURABLE)[:] = NOTHING

    def block(self, which: int) -> NDArray[np.int32]:
        """One block of this member's contribution."""
        return self._own[which * self.members : (which + 1) * self.members]

    def of_all(self, which: int) -> NDArray[np.int32]:
        """One block of the minimum over all members, as far as it is known here."""
        return self._all[which * self.members : (which + 1) * self.members]

    def sent(self, count: int) -> None:
        """This member's application has multicast that many messages in this view.

        A call that was counted while it waited, and then cancelled, stays counted: what was contributed cannot be
        taken back.
        """
        place = SENT * self.members + self.rank
        self._own[place] = max(count, 0 if self._own[place] == NOTHING else self._own[place])

    def is_overcounted(self, count: int) -> bool:
        """Were more messages contributed than the application has multicast, `count`, because calls were cancelled?"""
        return bool(self._own[SENT * self.members + self.rank] > count)

    @property
    def is_behind(self) -> bool:
        """Is this member, at some level, ahead of what is known of all?"""
        own, everywhere = self._own, self._all
        first, last = PROCESSED * self.members, SENT * self.members
        ahead = own[first:last] > everywhere[first:last]
        return bool((ahead & (own[first:last] != NOTHING)).any())

    def has_moved(self) -> bool:
        """Is more known of all members than when this was asked before?"""
        first, last = PROCESSED * self.members, SENT * self.members
        if np.array_equal(self._before[first:last], self._all[first:last]):
            return False
        self._before[:] = self._all
        return True

    def fold_alone(self) -> None:
        """The only member of its view: what it contributes is the minimum."""
        np.maximum(self._all, self._own, out=self._all)

    def learn(self, processed: Sequence[int]) -> bool:
        """A round has ended, or the application has processed more: is more causally stable here than before?"""
        minimum, sent = self.of_all(PROCESSED).tolist(), self.of_all(SENT).tolist()
        if any(one > known for one, known in zip(minimum, self.causal, strict=True)):
            if self._pending and self._pending[-1][0] == minimum:
                pass  # its V, which was smaller or the same, says as much
            elif len(self._pending) < _PENDING_MAX:
                self._pending.append((minimum, sent))
            else:
                self._pending[-1] = (minimum, sent)
        return self.catch_up(processed)

    def catch_up(self, processed: Sequence[int]) -> bool:
        """The application has processed these messages of each rank: is more causally stable than before?"""
        has_grown = False
        while self._pending and all(map(ge, processed, self._pending[0][1])):
            minimum, _ = self._pending.pop(0)
            self.causal = list(map(max, self.causal, minimum))
            has_grown = True
        return has_grown
