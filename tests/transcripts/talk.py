"""Cores driven by hand: the messages sent, in order, as text that a reader can check against the paper.

`Talk` holds a small group of one protocol (row = rank). It calls the core through `call_core`, as any driver does, and
keeps its actions: messages in transit, timers that are set, and a transcript with one line per action. The test
decides what arrives, what is lost and which timer is due.
"""

from __future__ import annotations

from dataclasses import dataclass
from textwrap import dedent
from typing import Any

import numpy as np

from cubecast.protocol import mail as mailbox
from cubecast.protocol import rank_sets, shared_sets
from cubecast.protocol.bound import bind
from cubecast.protocol.group import STABILITY, new_group
from cubecast.protocol.handlers import (
    JOIN,
    LEAVE,
    RECEIVE,
    START,
    TIMER,
)
from cubecast.protocol.mail import new_mail
from cubecast.protocols.catalogue import protocol_named
from tests.support.cores import build_core
from tests.transcripts.turn import SLOT, turn

_KINDS = {
    "coord": ("START", "ACK", "INFO", "ACK_INFO"),
    "s_coord": ("START", "ACK", "INFO", "ACK_INFO", "ASK"),
    "full_dist": ("INFO", "REQUEST"),
    "cube_full_dist": ("STABILITY", "RESULT"),
    "train": ("ACK", "INFO"),
    "gossip": ("GOSSIP", "INFO"),
    "s_train": ("START", "ACK1", "ACK2", "INFO", "ASK"),
    "s_gossip": ("LOCAL", "AMONG", "INFO"),
    "dissemination": ("MINIMUM", "ASK"),
    "cascade": ("MINIMUM", "ASK"),
}
_BARE = {"START", "ACK_INFO", "ASK"}
_WITH_VIEWS = {"s_coord", "s_train", "dissemination", "cascade"}
_WITH_REMARKS = {"dissemination", "cascade"}
_WITH_BITMAP = {"STABILITY", "RESULT", "GOSSIP", "LOCAL", "AMONG"}
_TIMERS = ("NEXT_ROUND", "REPEAT", "LATER")
_STEP_TIMERS = ("STEP", "NEXT_ROUND")
DELTA_NS, REPEAT_NS, STEP_NS = 1000, 70, 100


@dataclass(frozen=True, kw_only=True)
class Message:
    """One copy in transit."""

    source: int
    to: int
    kind: str
    round: int
    iteration: int = 0
    numbers: tuple[int, ...] = ()
    heard: tuple[int, ...] = ()
    size: int = 0
    view: int = 0
    """S_Coord, S_Train and those over an aggregation overlay: which membership the sender sees."""
    remark: int = 0
    """Over an aggregation overlay: how long to linger; of an ASK the round of its minimum."""

    def __str__(self) -> str:
        step = f".{self.iteration}" if self.iteration else ""
        heard = " {" + " ".join(map(str, self.heard)) + "}" if self.heard else ""
        numbers = " [" + " ".join(map(str, self.numbers)) + "]" if self.numbers else ""
        return f"{self.kind} {self.round}{step}{heard}{numbers}"


@dataclass(frozen=True, kw_only=True)
class Timer:
    """One timer that a core set."""

    rank: int
    name: str
    tag: int
    delay_ns: int
    due_ns: int


class Talk:
    """A small group of one protocol; see the module."""

    def __init__(
        self,
        protocol: str,
        received: list[list[int]],
        *,
        lossy: bool = False,
        goal: int = STABILITY,
        delta_ns: int = DELTA_NS,
        **parameters: Any,
    ) -> None:
        """All members are up and hold their rows of `received`; none has started."""
        self.members, senders = len(received), len(received[0])
        self.group = new_group(members=self.members, senders=senders, ranks=np.arange(self.members), goal=goal)
        self.group.received[:] = received
        core = build_core(
            protocol_named(protocol),
            self.group,
            members=self.members,
            senders=senders,
            where_known={"tree_degree": 2, "step_s": STEP_NS / 1e9},
            delta_ns=delta_ns,
            repeat_ns=REPEAT_NS if lossy else 0,
            **parameters,
        )
        self.state: Any = core.state
        self.kinds = _KINDS[protocol]
        self.timer_names = _STEP_TIMERS if protocol in ("gossip", "s_gossip") else _TIMERS
        self._has_views = protocol in _WITH_VIEWS
        self._has_remarks = protocol in _WITH_REMARKS
        self.now_ns = 0
        width = max(core.numbers, senders)
        self.mail = new_mail(slots=256, width=width, words=rank_sets.words_for(self.members), room=256)
        self.bound = bind((self.state,), self.mail)
        self.under_way: list[Message] = []
        self.timers: list[Timer] = []
        self.lines: list[str] = []
        self.crashed: set[int] = set()
        self.done = [0] * self.members
        self.begun = [0] * self.members

    # What befalls a member.

    def start(self, *ranks: int) -> None:
        """These members begin; all when none is named."""
        for rank in ranks or range(self.members):
            self._call(rank, START, 0, 0)

    def receive(self, message: Message) -> None:
        """A copy arrives at its destination, whether or not it is still under way."""
        self.mail.heads[SLOT].kind = self.kinds.index(message.kind)
        self.mail.heads[SLOT].round_number = message.round
        self.mail.heads[SLOT].field_1 = message.view if self._has_views else message.iteration
        self.mail.heads[SLOT].field_2 = message.remark
        self.mail.heads[SLOT].source = message.source
        self.mail.numbers[SLOT, : len(message.numbers)] = message.numbers
        rank_sets.clear(self.mail.bits[SLOT])
        for rank in message.heard:
            rank_sets.add(self.mail.bits[SLOT], rank)
        self.mail.counts[mailbox.USED] = SLOT + 1
        self._call(message.to, RECEIVE, SLOT, 0)

    def wake(self, rank: int, name: str) -> Timer:
        """Fire the oldest timer of that name of a member; other timers that are late by then fire later."""
        timer = next(timer for timer in self.timers if (timer.rank, timer.name) == (rank, name))
        self.timers.remove(timer)
        self.now_ns = max(self.now_ns, timer.due_ns)
        self._call(rank, TIMER, self.timer_names.index(timer.name), timer.tag)
        return timer

    def leave(self, rank: int, who: int) -> None:
        """The failure detector of a member reports `who`."""
        shared_sets.discard(self.group.members, rank, who)
        self._call(rank, LEAVE, who, 0)

    def join(self, rank: int, who: int) -> None:
        """A member takes the newcomer `who` into its membership."""
        shared_sets.add(self.group.members, rank, who)
        self._call(rank, JOIN, who, 0)

    # What befalls messages under way.

    def deliver(self, source: int | None = None, to: int | None = None, kind: str | None = None) -> None:
        """The oldest copy that fits arrives."""
        message = self._find(source, to, kind)
        self.under_way.remove(message)
        self.receive(message)

    def lose(self, source: int | None = None, to: int | None = None, kind: str | None = None) -> Message:
        """The oldest copy that fits is lost."""
        message = self._find(source, to, kind)
        self.under_way.remove(message)
        return message

    def deliver_all(self) -> None:
        """Everything arrives in the order it was sent, and what it leads to."""
        for _ in range(10_000):
            if not self.under_way:
                return
            self.receive(self.under_way.pop(0))
        raise AssertionError("the messages never end")

    def deliver_all_but(self, kind: str) -> None:
        """Everything arrives but messages of this kind, which stay under way."""
        for _ in range(10_000):
            others = [message for message in self.under_way if message.kind != kind]
            if not others:
                return
            self.under_way.remove(others[0])
            self.receive(others[0])
        raise AssertionError("the messages never end")

    def wake_all(self, name: str) -> None:
        """Every timer of that name that runs now is due."""
        for timer in [timer for timer in self.timers if timer.name == name]:
            self.wake(timer.rank, name)

    def has_timer(self, rank: int, name: str) -> bool:
        """Does such a timer run?"""
        return any((timer.rank, timer.name) == (rank, name) for timer in self.timers)

    def crash(self, who: int) -> None:
        """A member stops: what it sent travels on, what is sent to it is lost, its timers never ring."""
        self.crashed.add(who)
        self.under_way = [message for message in self.under_way if message.to != who]
        self.timers = [timer for timer in self.timers if timer.rank != who]

    # What came out.

    def said(self) -> str:
        """The transcript since the last question."""
        lines, self.lines = self.lines, []
        return "\n".join(lines)

    def says(self, expected: str) -> None:
        """Compare the transcript since the last question with the golden one."""
        assert self.said() == dedent(expected).strip()

    def stable(self, rank: int) -> list[int]:
        """S of a member."""
        return [int(number) for number in self.group.stable[rank]]

    def _find(self, source: int | None, to: int | None, kind: str | None) -> Message:
        for message in self.under_way:
            if source in (None, message.source) and to in (None, message.to) and kind in (None, message.kind):
                return message
        raise AssertionError(f"nothing like {source} → {to} {kind} among {[str(one) for one in self.under_way]}")

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
            self._send(self._copy(slot, rank, a), f"{rank} → {a}")
        elif what == mailbox.MULTICAST:
            self.lines.append(f"{rank} → all: {self._copy(slot, rank, -1)}")
            others = [to for to in range(self.members) if to != rank and to not in self.crashed]
            self.under_way += [self._copy(slot, rank, to) for to in others]
        elif what in (mailbox.TIMER, mailbox.NEXT_ROUND):
            due_ns = self.now_ns + delay_ns
            self.timers.append(Timer(rank=rank, name=self.timer_names[a], tag=b, delay_ns=delay_ns, due_ns=due_ns))
        elif what == mailbox.ROUND_BEGUN:
            self.begun[rank] = max(self.begun[rank], a)
            self.lines.append(f"{rank} begins {a}")
        elif what == mailbox.ROUND_DONE:
            self.done[rank] = max(self.done[rank], a)
            self.lines.append(f"{rank} knows {a}: [{' '.join(map(str, self.stable(rank)))}]")

    def _send(self, message: Message, way: str) -> None:
        self.lines.append(f"{way}: {message}")
        if message.to not in self.crashed:
            self.under_way.append(message)

    def _copy(self, slot: int, source: int, to: int) -> Message:
        head = self.mail.heads[slot]
        kind = self.kinds[int(head.kind)]
        gossip = kind in _WITH_BITMAP
        return Message(
            source=source,
            to=to,
            kind=kind,
            round=int(head.round_number),
            iteration=int(head.field_1) if gossip else 0,
            numbers=tuple(int(number) for number in self.mail.numbers[slot]) if self._has_numbers(kind, head) else (),
            heard=tuple(
                rank for rank in range(self.members) if gossip and rank_sets.contains(self.mail.bits[slot], rank)
            ),
            size=int(head.size_bytes),
            view=int(head.field_1) if self._has_views else 0,
            remark=int(head.field_2) if self._has_remarks else 0,
        )

    def _has_numbers(self, kind: str, head: Any) -> bool:
        """An ASK over an aggregation overlay may repeat a minimum."""
        return kind not in _BARE or (self._has_remarks and int(head.field_2) > 0)
