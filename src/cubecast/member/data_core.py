"""The data protocol of one view: batches of records in; deliveries, sends and timers out."""

from __future__ import annotations

from typing import Any, NamedTuple

from cubecast.jit.tables import hold
from cubecast.member import calls
from cubecast.member.arena import Arena
from cubecast.member.message_log import Batch
from cubecast.member.settings import Settings
from cubecast.protocol import rank_sets
from cubecast.protocol.bound import bind
from cubecast.protocol.context import Context
from cubecast.protocol.definition import LiveData, Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.handlers import LEAVE, START, TIMER
from cubecast.protocol.mail import Mail
from cubecast.wire.data import Form, decode_some, new_table

LOG_MAX = 1 << 19
"""Messages of all senders together that may be unstable; bounds every array that grows with the windows."""
BATCH_ROOM = 1 << 13
_SPARE_ACTIONS = 64
_LINKS_MAX = 64
"""Actions per link, beyond those for messages, that one call of a data protocol may request."""


def window_messages(settings: Settings, members: int) -> int:
    """How many own messages may be unstable in a view of this size."""
    return max(1, min(settings.window_messages, LOG_MAX // members))


def record_form(settings: Settings, members: int) -> Form:
    """The format of the records of a view of this size."""
    stamp_numbers = _live(settings.data_for(members)).stamp_numbers(members) if members > 1 else 0
    return Form(
        members=members,
        stamp_numbers=stamp_numbers,
        own_numbers=max(members, stamp_numbers),
        payload_bytes_max=settings.payload_bytes_max,
    )


def read_records(body: bytes, form: Form) -> Batch:
    """The application messages of a batch of records."""
    found = Batch([], [])
    at = 0
    table = new_table()
    while at < len(body):
        piece = body[at:] if at else body
        count = decode_some(piece, table, form)
        for _, sender, sequence, start, _, _, end in table[:count].tolist():
            if sequence:
                found.keys.append(sender << 32 | sequence)
                found.records.append(piece[start:end])
        at += int(table[count - 1, -1])
    return found


class Asked(NamedTuple):
    """The actions of a data protocol, see `member.calls`; frequent ones as one list per column."""

    deliveries: list[list[int]]
    """Three columns."""
    sends: list[list[int]]
    """Four columns."""
    kept: list[list[int]]
    """Three columns."""
    timers: list[list[int]]
    """Rows."""


class DataCore:
    """A data protocol and its driver."""

    def __init__(self, state: Any, live: LiveData, *, members: int, window: int, arena: Arena) -> None:
        """The protocol is not started yet; arrays that the arena gave out before are no longer used."""
        self.state = state
        self.stamp_numbers = live.stamp_numbers(members)
        self.own_numbers = max(members, self.stamp_numbers)
        self._live = live
        room = members * window + _LINKS_MAX + _SPARE_ACTIONS
        arena.reset()
        self._mail: Mail = calls.new_member_mail(
            width=self.own_numbers, words=rank_sets.words_for(members), room=room, empty=arena.empty
        )
        self._sorted = calls.new_sorted(width=self.own_numbers, room=room + BATCH_ROOM, empty=arena.empty)
        self._bound = bind((state,), self._mail)
        self._held = hold(
            calls.BoundCore(
                cores=self._bound.cores,
                mail=self._mail,
                sorted_actions=self._sorted,
                stamp_numbers=self.stamp_numbers,
                changes_numbers=int(live.changes_numbers),
            )
        )
        self._handle = self._held.handle
        self._numbers = b""
        """All rows of the last call that brought any."""

    def start(self, now_ns: int) -> None:
        """The member begins."""
        calls.call_data(self._handle, now_ns, START, 0, 0)

    def receive(self, now_ns: int, source: int, body: bytes, table: Any, first: int, last: int) -> int:
        """Receive records first … last−1; returns one past the last taken."""
        return int(calls.receive_batch(self._handle, now_ns, source, body, table, first, last))

    def publish(self, now_ns: int, count: int) -> int:
        """Publish up to `count` messages; returns how many were taken."""
        return int(calls.publish_batch(self._handle, now_ns, count))

    def on_timer(self, now_ns: int, timer: int, tag: int) -> None:
        """A timer is due."""
        calls.call_data(self._handle, now_ns, TIMER, timer, tag)

    @property
    def judges_links(self) -> bool:
        """Does the protocol use the reliability of links?"""
        return self._live.believe is not None

    def believe(self, rank: int, failure: float) -> None:
        """Set the estimated reliability of the link to a rank."""
        assert self._live.believe is not None
        self._live.believe(self.state, rank, failure)

    def compare_paths(self, now_ns: int, rank: int, *, better: bool) -> None:
        """Compare the paths over the link to a rank, which has become better or worse, with others."""
        timer = self._live.compare_paths[0 if better else 1]
        calls.call_data(self._handle, now_ns, TIMER, timer, rank)

    def leave(self, now_ns: int, rank: int) -> None:
        """A rank was removed from the membership."""
        calls.call_data(self._handle, now_ns, LEAVE, rank, 0)

    def results(self) -> Asked:
        """The actions that the last call requested."""
        deliveries, kept, sends, timers, rows, error = self._sorted.counts.tolist()
        if error:
            raise AssertionError(f"the data core cannot continue (error code {error})")
        self._numbers = self._sorted.numbers[:rows].astype("<i4", copy=False).tobytes() if rows else b""
        return Asked(
            self._sorted.deliveries[:deliveries].T.tolist() if deliveries else [[], [], []],
            self._sorted.sends[:sends].T.tolist() if sends else [[], [], [], []],
            self._sorted.kept[:kept].T.tolist() if kept else [[], [], []],
            self._sorted.timers[:timers].tolist() if timers else [],
        )

    def numbers(self, row: int) -> bytes:
        """The numbers that a send or a publication carries, in wire format."""
        size = 4 * self.own_numbers
        return self._numbers[row * size : (row + 1) * size]

    def linked(self) -> list[int]:
        """The ranks that messages are pushed to at once; others get them on request."""
        return self._live.linked(self.state)


def data_core(settings: Settings, group: GroupState, members: int, window: int, arena: Arena) -> DataCore:
    """The data protocol of a view of this size, before its first message."""
    entry = settings.data_for(members)
    context = Context(members=members, senders=members, room=members * window, window=window, is_live=True)
    parameters = entry.resolve(entry.make_parameters(dict(settings.data_parameters)), context)
    state = entry.build(group, context, parameters)
    return DataCore(state, _live(entry), members=members, window=window, arena=arena)


def _live(entry: Protocol) -> LiveData:
    assert entry.live is not None, f"{entry.name} does not serve live members: the settings let it pass"
    return entry.live
