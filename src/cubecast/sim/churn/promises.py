"""What a changing group promises, judged from the history alone.

| promise             | meaning                                                                                     |
|---------------------|---------------------------------------------------------------------------------------------|
| view agreement      | a view number stands for one set of members; views follow one another; only members install |
| virtual synchrony   | who installs a view and the next one delivers the same messages in between                  |
| same state          | all who install a view have delivered the same messages until then, newcomers included      |
| sending view        | a message is delivered in the view in which it was sent, under its sender and number        |
| causal order        | no message is delivered before one that happened before it, also across views               |
| exactly once        | no member delivers a message twice, none that was not sent, and none after it is out        |
| stability           | what is called stable was delivered by every member of the view                             |
| restart             | who goes on from its disk is told again what it was told after its checkpoint, nothing else |
| nothing lost        | what a member that stays sent is delivered by all that stay; what is returned by nobody     |
| progress            | a group that has a quorum settles: one view, one state, nobody waits                        |

Sets of messages are bit masks. A message's past is what its sender had delivered when it sent it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

from cubecast.core.membership import MemberId, View
from cubecast.sim.churn.history import History, Row


class Judge:
    """Reads a history row by row and gathers what was broken."""

    def __init__(self) -> None:
        """Nothing read."""
        self.broken: list[str] = []
        self.views: dict[int, View] = {}
        self.current: dict[MemberId, View] = {}
        self.log: dict[MemberId, int] = defaultdict(int)
        self.in_view: dict[MemberId, int] = defaultdict(int)
        self.counts: dict[tuple[MemberId, int], dict[MemberId, int]] = defaultdict(dict)
        self.stable_count: dict[tuple[int, MemberId], int] = {}
        self.past: dict[int, int] = {}
        self.sent: dict[int, tuple[int, MemberId, int]] = {}
        self.between: dict[int, tuple[MemberId, int]] = {}
        self.at_start: dict[int, tuple[MemberId, int]] = {}
        self.out: set[MemberId] = set()
        self.down: set[MemberId] = set()
        self.told: dict[MemberId, list[int]] = defaultdict(list)
        self.replayed: dict[MemberId, int] = {}
        self.returned: list[tuple[MemberId, int, int]] = []

    def read(self, history: History) -> None:
        """Judge all rows in their order, and what can only be judged at the end."""
        for row in history:
            judge = getattr(self, f"_{row.event}", None)
            if row.who in self.out and row.event in ("deliver", "install", "sent", "stable"):
                self._complain(row, "exactly once", f"{row.event} after it left, crashed or was excluded")
            if row.who in self.down and row.event != "resume":
                self._complain(row, "restart", f"{row.event} while it is down")
            if judge is not None:
                judge(row)
        self._judge_returned()

    def _complain(self, row: Row, promise: str, what: str) -> None:
        name, life = row.who
        self.broken.append(f"{promise}: at {row.time_ns / 1e6:.3f} ms member {name} (life {life}): {what}")

    def _sent(self, row: Row) -> None:
        view, number, payload = row.data
        if self.sent.setdefault(payload, (view, row.who, number)) != (view, row.who, number):
            self._complain(row, "exactly once", f"message {payload} is sent a second time")
        self.past.setdefault(payload, self.log[row.who])

    def _deliver(self, row: Row) -> None:
        view, sender, number, payload = row.data
        if self._is_replay(row, payload):
            return
        self._was_told(row.who, [*self.told[row.who], payload])
        bit = 1 << payload
        if self.log[row.who] & bit:
            self._complain(row, "exactly once", f"message {payload} a second time")
        if self.sent.get(payload) != (view, sender, number):
            self._complain(row, "sending view", f"message {payload} in view {view}, sent as {self.sent.get(payload)}")
        if row.who not in self.current or self.current[row.who].number != view:
            self._complain(row, "sending view", f"message {payload} of view {view} while in another view")
        if self.past.get(payload, 0) & ~self.log[row.who]:
            self._complain(row, "causal order", f"message {payload} before one that happened before it")
        self.log[row.who] |= bit
        self.in_view[row.who] |= bit
        self.counts[row.who, view][sender] = number

    def _is_replay(self, row: Row, payload: int) -> bool:
        """Is it told again after a restart? Then it must be what was told before, in that order."""
        place = self.replayed.get(row.who)
        told = self.told[row.who]
        if place is None or place >= len(told):
            return False
        if told[place] != payload:
            self._complain(row, "restart", f"message {payload} where message {told[place]} was delivered before")
        self.replayed[row.who] = place + 1
        return True

    def _was_told(self, who: MemberId, payloads: list[int]) -> None:
        self.told[who] = payloads
        if who in self.replayed:
            self.replayed[who] = len(payloads)

    def _stop(self, row: Row) -> None:
        self.down.add(row.who)
        self.replayed.pop(row.who, None)

    def _resume(self, row: Row) -> None:
        self.down.discard(row.who)
        self.replayed[row.who] = 0

    def _resumed(self, row: Row) -> None:
        missing = self.told[row.who][self.replayed.pop(row.who) :]
        if missing and row.who not in self.out:
            self._complain(row, "restart", f"messages {missing} were delivered before and are forgotten")

    def _restore(self, row: Row) -> None:
        if row.who in self.replayed and row.who in self.current:
            self.replayed[row.who] = len(row.data)
            if self.told[row.who][: len(row.data)] != list(row.data):
                self._complain(row, "restart", "a checkpoint that is not what was delivered before")
            return
        self._was_told(row.who, list(row.data))
        if len(set(row.data)) < len(row.data):
            self._complain(row, "exactly once", "a state that holds a message twice")
        self.log[row.who] = sum(1 << payload for payload in set(row.data))

    def _install(self, row: Row) -> None:
        view: View = row.data
        if self.views.setdefault(view.number, view) != view:
            self._complain(row, "view agreement", f"view {view.number} has other members elsewhere")
        if row.who not in view.members:
            self._complain(row, "view agreement", f"view {view.number} is without it")
        if len({member.name for member in view.members}) < len(view.members):
            self._complain(row, "view agreement", f"view {view.number} holds two lives of one process")
        before = self.current.get(row.who)
        if row.who in self.replayed and before is not None and view.number <= before.number:
            return
        if before is not None:
            if view.number != before.number + 1:
                self._complain(row, "view agreement", f"view {view.number} after view {before.number}")
            who, delivered = self.between.setdefault(before.number, (row.who, self.in_view[row.who]))
            if delivered != self.in_view[row.who]:
                differ = _names(delivered ^ self.in_view[row.who])
                self._complain(row, "virtual synchrony", f"in view {before.number} not as member {who.name}: {differ}")
        who, log = self.at_start.setdefault(view.number, (row.who, self.log[row.who]))
        if log != self.log[row.who]:
            differ = _names(log ^ self.log[row.who])
            self._complain(row, "same state", f"at the start of view {view.number} not as member {who.name}: {differ}")
        self.current[row.who] = view
        self.in_view[row.who] = 0

    def _stable(self, row: Row) -> None:
        number, delivered = row.data
        view = self.views[number]
        if len(delivered) != len(view.members):
            self._complain(row, "stability", f"{len(delivered)} numbers in a view of {len(view.members)} members")
            return
        for sender, count in zip(view.members, delivered, strict=True):
            if count <= self.stable_count.get((number, sender), 0):
                continue  # judged before, and nobody delivers less later
            self.stable_count[number, sender] = count
            for member in view.members:
                if self.counts[member, number].get(sender, 0) < count:
                    what = f"message {count} of member {sender.name} in view {number}, not yet at member {member.name}"
                    self._complain(row, "stability", what)

    def _left(self, row: Row) -> None:
        self.out.add(row.who)

    def _crash(self, row: Row) -> None:
        self.out.add(row.who)

    def _excluded(self, row: Row) -> None:
        self.out.add(row.who)
        payloads, certain = row.data
        if certain and row.who in self.current:
            self.returned += [(row.who, self.current[row.who].number, payload) for payload in payloads]

    def _judge_returned(self) -> None:
        for who, number, payload in self.returned:
            for member, view in self.current.items():
                if view.number > number and self.log[member] >> payload & 1:
                    self.broken.append(
                        f"nothing lost: message {payload} was returned to member {who.name}, yet member "
                        f"{member.name} went on to view {view.number} with it"
                    )

    def judge_end(self, history: History, present: Iterable[MemberId]) -> None:
        """In a group that has settled: whatever those who are in it multicast is in the log of each."""
        members = set(present)
        wanted = 0
        for row in history:
            if row.event == "multicast" and row.who in members:
                wanted |= 1 << row.data
        for who in members:
            if wanted & ~self.log[who]:
                self.broken.append(f"nothing lost: member {who.name} lacks {_names(wanted & ~self.log[who])}")


def _names(mask: int) -> list[int]:
    """The messages of a mask."""
    return [place for place in range(mask.bit_length()) if mask >> place & 1]
