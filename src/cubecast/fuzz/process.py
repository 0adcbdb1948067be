"""One process: the driver of a member, carried out step by step, and its application.

The driver keeps the contract of `member.effects`: persist, sync, then writes, closes, dials, entries, settled and
notices. It can crash between any two steps (`fuse`), be stopped for a while (SIGSTOP), and its disk can be slow, full,
or fail. Trace events of the member are recorded when the effects of the same call are carried out: an event that was
never visible outside never happened.

The application's state is the numbers of the messages it took, in order. It takes entries at once, or late.
"""

from __future__ import annotations

import traceback
import zlib
from array import array
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from cubecast.errors import JournalError, LocalProtocolError
from cubecast.fuzz.agenda import MS, SECOND
from cubecast.fuzz.network import End
from cubecast.member.effects import Delivery, Effects, Entry, Notice, Outgoing, SnapshotWanted, StateArrived, ViewChange
from cubecast.member.history import decode_history
from cubecast.member.known_levels import KnownLevels
from cubecast.member.quorum_levels import LEVELS
from cubecast.protocols.membership.views import MemberId, Vector

if TYPE_CHECKING:
    from cubecast.fuzz.world import FuzzWorld, Machine

HEADER_BYTES = 4
SYNC_INTERVAL_NS = 5 * MS
CLOCK_ERROR_NS_MAX = 600 * SECOND
"""With the sync policy `interval`: writes are on the disk after this time."""
"""A payload begins with the number of the message."""


def number_of(delivery: Delivery) -> int:
    """The number of a message."""
    return int.from_bytes(delivery.payload[:HEADER_BYTES], "little")


class CrashError(Exception):
    """The process ends during a step."""


class Replayed(NamedTuple):
    """A marker entry: what follows is new, what came before repeats entries from before the restart."""

    seen: tuple[int, ...]
    incarnation: int


class Note(NamedTuple):
    """A trace event of a member."""

    me: MemberId
    event: str
    data: dict[str, Any]


class MemoryTrace:
    """The member's trace: notes wait until the effects that belong to them are carried out."""

    def __init__(self) -> None:
        """Empty."""
        self.notes: list[Note] = []

    def note(self, _now_ns: int, me: MemberId, event: str, **data: Any) -> None:
        """One event."""
        self.notes.append(Note(me, event, data))

    def deliveries(self, _now_ns: int, me: MemberId, senders: list[MemberId], sequences: list[int]) -> None:
        """Messages that the application gets."""
        self.notes.append(Note(me, "deliveries", {"senders": list(senders), "sequences": list(sequences)}))

    def take(self) -> list[Note]:
        """The events since the last call."""
        notes, self.notes = self.notes, []
        return notes


class Process:
    """One start of one member."""

    def __init__(self, world: FuzzWorld, machine: Machine) -> None:
        """The process does not run yet: `begin` creates the member."""
        self.world = world
        self.machine = machine
        self.name = machine.name
        self.certificate = (machine.name,)
        self.draw = world.draw
        self.trace = MemoryTrace()
        self.is_alive = True
        self.is_stopped = False
        self.is_listening = True
        self.has_left = False
        self.fuse = 0
        """Steps after which it crashes; 0: never."""
        self.fuse_is_power = False
        self.state: list[int] = []
        """The application: numbers of messages."""
        self.state_incarnation = 0
        """The incarnation that the state belongs to."""
        self.arriving: deque[int] = deque()
        """The incarnations of the states that the application has yet to restore."""
        self.unsent: deque[int] = deque()
        """Messages the application waits to multicast."""
        self._unsafe: list[int] = []
        """Messages that are not yet in the journal."""
        self.unsettled: set[int] = set()
        self._asked: list[tuple[Outgoing, int]] = []
        """Messages that a quorum is to have, and the level."""
        self.wants_to_leave = False
        self.is_slow = not world.is_calm and self.draw.random() < world.plan.slow_application
        self.sync_ms = (0.0, 0.0) if world.is_calm else world.plan.sync_ms
        self._offset_ns = self.draw.randrange(1 << 40)
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._ends: dict[int, End] = {}
        self._held: deque[tuple[int, Effects, list[Note]]] = deque()
        self._is_syncing = False
        self._queues_effects = self.draw.random() < 0.5
        self._entries: deque[Entry | Replayed] = deque()
        self._is_taking = False
        self._is_pumping = False
        self._timer_ns = 0
        self._checkpoint_bytes = 0
        self.member: Any = None

    @property
    def now_ns(self) -> int:
        """This machine's monotonic clock."""
        return self.world.agenda.now_ns + self._offset_ns

    def begin(self, how: str, arguments: dict[str, Any]) -> None:
        """Make the member and let it found, form, join or resume."""
        world = self.world
        clock_ns = world.next_incarnation()
        self.member = world.make_member(
            world.group,
            self.name,
            world.settings,
            incarnation=clock_ns,
            session=clock_ns - self._clock_error_ns(),
            is_durable=world.plan.is_durable,
            makes_snapshots=world.plan.makes_snapshots,
            trace=self.trace,
        )
        seen = tuple(self.machine.seen)
        incarnation = self.machine.seen_incarnation
        self.state_incarnation = incarnation if how == "resume" else self.member.me.incarnation
        world.note(self, "start", how)
        self.call(getattr(self.member, how), **arguments)
        if how == "resume":
            self._entries.append(Replayed(seen, incarnation))
            self._survives(self._take_entries)

    def _clock_error_ns(self) -> int:
        """The wall clock of one process in eight was set back, so that its session may not exceed an earlier one."""
        bits = self.draw.getrandbits(62)
        return bits % CLOCK_ERROR_NS_MAX if bits & 7 == 0 else 0

    # External events.

    def post(self, action: Callable[..., None], *arguments: Any) -> None:
        """Run it now, or when a stopped process continues."""
        if not self.is_alive:
            return
        if self.is_stopped:
            self._inbox.append((action, arguments))
        else:
            action(*arguments)

    def connection_made(self, end: End, dialled: str, address: str) -> None:
        """A connection is up."""
        self.post(self._connection_made, end, dialled, address)

    def _connection_made(self, end: End, dialled: str, address: str) -> None:
        self._ends[end.number] = end
        peer = next(one.process for one in end.connection.ends if one is not end)
        certificate = peer.certificate if self.world.plan.has_certificates else None
        self.call(self.member.connection_made, end.number, dialled, certificate, address)

    def data_received(self, end: End, data: bytes) -> None:
        """Bytes arrived; called by the network when the process reads."""
        if end.number in self._ends:
            self.call(self.member.data_received, end.number, data)

    def connection_lost(self, end: End, reason: str) -> None:
        """A connection is over."""
        self.post(self._connection_lost, end, reason)

    def _connection_lost(self, end: End, reason: str) -> None:
        if not end.is_gone:
            self.world.network.forget(end)
            if self._ends.pop(end.number, None) is not None:
                self.call(self.member.connection_lost, end.number, reason)

    def dial_failed(self, name: str, reason: str) -> None:
        """A dial failed."""
        self.post(self._dial_failed, name, reason)

    def _dial_failed(self, name: str, reason: str) -> None:
        self.call(self.member.dial_failed, name, reason)

    def resume_writing(self, end: End) -> None:
        """A connection takes bytes again."""
        self.post(self._resume_writing, end)

    def _resume_writing(self, end: End) -> None:
        if end.number in self._ends and not end.is_gone:
            self.member.resume_writing(end.number)
            self.pump()

    def stop(self, for_ns: int) -> None:
        """SIGSTOP, and SIGCONT after a while."""
        if self.is_alive and not self.is_stopped:
            self.is_stopped = True
            self.world.note(self, "stop", for_ns // MS)
            self.world.agenda.after(for_ns, self.go_on)

    def go_on(self) -> None:
        """SIGCONT: what waited is handled, and late timers fire, in some order."""
        if not self.is_alive or not self.is_stopped:
            return
        self.is_stopped = False
        self.world.note(self, "continue", None)
        if self.draw.random() < 0.5:
            self._on_timer(self._timer_ns)
        while self._inbox and not self.is_stopped:
            action, arguments = self._inbox.popleft()
            self.post(action, *arguments)
        self._on_timer(self._timer_ns)

    def _on_timer(self, set_for_ns: int) -> None:
        if set_for_ns == self._timer_ns and self.is_alive and not self.is_stopped:
            self._timer_ns = 0
            self.call(self.member.on_timer)

    # The application's calls.

    def multicast(self, count: int) -> None:
        """The application multicasts messages; where there is no room, it waits."""
        for _ in range(count):
            number = self.world.next_message(self)
            self.world.note(self, "make", number)
            self.unsent.append(number)
        self.member.queued = len(self.unsent)
        self._multicast_unsent()
        self.pump()

    def _multicast_unsent(self) -> None:
        while self.unsent and self.is_alive and self.member.has_room:
            number = self.unsent.popleft()
            self.member.queued = len(self.unsent)
            try:
                outgoing = self.member.multicast(self.world.payload(number), self.now_ns)
            except LocalProtocolError:
                self.world.note(self, "refused", number)
                continue
            self._unsafe.append(number)
            self.unsettled.add(number)
            self.world.note(self, "multicast", number)
            if self.draw.random() < 0.3:
                self.member.ask_stable(outgoing, self.now_ns)
            if number % 5 == 0:
                self._asked.append((outgoing, number // 5 % len(LEVELS)))
                self.member.ask_quorum(*self._asked[-1], self.now_ns)

    def leave(self) -> None:
        """The application leaves."""
        self.wants_to_leave = True
        self.machine.is_wanted = False
        self.world.note(self, "leave", None)
        self.call(self.member.leave)

    # The driver.

    def call(self, method: Callable[..., Any], *arguments: Any, **named: Any) -> None:
        """Call the member, then carry out its effects."""
        if not self.is_alive:
            return
        try:
            method(*arguments, now_ns=self.now_ns, **named)
        except Exception:
            self._fail()
            return
        self.pump()

    def _survives(self, action: Callable[..., None], *arguments: Any) -> bool:
        """Call an action; returns False when the process crashed in it."""
        try:
            action(*arguments)
        except CrashError:
            self.die("crash", is_power=self.fuse_is_power)
            return False
        except Exception:
            self._fail()
            return False
        return True

    def _fail(self) -> None:
        lines = traceback.format_exc().strip().splitlines()
        where = " < ".join(line.strip() for line in reversed(lines[-5:-1]) if line.strip().startswith("File"))
        self.world.violations.append(f"exception: {self.name} at {self.world.time_ms:.3f} ms: {lines[-1]} ({where})")
        self.world.tracebacks.append("\n".join(lines))
        self.die("exception")

    def pump(self) -> None:
        """Carry out effects until there are none or a sync must end first."""
        if self._is_pumping or not self.is_alive:
            return
        self._is_pumping = True
        try:
            while self._may_take_effects():
                effects = self.member.take_effects()
                notes = self.trace.take()
                if not effects and not notes:
                    break
                if self._unsafe:
                    notes.append(Note(self.member.me, "safe", {"messages": self._unsafe}))
                    self._unsafe = []
                self._persist(effects, notes)
            if self.is_alive:
                self._after_effects()
        except CrashError:
            self.die("crash", is_power=self.fuse_is_power)
        except JournalError as error:
            self.world.note(self, "disk", str(error))
            self.die("disk")
        except Exception:
            self._fail()
        finally:
            self._is_pumping = False

    def _may_take_effects(self) -> bool:
        return self.is_alive and (self._queues_effects or not self._is_syncing)

    def _after_effects(self) -> None:
        if self.unsent and self.member.has_room:
            self._multicast_unsent()
            self.world.agenda.at(self.world.agenda.now_ns, self.post, self.pump)
        due_ns = self.member.next_timer_ns
        if due_ns is not None and (self._timer_ns == 0 or due_ns < self._timer_ns or self._timer_ns < self.now_ns):
            late_ns = int(self.draw.random() * (MS // 4))
            self._timer_ns = max(due_ns, self.now_ns + 1) + late_ns
            self.world.agenda.at(self._timer_ns - self._offset_ns, self._on_timer, self._timer_ns)

    def _step(self) -> None:
        """Between two steps the process may crash."""
        if self.fuse:
            self.fuse -= 1
            if not self.fuse:
                raise CrashError

    def _persist(self, effects: Effects, notes: list[Note]) -> None:
        """Write the records; what follows waits for the sync, if there is one."""
        self._step()
        disk = self.machine.disk
        replacement = effects.replacement()
        if replacement or effects.persist:
            self.world.on_persist(self, replacement or effects.persist)
            if not self.is_alive:
                raise CrashError
            if replacement:
                survives = self.fuse != 1 or self.draw.random() < 0.5
                disk.replace(replacement, survives)
                self._hold_for_nothing()
            else:
                disk.append(effects.persist)
            self._step()
        if self.world.settings.sync == "always" and (self._held or disk.synced < len(disk.content)):
            self._held.append((len(disk.content), effects, notes))
            self._begin_sync()
        else:
            if self.world.settings.sync == "interval" and effects.persist:
                self.world.agenda.after(
                    SYNC_INTERVAL_NS, self.post, self._synced_meanwhile, self.member.journal_place()
                )
            self._carry_out(effects, notes)

    def _synced_meanwhile(self, place: tuple[int, Vector]) -> None:
        """The records up to a place have been written for a while: the disk has them."""
        self.call(self.member.synced, *place)

    def _hold_for_nothing(self) -> None:
        """The records of the held effects are no longer in the journal: drop the effects."""
        self._held = deque((0, effects, notes) for _, effects, notes in self._held)

    def _begin_sync(self) -> None:
        if self._is_syncing or not self._held:
            return
        self._is_syncing = True
        low, high = self.sync_ms
        hangs = self.machine.sync_hangs
        fails = self.machine.sync_fails
        delay_ns = round((low + self.draw.random() * (high - low)) * MS)
        if hangs:
            self.world.note(self, "sync hangs", None)
            return
        size = len(self.machine.disk.content)
        if delay_ns == 0 and not fails:
            self._end_sync(size, False)
        else:
            self.world.agenda.after(delay_ns, self.post, self._end_sync_later, size, fails)

    def _end_sync_later(self, size: int, fails: bool) -> None:
        if self._survives(self._end_sync, size, fails):
            self.pump()

    def _end_sync(self, size: int, fails: bool) -> None:
        self._is_syncing = False
        if fails:
            self.world.note(self, "sync fails", None)
            self.machine.disk.lose_power()
            self.die("disk")
            return
        disk = self.machine.disk
        disk.synced = max(disk.synced, size) if len(disk.content) >= size else len(disk.content)
        while self._held and self._held[0][0] <= disk.synced and self.is_alive:
            _, effects, notes = self._held.popleft()
            self._carry_out(effects, notes)
        self._begin_sync()

    def _carry_out(self, effects: Effects, notes: list[Note]) -> None:
        for note in notes:
            self.world.note_of_member(self, note)
            if note.event == "restore":
                self.arriving.append(note.me.incarnation)
        for number, pieces in effects.writes:
            self._step()
            self._write(number, pieces)
            if not self.is_alive:
                raise CrashError
        for close in effects.closes:
            end = self._ends.get(close.connection)
            if end is not None and not end.is_gone:
                self.world.network.close(end, close.at_once)
        for name in effects.dials:
            self.world.network.dial(self, name)
        if effects.entries:
            self._step()
            self._entries.extend(effects.entries)
            self._take_entries()
        for outgoing in effects.settled:
            self._step()
            self.world.settled(self, outgoing)
        for notice in effects.notices:
            self._hear(notice)

    def _write(self, number: int, pieces: list[bytes]) -> None:
        end = self._ends.get(number)
        if end is None or end.is_gone:
            return
        if self.world.network.write(end, b"".join(pieces)):
            self.member.pause_writing(number)

    def _hear(self, notice: Notice) -> None:
        if notice.what == "levels":
            self._hear_levels(notice.value)
        elif notice.what == "excluded":
            self._step()
            self.member.exclusion_reported()
            self.world.excluded(self, notice.value)
        elif notice.what == "left":
            self.has_left = True
            self.world.note(self, "left", None)
            self.machine.disk.erase()
            self._hold_for_nothing()
            self.world.agenda.after(self.draw.randrange(20 * MS), self.post, self.end)
        elif notice.what == "failed":
            self.world.note(self, "failed", str(notice.value))
            self.world.agenda.at(self.world.agenda.now_ns, self.post, self.end)
        elif notice.what in ("blocked", "suspected", "slow", "backlog", "refused"):
            self.world.note(self, notice.what, notice.value)

    def _hear_levels(self, known: KnownLevels) -> None:
        """Note the messages that a quorum has; ask again for the others."""
        waiting = []
        for outgoing, level in self._asked:
            me = self.member.me
            if outgoing.was_sent and known.has_quorum(me, level, outgoing.sequence):
                self.world.note(self, "quorum", (known.view.id, me, outgoing.sequence, level))
            elif outgoing.failure is None:
                waiting.append((outgoing, level))
                self.member.ask_quorum(outgoing, level, self.now_ns)
        self._asked = waiting

    # The application.

    def _take_entries(self) -> None:
        """Take the available entries, now or later."""
        if not self.is_slow:
            self._take(len(self._entries))
        elif not self._is_taking and self._entries:
            self._is_taking = True
            delay_ns = round(self.draw.random() * self.draw.choice([1, 20, 200]) * MS)
            self.world.agenda.after(delay_ns, self.post, self._take_late)

    def _take_late(self) -> None:
        self._is_taking = False
        count = self.draw.randint(1, len(self._entries)) if self._entries else 0
        if self._survives(self._take, count) and self._survives(self._take_entries):
            self.pump()

    def _take(self, count: int) -> None:
        octets = 0
        while count and self._entries and self.is_alive:
            count -= 1
            self._step()
            entry = self._entries.popleft()
            if isinstance(entry, Delivery):
                octets += len(entry.record)
                self._deliver(entry)
            elif isinstance(entry, ViewChange):
                self._change_view(entry)
            elif isinstance(entry, SnapshotWanted):
                self._give_snapshot(entry)
            elif isinstance(entry, StateArrived):
                self._restore(entry)
            else:
                self.world.replayed(self, entry)
        if octets:
            self.member.taken(octets, self.now_ns)
            if not self._entries and len(self.machine.disk.content) >= self.world.settings.journal_bytes:
                self.world.agenda.at(self.world.agenda.now_ns, self.post, self._checkpoint_long_journal)

    def _change_view(self, change: ViewChange) -> None:
        self.world.note(self, "view", change.view)

    def _deliver(self, delivery: Delivery) -> None:
        number = number_of(delivery)
        self.state.append(number)
        self.world.delivered(self, delivery, number)

    def _give_snapshot(self, wanted: SnapshotWanted) -> None:
        if self.draw.random() < self.world.plan.snapshot_fails:
            self.world.note(self, "snapshot fails", wanted.view)
            self.member.snapshot_failed(wanted.view, self.now_ns)
        else:
            self.member.give_snapshot(wanted.view, self.encode_state(), self.now_ns)

    def _restore(self, entry: StateArrived) -> None:
        self.state = []
        if self.world.plan.makes_snapshots:
            self.state.extend(self._decode_state(b"".join(entry.pieces)))
        else:
            self.state.extend(number_of(delivery) for delivery in decode_history(entry.pieces))
        self.world.restored(self, entry.is_checkpoint)
        self.member.restored(self.now_ns)

    def encode_state(self) -> bytes:
        """The application's snapshot: a checksum, padding, the numbers. No two snapshots have the same bytes."""
        words = self.draw.choice([32, 32, self.draw.randint(1, 64)])
        filling = array("I", self.draw.randbytes(4 * words))
        octets = array("I", [len(filling), *filling, *self.state]).tobytes()
        return zlib.crc32(octets).to_bytes(4, "little") + octets

    def _decode_state(self, octets: bytes) -> list[int]:
        if zlib.crc32(octets[4:]).to_bytes(4, "little") != octets[:4]:
            raise AssertionError(f"a state of {len(octets)} bytes that no application gave")
        numbers = array("I")
        numbers.frombytes(octets[4:])
        return list(numbers[numbers[0] + 1 :])

    def checkpoint(self) -> None:
        """Replace the journal, when the application has taken everything; records waiting for a sync come after it."""
        if self.is_alive and not self.is_stopped and not self._entries:
            untaken = [entry for _, effects, _ in self._held for entry in effects.entries]
            self.call(self.member.checkpoint, self.encode_state(), untaken=untaken)
            self._checkpoint_bytes = len(self.machine.disk.content)

    def _checkpoint_long_journal(self) -> None:
        """As `live` does: when the journal is long, and twice as long as after the last checkpoint."""
        size = len(self.machine.disk.content)
        if self.world.plan.is_durable and size >= 2 * self._checkpoint_bytes and self.member.wants_checkpoint(size):
            self.checkpoint()

    # Ends.

    def end(self) -> None:
        """The program ends by itself."""
        if self.is_alive and not self.is_stopped:
            self.call(self.member.stop)
            self.die("end")

    def die(self, why: str, is_power: bool = False) -> None:
        """The process dies; only what it wrote is left."""
        if not self.is_alive:
            return
        self.is_alive = False
        self.is_listening = False
        self.world.note(self, "crash", f"{why}{' power' if is_power else ''}")
        self.world.died(self, is_power)

    @property
    def is_busy(self) -> bool:
        """Is anything of this process still in transit?"""
        return bool(self.unsent or self._entries or self._held or self.unsettled or self.is_stopped)
