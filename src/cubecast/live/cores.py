"""The cores of one live member: data, stability and failure detection over one shared `Group` of one row."""

from __future__ import annotations

from typing import Any

import numpy as np

from cubecast.core import bits, drive, mail
from cubecast.core.bound import bind, hold
from cubecast.core.dispatch import HEARD, LEAVE, PUBLISH, RECEIVE, START, TIMER
from cubecast.core.failure.survivors import survivors, with_neighbours
from cubecast.core.group import Group, new_group
from cubecast.core.layers import LayerSetup, detector_named
from cubecast.core.overlays import Overlay, hypercube, hypercube_dimension, of_ranks
from cubecast.core.registry import paper_tree_degree, protocol_named
from cubecast.core.setup import Setup
from cubecast.errors import LocalProtocolError
from cubecast.live.data_core import data_core, window_messages
from cubecast.live.settings import Settings
from cubecast.wire.control import Control

REPEAT_STEPS = 2
"""Steps of the failure detector after which a member repeats what it said in a round that does not end. Links lose
nothing, but whoever became a neighbour in the middle of the round has not heard it."""


class ControlCore:
    """A core whose messages are control messages: one call, then a list of actions."""

    def __init__(self, state: Any, *, width: int, words: int, room: int) -> None:
        """A core before its first call."""
        self.state = state
        self.width = width
        self.words = words
        self._mail = drive.new_member_mail(width=width, words=words, room=room)
        self._heads = self._mail.heads.view(np.ndarray)
        self._actions = self._mail.actions.view(np.ndarray)
        self._bind()

    def start(self, now_ns: int) -> list[Any]:
        """The member begins."""
        return self._run(now_ns, START, 0, 0)

    def receive(self, now_ns: int, source: int, message: Control) -> list[Any]:
        """A message arrived."""
        self._heads[drive.INCOMING] = (
            *(message.kind, message.round_number, message.iteration, source),
            *(message.sender, message.sequence, 0, 1),
        )
        self._mail.numbers[drive.INCOMING] = message.numbers
        self._mail.bits[drive.INCOMING] = message.bits
        return self._run(now_ns, RECEIVE, drive.INCOMING, 0)

    def on_timer(self, now_ns: int, timer: int, tag: int) -> list[Any]:
        """A timer is due."""
        return self._run(now_ns, TIMER, timer, tag)

    def leave(self, now_ns: int, rank: int) -> list[Any]:
        """A rank was taken out of the membership."""
        return self._run(now_ns, LEAVE, rank, 0)

    def heard(self, now_ns: int, rank: int) -> list[Any]:
        """Something came from this member: it is alive."""
        return self._run(now_ns, HEARD, rank, 0)

    def publish(self, now_ns: int) -> list[Any]:
        """The core's own multicast."""
        return self._run(now_ns, PUBLISH, 0, 0)

    def take_neighbours(self, overlay: Overlay) -> None:
        """Talk to these members from now on."""
        self.state = with_neighbours(self.state, overlay)
        self._bind()

    def drafted(self, slot: int) -> Control:
        """The message in a slot, for the wire."""
        kind, round_number, iteration, _, sender, sequence, _, _ = self._heads[slot].item()
        return Control(
            kind=kind,
            round_number=round_number,
            iteration=iteration,
            sender=sender,
            sequence=sequence,
            numbers=self._mail.numbers[slot],
            bits=self._mail.bits[slot],
        )

    def _bind(self) -> None:
        self._bound = bind((self.state,), self._mail)
        self._held = hold(drive.Driver(self._bound.cores, self._mail, drive.new_sorted(width=1, room=1)))

    def _run(self, now_ns: int, what: int, a: int, b: int) -> list[Any]:
        drive.call(self._held.handle, now_ns, what, a, b)
        assert self._mail.counts[mail.OVERFLOW] == 0, "the outbox of a live core is too small"
        return list(self._actions[: int(self._mail.counts[mail.WAITING])].tolist())


class Cores:
    """The stack of one member."""

    def __init__(self, settings: Settings, members: int, rank: int) -> None:
        """Everybody is a member, nothing is sent."""
        self.group: Group = new_group(members=members, senders=members, ranks=np.array([rank]))
        self._rank = rank
        self._cube = hypercube(members)
        cube = of_ranks(self._cube, self.group.rank)
        self.window = window_messages(settings, members)
        self.data = data_core(settings.causal_for(members), self.group, members, self.window)
        self.stability = _stability_core(settings, self.group, members)
        self.failure = _failure_core(settings, self.group, members)
        self.neighbours = {int(r) for r in cube.neighbours} | set(self.data.linked())

    def members(self) -> list[int]:
        """The ranks that are members now."""
        return [rank for rank in range(self.group.received.shape[1]) if self.is_member(rank)]

    def is_member(self, rank: int) -> bool:
        """Is this rank in the current membership?"""
        return bool(bits.contains(self.group.members[0], rank))

    def remove(self, rank: int) -> None:
        """Take a rank out of the membership; the cores are told next."""
        bits.discard(self.group.members[0], rank)
        left = survivors(self._cube, self._rank, self.members())
        self.stability.take_neighbours(left)
        self.failure.take_neighbours(left)

    def listeners(self) -> set[int]:
        """The members that the failure detector tells of this one."""
        return {int(rank) for rank in self.failure.state.neighbours if self.is_member(rank)}


def _stability_core(settings: Settings, group: Group, members: int) -> ControlCore:
    protocol = protocol_named(settings.stability)
    if protocol.family != "stability":
        raise LocalProtocolError(f"stability={settings.stability!r} is a {protocol.family} protocol")
    setup = Setup(
        members=members,
        senders=members,
        delta_ns=int(settings.round_every_s * 1e9),
        repeat_ns=int(REPEAT_STEPS * settings.gossip_every_s * 1e9),
        tree_degree=paper_tree_degree(members),
        seed=0,
    )
    state = protocol.build(group, setup)
    return ControlCore(state, width=protocol.numbers(setup), words=bits.words_for(members), room=4 * members + 256)


def _failure_core(settings: Settings, group: Group, members: int) -> ControlCore:
    detector = detector_named("live_array")
    step_s = settings.gossip_every_s
    setup = LayerSetup(
        members=members,
        seed=0,
        step_ns=int(step_s * 1e9),
        threshold=int(settings.suspect_after_s / step_s) + hypercube_dimension(members),
        grace_steps=int(settings.join_timeout_s / step_s),
    )
    state = detector.build(group, setup)
    return ControlCore(state, width=detector.numbers(setup), words=bits.words_for(members), room=4 * members + 256)
