"""A stability protocol or failure detector of one member: one call, then a list of actions."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubecast.jit.tables import hold
from cubecast.member import calls
from cubecast.protocol import mail
from cubecast.protocol.bound import bind
from cubecast.protocol.handlers import (
    HEARD,
    RECEIVE,
    START,
    TIMER,
)
from cubecast.wire.control import Control


class ControlCore:
    """A protocol whose messages are control messages."""

    def __init__(self, state: Any, *, width: int, words: int, room: int) -> None:
        """The protocol is not started yet."""
        self.state = state
        self.width = width
        self.words = words
        self._mail = calls.new_member_mail(width=width, words=words, room=room)
        self._heads = self._mail.heads.view(np.ndarray)
        self._actions = self._mail.actions.view(np.ndarray)
        self._bound = bind((state,), self._mail)
        self._held = hold(calls.BoundCore(self._bound.cores, self._mail, calls.new_sorted(width=1, room=1)))

    def start(self, now_ns: int) -> list[Any]:
        """The view begins."""
        return self._run(now_ns, START, 0, 0)

    def receive(self, now_ns: int, source: int, message: Control) -> list[Any]:
        """A message arrived."""
        self._heads[calls.INCOMING] = (
            *(message.kind, message.round_number, message.field_1, message.field_2),
            *(source, message.sender, message.sequence, 0, 1),
        )
        self._mail.numbers[calls.INCOMING] = message.numbers
        self._mail.bits[calls.INCOMING] = message.bits
        return self._run(now_ns, RECEIVE, calls.INCOMING, 0)

    def on_timer(self, now_ns: int, timer: int, tag: int) -> list[Any]:
        """A timer is due."""
        return self._run(now_ns, TIMER, timer, tag)

    def heard(self, now_ns: int, rank: int) -> list[Any]:
        """A message came from this member: it is alive."""
        return self._run(now_ns, HEARD, rank, 0)

    def drafted(self, slot: int) -> Control:
        """The message in a slot, for the wire."""
        kind, round_number, field_1, field_2, _, sender, sequence, _, _ = self._heads[slot].item()
        return Control(
            kind=kind,
            round_number=round_number,
            field_1=field_1,
            field_2=field_2,
            sender=sender,
            sequence=sequence,
            numbers=self._mail.numbers[slot],
            bits=self._mail.bits[slot],
        )

    def _run(self, now_ns: int, what: int, a: int, b: int) -> list[Any]:
        calls.call(self._held.handle, now_ns, what, a, b)
        assert self._mail.counts[mail.OVERFLOW] == 0, "the outbox of a live core is too small"
        return list(self._actions[: int(self._mail.counts[mail.WAITING])].tolist())
