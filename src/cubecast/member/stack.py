"""The stack of one member in one view: data protocol, stability protocol and failure detector, compiled.

| from            | to                                                                                       |
|-----------------|------------------------------------------------------------------------------------------|
| application     | `publish`, once for all messages of a turn → data protocol → links                       |
| DATA frame      | data protocol → deliveries to the application, forwards to links                         |
| CONTROL frame   | stability protocol → answers; at the end of a round the frontier moves, the log is freed |
|                 | (what it folds: `member.levels`)                                                         |
| FAILURE frame   | failure detector → gossip; the member reads the suspected ranks                          |

A stack exists from the installation of a view to the next one. `freeze` ends its deliveries: frames that still arrive
are dropped, because every survivor recovers the messages of the view from the others. While the application does not
keep up, or too few members are reachable, incoming batches are *parked* unread: they stay unstable, the senders'
windows fill, and the senders wait. So everything a member holds is bounded by the windows of all senders.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from cubecast.member.arena import Arena
from cubecast.member.calls import EVERYONE, NO_RECORD
from cubecast.member.control_core import ControlCore
from cubecast.member.data_core import Asked, data_core, record_form, window_messages
from cubecast.member.levels import BLOCKS, RECEIVED, Levels
from cubecast.member.link import Link
from cubecast.member.message_log import SEQUENCE_MASK, Batch, MessageLog
from cubecast.member.rounds import Rounds
from cubecast.member.settings import Settings
from cubecast.models.reliability import Heartbeats
from cubecast.protocol import mail, rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol as Entry
from cubecast.protocol.group import GroupState, new_group
from cubecast.protocol.overlays import hypercube, hypercube_dimension, of_ranks
from cubecast.protocols.catalogue import chosen
from cubecast.protocols.membership.views import MemberId, View
from cubecast.wire import data, frame
from cubecast.wire.control import decode_control, encode_control

REPEAT_STEPS = 2
"""Steps of the failure detector after which a member repeats its messages of a round that does not end. Links lose
nothing, but a member whose view began later has not received them."""

NOTHING = Batch([], [])


class StackHost(Protocol):
    """What a stack needs of its member."""

    @property
    def arena(self) -> Arena:
        """Memory for the arrays of one stack at a time."""

    def now(self) -> int:
        """The time of the present call."""

    def later(self, delay_ns: int, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a delay, unless the view has ended by then."""

    def link_to(self, who: MemberId) -> Link:
        """The link to a member of the view."""

    def mark(self, link: Link) -> None:
        """This link has something to write."""

    def open_links(self) -> list[tuple[int, Link]]:
        """The links to members of the view that exist, with their ranks."""

    def deliver(self, delivered: Batch, size: int) -> None:
        """Hand messages of that many bytes to the application, in this order."""

    def stable_moved(self, moved: list[tuple[int, int]]) -> None:
        """More messages are stable: (rank, number within the view)."""

    def takes_data(self) -> bool:
        """May messages be delivered now?"""

    def contribute(self, levels: Levels) -> None:
        """Set what this member's application and journal contribute to the levels."""

    def levels_moved(self) -> None:
        """The known levels of all members have advanced."""

    @property
    def keeps_journal(self) -> bool:
        """Does this member have a journal?"""


class Stack:
    """The protocols that serve one member in one view."""

    def __init__(self, host: StackHost, view: View, rank: int, settings: Settings, round_s: float) -> None:
        """No message was sent or received yet."""
        members = len(view.members)
        self.view = view
        self.rank = rank
        self.log = MessageLog(members)
        self.is_frozen = False
        self.window = window_messages(settings, members)
        self.window_bytes = settings.window_bytes
        self.round_every_s = settings.round_every_s
        self.now_ns = host.now()
        self._host = host
        self._published = 0
        self._own_bytes = 0
        self.levels = Levels(rank, members, is_durable=host.keeps_journal)
        self._group: GroupState = new_group(members=members, senders=members, ranks=np.array([rank]))
        self._data = data_core(settings, self._group, members, self.window, host.arena)
        self._stability = _stability_core(settings, self.levels.group, members)
        self._failure = _failure_core(settings, self._group, members)
        self._rounds = Rounds(self, round_s)
        self._heartbeats = Heartbeats(members)
        self._table = data.new_table()
        self._form = record_form(settings, members)
        self._parked: deque[tuple[int, bytes]] = deque()
        self._others = [other for other in range(members) if other != rank]
        self._to_all: list[Link] = []

    def neighbours(self) -> set[int]:
        """The ranks to which this member needs a link."""
        cube = of_ranks(hypercube(len(self.view.members)), np.array([self.rank]))
        return ({int(rank) for rank in cube.neighbours} | set(self._data.linked())) - {self.rank}

    def start(self) -> None:
        """The view begins."""
        self.now_ns = self._host.now()
        self._carry_out(self._failure, self._failure.start(self.now_ns), frame.FAILURE)
        self._data.start(self.now_ns)
        self._hand_over(NOTHING, self._data.results())
        self._contribute()
        self._carry_out(self._stability, self._stability.start(self.now_ns), frame.CONTROL)

    def freeze(self) -> None:
        """Deliver and send nothing more in this view; failures are still detected."""
        self.is_frozen = True
        self._parked.clear()

    # Data.

    def publish(self, payloads: list[bytes]) -> None:
        """Multicast messages of the application."""
        self.now_ns = self._host.now()
        while payloads:
            count = self._data.publish(self.now_ns, len(payloads))
            asked = self._data.results()
            batch, payloads = payloads[:count], payloads[count:]
            self._published += count
            keys, rows, _ = asked.deliveries
            records = [self._own(*one) for one in zip(keys, rows, batch, strict=True)]
            self._own_bytes += sum(map(len, records))
            self._hand_over(Batch(keys, records), asked)
        self._rounds.watch()

    def _own(self, key: int, row: int, payload: bytes) -> bytes:
        """The record of an own message, with the numbers that the data protocol assigned."""
        numbers = self._data.numbers(row) if row >= 0 else b""
        return data.encode_record(mail.PAYLOAD, self.rank, key & SEQUENCE_MASK, payload, numbers)

    def receive(self, source: int, body: bytes) -> None:
        """A batch arrived; it is read at once unless the application has too much to take already."""
        if self.is_frozen:
            return
        if self._parked or not self._host.takes_data():
            data.decode_batch(body, self._table, self._form)  # a malformed one is refused while its sender is known
            self._parked.append((source, body))
        else:
            self._read_batch(source, body)

    def unpark(self) -> None:
        """Read parked batches, as far as the application takes them."""
        while self._parked and not self.is_frozen and self._host.takes_data():
            self._read_batch(*self._parked.popleft())

    @property
    def is_parked(self) -> bool:
        """Are there batches that were not read?"""
        return bool(self._parked)

    def _read_batch(self, source: int, body: bytes) -> None:
        self.now_ns = self._host.now()
        count = data.decode_batch(body, self._table, self._form)
        first = 0
        while first < count:
            first = self._data.receive(self.now_ns, source, body, self._table, first, count)
            asked = self._data.results()
            keys, starts, ends = asked.kept
            if keys:
                self.log.wait(Batch(keys, [body[start:end] for start, end in zip(starts, ends, strict=True)]))
            records = self.log.delivered_of(body, asked.deliveries)
            self._hand_over(Batch(asked.deliveries[0], records), asked)
        self._rounds.watch()

    def _hand_over(self, delivered: Batch, asked: Asked) -> None:
        """Route actions: messages to the log and the application, sends to links, timers to the member."""
        if delivered.keys:
            self._host.deliver(delivered, self.log.add(delivered))
        ranks, _, sent, rows = asked.sends
        if sent and sent == delivered.keys and set(ranks) == {EVERYONE} and set(rows) == {NO_RECORD}:
            self._send_to_all(delivered.records)  # own messages, as they are: no need to look each up in the log
        elif sent:
            self._send(asked.sends)
        for timer, tag, delay_ns in asked.timers:
            self.later(delay_ns, self._on_data_timer, timer, tag)

    def _send(self, sends: list[list[int]]) -> None:
        """Put records on links; runs of records for all members go to each link in one step."""
        to_all: list[bytes] = []
        for rank, kind, key, row in zip(*sends, strict=True):
            record = self._record(kind, key, row)
            if rank == EVERYONE:
                to_all.append(record)
                continue
            self._send_to_all(to_all)
            to_all = []
            link = self._host.link_to(self.view.members[rank])
            link.add_records([record], len(record))
            self._host.mark(link)
        self._send_to_all(to_all)

    def _record(self, kind: int, key: int, row: int) -> bytes:
        if key & SEQUENCE_MASK == 0:
            return data.encode_record(kind, key >> 32, 0, b"", self._data.numbers(row))
        record = self.log.get(key >> 32, key & SEQUENCE_MASK)
        return data.with_last_number(record, self._data.numbers(row)) if row >= 0 else record

    def _send_to_all(self, records: list[bytes]) -> None:
        if records:
            size = sum(map(len, records))
            for link in self._links_to_all():
                link.add_records(records, size)
                self._host.mark(link)

    def _links_to_all(self) -> list[Link]:
        if not self._to_all:
            self._to_all = [self._host.link_to(self.view.members[rank]) for rank in self._others]
        return self._to_all

    def _on_data_timer(self, timer: int, tag: int) -> None:
        if not self.is_frozen:
            self._data.on_timer(self.now_ns, timer, tag)
            self._hand_over(NOTHING, self._data.results())

    # Stability and failure detection.

    def control(self, source: int, kind: int, body: bytes) -> None:
        """A control message arrived."""
        self.now_ns = self._host.now()
        core = self._stability if kind == frame.CONTROL else self._failure
        message = decode_control(body, numbers=core.width, words=core.words)
        if core is self._stability:
            self._contribute()
        self._carry_out(core, core.receive(self.now_ns, source, message), kind)

    def later(self, delay_ns: int, function: Callable[..., None], *arguments: Any) -> None:
        """Call a function after a delay."""
        self._host.later(delay_ns, self._due, function, *arguments)

    def _due(self, function: Callable[..., None], *arguments: Any) -> None:
        self.now_ns = self._host.now()
        function(*arguments)

    def _carry_out(self, core: ControlCore, actions: list[Any], kind: int) -> None:
        for what, slot, a, b, delay_ns, _ in actions:
            if what == mail.SEND:
                self._send_control(core, kind, slot, [a])
            elif what == mail.MULTICAST:
                self._send_control(core, kind, slot, self._others)
            elif what == mail.TIMER:
                self.later(delay_ns, self._on_control_timer, core, kind, a, b)
            elif what == mail.NEXT_ROUND:
                self._rounds.rest(a, b, delay_ns)
            elif what in (mail.ROUND_BEGUN, mail.ROUND_DONE):
                if what == mail.ROUND_DONE:
                    self._free_stable()
                self._rounds.note(done=what == mail.ROUND_DONE)

    def _on_control_timer(self, core: ControlCore, kind: int, timer: int, tag: int) -> None:
        if core is self._failure:
            self._note_signs_of_life()
        else:
            self._contribute()
        self._carry_out(core, core.on_timer(self.now_ns, timer, tag), kind)

    def _contribute(self) -> None:
        self.levels.block(RECEIVED)[:] = self._group.received[0]
        self._host.contribute(self.levels)

    def begin_round(self, timer: int, tag: int) -> None:
        """Wake the stability protocol."""
        self._on_control_timer(self._stability, frame.CONTROL, timer, tag)

    def _send_control(self, core: ControlCore, kind: int, slot: int, ranks: Sequence[int]) -> None:
        body = encode_control(core.drafted(slot))
        for rank in ranks:
            link = self._host.link_to(self.view.members[rank])
            if kind == frame.FAILURE:
                link.send_loose(kind, self.view.tag, body)
            else:
                link.send(kind, self.view.tag, body)
            self._host.mark(link)

    def _note_signs_of_life(self) -> None:
        """Report to the failure detector the members heard since its last step."""
        for rank, link in self._host.open_links():
            heard, link.heard = link.heard, False
            if heard:
                self._failure.heard(self.now_ns, rank)
            if self._data.judges_links and not self.is_frozen:
                self._judge_link(rank, heard=heard)

    def _judge_link(self, rank: int, *, heard: bool) -> None:
        before = self._heartbeats.believed[rank]
        if self._heartbeats.note(rank, heard=heard):
            failure = float(self._heartbeats.believed[rank])
            self._data.believe(rank, failure)
            self._data.compare_paths(self.now_ns, rank, better=failure < before)
            self._hand_over(NOTHING, self._data.results())

    def suspects(self) -> list[int]:
        """The ranks that the failure detector suspects now."""
        silent = self._failure.state.silent[0]
        return [int(rank) for rank in np.flatnonzero(silent >= self._failure.state.threshold) if rank != self.rank]

    def progress(self) -> list[int]:
        """How many messages each rank is known to have delivered."""
        progress = self._failure.state.progress[0].tolist()
        progress[self.rank] = int(self._group.received[0].sum())
        return list(progress)

    def _free_stable(self) -> None:
        """The frontier moved: free what every member has."""
        moved = []
        known = self.levels.of_all(RECEIVED)
        self._group.stable[0] = known  # the data protocol looks there
        for sender, stable in enumerate(known.tolist()):
            if stable > self.log.stable[sender]:
                freed = self.log.free(sender, stable)
                moved.append((sender, stable))
                if sender == self.rank:
                    self._own_bytes -= freed
        if moved:
            self._host.stable_moved(moved)
        if self.levels.has_moved():
            self._rounds.news()
        self._host.levels_moved()

    def watch_levels(self) -> None:
        """This member's application or journal has advanced: the next rounds report that to the others."""
        self._rounds.news()

    def ask_levels(self) -> None:
        """Start a stability round to learn the levels of the other members."""
        self.now_ns = self._host.now()
        self._rounds.ask_once()

    def ask_stable(self, number: int) -> None:
        """Start stability rounds until this own message is stable."""
        self.now_ns = self._host.now()
        self._rounds.ask(number)

    # What the pacing of rounds calls.

    def own_unstable(self) -> tuple[int, int]:
        """Own messages that are not stable, and their bytes."""
        return self._published - self.log.stable[self.rank], self._own_bytes

    def published(self) -> int:
        """Own messages of this view."""
        return self._published

    def own_stable(self) -> int:
        """Own messages of this view that are stable."""
        return self.log.stable[self.rank]

    def is_unstable(self) -> bool:
        """Is anything held that is not stable?"""
        return self.log.bytes > 0

    def is_behind(self) -> bool:
        """Is anything stable that not all applications are known to have processed, or not all disks to have stored?"""
        self._contribute()
        return self.levels.is_behind

    @property
    def rounds(self) -> int:
        """Stability rounds so far."""
        return self._rounds.count

    @property
    def round_s(self) -> float:
        """How long a round takes, smoothed."""
        return self._rounds.round_s

    def eager(self) -> set[int]:
        """The ranks that messages are pushed to at once."""
        return set(self._data.linked())


def _stability_core(settings: Settings, group: GroupState, members: int) -> ControlCore:
    entry = settings.stability_entry
    context = Context(
        members=members,
        senders=BLOCKS * members,
        delta_ns=int(settings.round_every_s * 1e9),
        repeat_ns=int(REPEAT_STEPS * settings.heartbeat_s * 1e9),
        is_live=True,
    )
    return _control_core(entry, entry.make_parameters(dict(settings.stability_parameters)), group, context)


def _failure_core(settings: Settings, group: GroupState, members: int) -> ControlCore:
    entry = chosen("failure", members)
    context = Context(members=members, senders=members, is_live=True)
    steps = int(settings.suspect_after_s / settings.heartbeat_s) + hypercube_dimension(members)
    given = {"step_ms": settings.heartbeat_s * 1e3, "threshold": steps}
    return _control_core(entry, entry.make_parameters(given), group, context)


def _control_core(entry: Entry, given: Any, group: GroupState, context: Context) -> ControlCore:
    parameters = entry.resolve(given, context)
    return ControlCore(
        entry.build(group, context, parameters),
        width=entry.numbers(context, parameters),
        words=rank_sets.words_for(context.members),
        room=4 * context.members + 256,
    )
