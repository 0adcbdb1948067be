"""The data protocol of one view, by name: batches of records in; deliveries, sends and timers out.

| name      | how messages travel                                  | connections | order                        |
|-----------|------------------------------------------------------|-------------|------------------------------|
| overlay   | over every link of the hypercube                     | log2 n      | FIFO links                   |
| tree      | along a tree of the hypercube                        | log2 n      | FIFO links                   |
| star      | through the lowest rank                              | log2 n, n   | FIFO links                   |
| timestamp | from the sender to everybody                         | n           | a vector stamp on a message  |
| plumtree  | along the fastest path of each sender's tree         | log2 n      | a vector stamp on a message  |
| rasm      | along the most reliable path of each sender's tree   | log2 n      | a vector stamp on a message  |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from cubecast.jit.tables import hold
from cubecast.member import calls
from cubecast.member.settings import Settings
from cubecast.protocol import rank_sets
from cubecast.protocol.bound import bind
from cubecast.protocol.group import Group
from cubecast.protocol.handlers import LEAVE, START, TIMER
from cubecast.protocol.mail import Mail
from cubecast.protocol.overlays import hypercube, of_ranks
from cubecast.protocols.broadcast import rasm
from cubecast.protocols.causal import overlay, stamped_tree, timestamp
from cubecast.protocols.causal.eager_tree import (
    BINOMIAL,
    NO_TREE,
    STAR,
    tree_overlay,
)
from cubecast.wire.data import Form, decode_some, new_table

LOG_MAX = 1 << 19
"""Messages of all senders together that may be unstable; bounds every array that grows with the windows."""
BATCH_ROOM = 1 << 13
_SPARE_ACTIONS = 64
ANNOUNCE_NS = 100_000_000
"""Trees: how long a member gathers what it announces to its neighbours."""


def window_messages(settings: Settings, members: int) -> int:
    """How many own messages may be unstable in a view of this size."""
    return max(1, min(settings.window_messages, LOG_MAX // members))


def record_form(settings: Settings, members: int) -> Form:
    """What the records of a view of this size look like."""
    stamp_numbers = _WAYS[settings.data_for(members)].stamp_numbers(members) if members > 1 else 0
    return Form(
        members=members,
        stamp_numbers=stamp_numbers,
        own_numbers=max(members, stamp_numbers),
        payload_bytes_max=settings.payload_bytes_max,
    )


def read_records(body: bytes, form: Form) -> list[tuple[int, bytes]]:
    """The application messages of a batch of records, each with its key: sender << 32 | sequence."""
    found = []
    at = 0
    table = new_table()
    while at < len(body):
        piece = body[at:] if at else body
        count = decode_some(piece, table, form)
        for _, sender, sequence, start, _, _, end in table[:count].tolist():
            if sequence:
                found.append((sender << 32 | sequence, piece[start:end]))
        at += int(table[count - 1, -1])
    return found


class Asked(NamedTuple):
    """What a data core asked for; see `member.calls`."""

    deliveries: list[list[int]]
    sends: list[list[int]]
    kept: list[list[int]]
    timers: list[list[int]]


@dataclass(frozen=True, kw_only=True)
class Way:
    """How messages travel."""

    build: Callable[[Group, int, int], Any]
    """The core's state, of the group, the number of members and the window."""
    linked: Callable[[Any], list[int]]
    """The ranks to which messages go as they come, in a state."""
    stamp_numbers: Callable[[int], int] = lambda _members: 0
    """How many numbers a message carries in a group of so many."""
    changes_numbers: bool = False
    """Does the last of them change at each hop?"""
    believe: Callable[[Any, int, float], None] | None = None
    """Change what a state holds of the failure probability of the link to a rank."""


class DataCore:
    """A data core and its driver."""

    def __init__(self, state: Any, way: Way, *, members: int, window: int) -> None:
        """A core before its first message."""
        self.state = state
        self.stamp_numbers = way.stamp_numbers(members)
        self.own_numbers = max(members, self.stamp_numbers)
        self._way = way
        room = members * window + overlay.LINKS_MAX + _SPARE_ACTIONS
        self._mail: Mail = calls.new_member_mail(width=self.own_numbers, words=rank_sets.words_for(members), room=room)
        self._sorted = calls.new_sorted(width=self.own_numbers, room=room + BATCH_ROOM)
        self._bound = bind((state,), self._mail)
        self._held = hold(
            calls.Driver(
                cores=self._bound.cores,
                mail=self._mail,
                sorted_actions=self._sorted,
                stamp_numbers=self.stamp_numbers,
                changes_numbers=int(way.changes_numbers),
            )
        )
        self._handle = self._held.handle
        self._numbers = b""
        """All rows of the last call that brought any."""

    def start(self, now_ns: int) -> None:
        """The member begins."""
        calls.tell_data(self._handle, now_ns, START, 0, 0)

    def receive(self, now_ns: int, source: int, body: bytes, table: Any, first: int, last: int) -> int:
        """Receive records first … last−1; gives one past the last taken."""
        return int(calls.receive_batch(self._handle, now_ns, source, body, table, first, last))

    def publish(self, now_ns: int, count: int) -> int:
        """Publish up to `count` messages; gives how many were taken."""
        return int(calls.publish_batch(self._handle, now_ns, count))

    def on_timer(self, now_ns: int, timer: int, tag: int) -> None:
        """A timer is due."""
        calls.tell_data(self._handle, now_ns, TIMER, timer, tag)

    @property
    def judges_links(self) -> bool:
        """Does it matter to the core how reliable links are?"""
        return self._way.believe is not None

    def believe(self, rank: int, failure: float) -> None:
        """Believe something else of the link to a rank."""
        assert self._way.believe is not None
        self._way.believe(self.state, rank, failure)

    def compare_paths(self, now_ns: int, rank: int, *, better: bool) -> None:
        """Compare the paths over the link to a rank, which has become better or worse, with others."""
        calls.tell_data(self._handle, now_ns, TIMER, stamped_tree.BETTER if better else stamped_tree.WORSE, rank)

    def leave(self, now_ns: int, rank: int) -> None:
        """A rank was taken out of the membership."""
        calls.tell_data(self._handle, now_ns, LEAVE, rank, 0)

    def results(self) -> Asked:
        """What the last call asked for."""
        deliveries, kept, sends, timers, rows, trouble = self._sorted.counts.tolist()
        if trouble:
            raise AssertionError(f"the data core could not go on (trouble {trouble})")
        self._numbers = self._sorted.numbers[:rows].astype("<i4", copy=False).tobytes() if rows else b""
        return Asked(
            self._sorted.deliveries[:deliveries].tolist() if deliveries else [],
            self._sorted.sends[:sends].tolist() if sends else [],
            self._sorted.kept[:kept].tolist() if kept else [],
            self._sorted.timers[:timers].tolist() if timers else [],
        )

    def numbers(self, row: int) -> bytes:
        """The numbers that a send or a publication carries, as the wire wants them."""
        size = 4 * self.own_numbers
        return self._numbers[row * size : (row + 1) * size]

    def linked(self) -> list[int]:
        """The ranks to which messages go as they come; others only get them when they ask."""
        return self._way.linked(self.state)


def data_core(name: str, group: Group, members: int, window: int) -> DataCore:
    """The core of that name, before its first message."""
    way = _WAYS[name]
    return DataCore(way.build(group, members, window), way, members=members, window=window)


def _flooding(shape: int) -> Way:
    def build(group: Group, members: int, window: int) -> overlay.OverlayState:
        first = of_ranks(hypercube(members) if shape == NO_TREE else tree_overlay(members, shape), group.rank)
        room = members * window
        return overlay.new_state(group, first, members=members, payload_bytes=0, room=room, eager_tree=shape)

    def linked(state: overlay.OverlayState) -> list[int]:
        return list(state.neighbours[0, : int(state.degree[0])].tolist())

    return Way(build=build, linked=linked)


def _build_timestamp(group: Group, members: int, window: int) -> timestamp.TimestampState:
    # The records of a live member hold the stamps.
    room = members * window
    return timestamp.new_state(group, members=members, payload_bytes=0, room=room, window=window, keeps_stamps=False)


def _all_others(state: timestamp.TimestampState) -> list[int]:
    ranks = range(state.group.received.shape[1])
    me = int(state.group.rank[0])
    return [rank for rank in ranks if rank != me and rank_sets.contains(state.group.members[0], rank)]


def _along_trees(build: Callable[..., Any], extra: int, **more: Any) -> Way:
    """Plumtree or RASM; `extra` numbers are carried besides the stamp."""

    def build_live(group: Group, members: int, window: int) -> Any:
        room = members * window
        sizes = {"members": members, "payload_bytes": 0, "room": room, "window": window}
        return build(group, **sizes, announce_ns=ANNOUNCE_NS, keeps_stamps=False)

    def linked(state: stamped_tree.CausalPlumtreeState | stamped_tree.CausalRasmState) -> list[int]:
        return [rank for rank in state.tree.peers.neighbours.tolist() if rank >= 0]

    return Way(build=build_live, linked=linked, stamp_numbers=lambda members: members + extra, **more)


def _believe(state: stamped_tree.CausalRasmState, rank: int, failure: float) -> None:
    rasm.set_link_failure(state.tree, 0, rank, failure)


_WAYS = {
    "overlay": _flooding(NO_TREE),
    "tree": _flooding(BINOMIAL),
    "star": _flooding(STAR),
    "timestamp": Way(build=_build_timestamp, linked=_all_others, stamp_numbers=lambda members: members),
    "plumtree": _along_trees(stamped_tree.new_plumtree, 0),
    "rasm": _along_trees(stamped_tree.new_rasm, 1, changes_numbers=True, believe=_believe),
}
