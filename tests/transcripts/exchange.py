"""Data protocols, transports and failure detectors driven by hand: the messages sent, in order, as text.

`Exchange` holds a small group of one protocol (row = rank) and a clock. The test publishes, decides what arrives and
what is lost, and lets time pass; the transcript has one line per action.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import numpy as np

from cubecast.protocol import mail as mailbox
from cubecast.protocol import rank_sets, shared_sets
from cubecast.protocol.bound import bind
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import new_group
from cubecast.protocol.handlers import (
    HEARD,
    JOIN,
    LEAVE,
    PUBLISH,
    RECEIVE,
    START,
    TIMER,
)
from cubecast.protocol.mail import new_mail
from cubecast.protocol.transport_abilities import CAUGHT_UP
from cubecast.protocols.transport import window
from tests.support.cores import build_core
from tests.transcripts.turn import SLOT, turn

_KINDS = ("DATA", "NAK", "ANNOUNCE", "ACK", "STATUS", "SUBMIT", "ACCEPTED", "REQUEST", "HISTORY")


@dataclass(frozen=True, kw_only=True)
class Copy:
    """One copy of a message in transit."""

    source: int
    to: int
    kind: int
    sender: int
    sequence: int
    field_1: int
    mask: int
    numbers: tuple[int, ...]
    size: int

    def masked_numbers(self) -> list[int]:
        """The numbers in the mask, counted from the first."""
        base = self.sequence + 1 if _KINDS[self.kind] == "ACK" else self.sequence
        return [base + k for k in range(64) if self.mask >> k & 1]

    def __str__(self) -> str:
        name = _KINDS[self.kind]
        many = " {" + " ".join(map(str, self.masked_numbers())) + "}" if self.mask else ""
        if name == "NAK":
            return f"NAK of {self.sender} to {self.field_1}{many}"
        if name == "ACK":
            return f"ACK of {self.sender} up to {self.sequence}{many}"
        if name in ("REQUEST", "HISTORY"):
            return f"{name} [{' '.join(map(str, self.numbers))}]"
        if name == "STATUS":
            return f"STATUS of {self.sender} all {self.field_1}, misses{many or ' none'}"
        return f"{name} {self.sender}.{self.sequence}" + (f" released {self.field_1}" if self.field_1 else "")


@dataclass(frozen=True, kw_only=True, order=True)
class Alarm:
    """A timer that is set."""

    time_ns: int
    order: int
    rank: int
    timer: int
    tag: int


class Exchange:
    """A small group of one protocol; see the module."""

    def __init__(self, entry: Protocol, *, members: int, senders: int = 1, **settings: Any) -> None:
        """Everybody is up and holds nothing."""
        self.members = members
        self.group = new_group(members=members, senders=senders, ranks=np.arange(members))
        core = build_core(entry, self.group, members=members, senders=senders, **settings)
        self.family = entry.family
        self.state: Any = core.state
        width = max(members, core.numbers)
        self.mail = new_mail(slots=256, width=width, words=rank_sets.words_for(members), room=256)
        self.bound = bind((self.state,), self.mail)
        self.now_ns = 0
        self.under_way: list[Copy] = []
        self.alarms: list[Alarm] = []
        self.lines: list[str] = []
        self.suspected: list[tuple[int, int]] = []
        self.set = 0

    # What befalls a member.

    def start(self, *ranks: int) -> None:
        for rank in ranks or range(self.members):
            self._call(rank, START, 0, 0)

    def publish(self, rank: int) -> None:
        self._call(rank, PUBLISH, 0, 0)

    def hear(self, rank: int, source: int) -> None:
        """A data message from `source` came to `rank`."""
        self._call(rank, HEARD, source, 0)

    def leave(self, rank: int, who: int) -> None:
        shared_sets.discard(self.group.members, rank, who)
        self._call(rank, LEAVE, who, 0)

    def join(self, rank: int, who: int) -> None:
        """`rank` learns of a newcomer; the newcomer itself, that all others have."""
        self._call(rank, JOIN, who, 0)

    def receive(self, copy: Copy) -> None:
        head = self.mail.heads[SLOT]
        head.kind, head.sender, head.sequence = copy.kind, copy.sender, copy.sequence
        head.field_1, head.source = copy.field_1, copy.source
        self.mail.numbers[SLOT, : len(copy.numbers)] = copy.numbers
        rank_sets.clear(self.mail.bits[SLOT])
        self.mail.bits[SLOT, 0] = copy.mask
        self.mail.counts[mailbox.USED] = SLOT + 1
        self._call(copy.to, RECEIVE, SLOT, 0)

    # What befalls messages under way, and time.

    def deliver(self, source: int | None = None, to: int | None = None) -> None:
        """The oldest copy that fits arrives."""
        copy = self._find(source, to)
        self.under_way.remove(copy)
        self.receive(copy)

    def lose(self, source: int | None = None, to: int | None = None) -> None:
        """The oldest copy that fits is lost."""
        self.under_way.remove(self._find(source, to))

    def deliver_all(self) -> None:
        """Everything arrives in the order it was sent, and so do the messages that follow from it."""
        for _ in range(10_000):
            if not self.under_way:
                return
            self.receive(self.under_way.pop(0))
        raise AssertionError("the messages never end")

    def pass_time(self, duration_ns: int) -> None:
        """Timers fire as they are due; nothing arrives."""
        until_ns = self.now_ns + duration_ns
        while self.alarms and min(self.alarms).time_ns <= until_ns:
            alarm = min(self.alarms)
            self.alarms.remove(alarm)
            self.now_ns = alarm.time_ns
            self.ring(alarm)
        self.now_ns = until_ns

    def ring(self, alarm: Alarm) -> None:
        """A timer is due."""
        self._call(alarm.rank, TIMER, alarm.timer, alarm.tag)

    # What came out.

    def says(self, expected: str) -> None:
        """Compare the transcript since the last question with the golden one."""
        lines, self.lines = self.lines, []
        assert "\n".join(lines) == dedent(expected).strip()

    def describe(self, copy: Copy) -> str:
        """What a message says."""
        return str(copy)

    def stable(self) -> list[list[int]]:
        return [[int(number) for number in row] for row in self.group.stable]

    def received(self) -> list[list[int]]:
        return [[int(number) for number in row] for row in self.group.received]

    def _find(self, source: int | None, to: int | None) -> Copy:
        for copy in self.under_way:
            if source in (None, copy.source) and to in (None, copy.to):
                return copy
        raise AssertionError(f"nothing like {source} → {to} among {[str(one) for one in self.under_way]}")

    def _call(self, rank: int, what: int, a: int, b: int) -> None:
        turn(self.bound.cores, rank, self.now_ns, what, a, b)
        assert self.mail.counts[mailbox.OVERFLOW] == 0
        for place in range(int(self.mail.counts[mailbox.WAITING])):
            action = self.mail.actions[place]
            self._carry_out(
                rank, int(action.what), int(action.slot), int(action.a), int(action.b), int(action.delay_ns)
            )
        # All messages are copied out, so the pool can be wiped instead of counted.
        self.mail.counts[:] = 0
        self.mail.counts[mailbox.USED] = 1

    def _carry_out(self, rank: int, what: int, slot: int, a: int, b: int, delay_ns: int) -> None:
        if what == mailbox.SEND:
            self.under_way.append(self._copy(slot, rank, a))
            self.lines.append(f"{rank} → {a}: {self.describe(self.under_way[-1])}")
        elif what == mailbox.MULTICAST:
            self.lines.append(f"{rank} → all: {self.describe(self._copy(slot, rank, -1))}")
            self.under_way += [self._copy(slot, rank, to) for to in range(self.members) if to != rank]
        elif what == mailbox.TIMER:
            self.set += 1
            self.alarms.append(Alarm(time_ns=self.now_ns + delay_ns, order=self.set, rank=rank, timer=a, tag=b))
        elif what == mailbox.DELIVER:
            self.lines.append(f"{rank} delivers {a}.{b}")
        elif what == mailbox.SUSPECT:
            self.suspected.append((rank, a))
            self.lines.append(f"{rank} suspects {a}")
        elif what == CAUGHT_UP:
            self.lines.append(f"{rank} has caught up")
        elif what == mailbox.RELEASED:
            self.lines.append(f"{rank} releases [{' '.join(map(str, self.group.stable[rank]))}]")

    def _width(self) -> int:
        """The numbers that a message carries at most; those beyond are anything."""
        if self.family == "transport":
            return int(self.group.received.shape[1])
        return int(self.mail.numbers.shape[1])

    def _copy(self, slot: int, source: int, to: int) -> Copy:
        head = self.mail.heads[slot]
        kind = int(head.kind)
        speaks = self.family == "failure" or kind in (window.NAK, window.ACK, window.STATUS)
        return Copy(
            source=source,
            to=to,
            kind=kind,
            sender=int(head.sender),
            sequence=int(head.sequence),
            field_1=int(head.field_1),
            mask=int(self.mail.bits[slot, 0]) if speaks else 0,
            numbers=tuple(int(number) for number in self.mail.numbers[slot, : self._width()]),
            size=int(head.size_bytes),
        )
