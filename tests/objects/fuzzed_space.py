"""Shared objects on the members of a fuzzed history: one seed, one history, the same on every run.

The application of each simulated process is a `Space`. Its programs write, delete, add, and take a lock; the fuzzer
crashes, stops, cuts off and restarts them. Four things are checked:

- *order*: all members of a group apply the operations on ordered objects in one order, also those that are excluded
  later, and none is left out;
- *grants*: no two requests for the lock get the same token, and tokens grow;
- *content*: at every moment a dictionary or counter has what follows from all operations that its member was given,
  nothing forgotten (`_Ledger`): a tombstone that is freed too early shows here;
- *agreement*: at the end all members have the same objects, and nobody holds the lock or waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, NamedTuple

import msgspec

from cubecast.errors import CubecastError
from cubecast.fuzz.agenda import MS
from cubecast.fuzz.process import HEADER_BYTES, Process
from cubecast.fuzz.world import FuzzWorld, HistoryPlan, Machine
from cubecast.member.effects import Delivery, Notice, ViewChange
from cubecast.member.known_levels import NOTHING_KNOWN, KnownLevels
from cubecast.member.settings import Settings
from cubecast.objects.lock import Lock, Token, _Request
from cubecast.objects.space import Space
from cubecast.objects.total_order import Key
from cubecast.protocols.membership.views import MemberId, View

KEYS = "abc"


class _Write(NamedTuple):
    """An operation on a dictionary or a counter, as its member was given it."""

    kind: str
    stamp: tuple[int, int, str, int, int]
    value: Any


class _Ledger:
    """Every operation that a member was given, and what follows from them."""

    def __init__(self) -> None:
        """Empty."""
        self.writes: list[_Write] = []

    def counter(self) -> int:
        """The sum of all additions."""
        return sum(write.value for write in self.writes if write.kind == "counter")

    def last_wins(self) -> list[tuple[str, Any]]:
        """The value of the latest operation on each key, unless it is a deletion."""
        latest: dict[str, _Write] = {}
        for write in self.writes:
            if write.kind == "dict":
                key = write.value[1]
                latest[key] = max(latest.get(key, write), write, key=lambda one: one.stamp)
        return sorted((key, write.value[2]) for key, write in latest.items() if write.value[0] == "set")

    def add_wins(self) -> list[tuple[str, Any]]:
        """Of the writes that no deletion covers, the latest for each key."""
        mine = [write for write in self.writes if write.kind == "add-wins dict"]
        deletions = [write for write in mine if write.value[0] == "delete"]
        found: dict[str, _Write] = {}
        for write in mine:
            what, key, _ = write.value
            if what == "set" and not any(self._covers(deletion, write) for deletion in deletions):
                found[key] = max(found.get(key, write), write, key=lambda one: one.stamp)
        return sorted((key, write.value[2]) for key, write in found.items())

    def _covers(self, deletion: _Write, write: _Write) -> bool:
        is_own_earlier = deletion.stamp[2:4] == write.stamp[2:4] and deletion.stamp[4] > write.stamp[4]
        is_named = list(write.stamp) in [list(stamp) for stamp in deletion.value[2]]
        return deletion.value[1] == write.value[1] and (is_named or is_own_earlier)


class _Grant:
    """The future of a program that waits for the lock."""

    def __init__(self, granted: Callable[[Token], None], failed: Callable[[], None]) -> None:
        """Not granted."""
        self._granted = granted
        self._failed = failed
        self._is_done = False

    def done(self) -> bool:
        """Is it over?"""
        return self._is_done

    def set_result(self, token: Token) -> None:
        """The lock is held."""
        self._is_done = True
        self._granted(token)

    def set_exception(self, _error: Exception) -> None:
        """The lock will not be held."""
        self._is_done = True
        self._failed()


class _ProcessAsGroup:
    """What a space uses of a live group, of a simulated process."""

    is_entered = True

    def __init__(self, process: ObjectsProcess) -> None:
        """Of one process."""
        self._process = process

    @property
    def me(self) -> MemberId:
        """As the live group: that of the member, which may be ahead of the application."""
        me: MemberId = self._process.member.me
        return me

    @property
    def view(self) -> View:
        """As the live group: the newest that the member installed."""
        view: View = self._process.member.view
        return view

    @property
    def is_blocked(self) -> bool:
        """Are too few members reachable?"""
        return bool(self._process.member.is_blocked)

    def is_causally_stable(self, delivery: Delivery) -> bool:
        """By what the member has reported."""
        return self._process.is_causally_stable(delivery.sender, delivery.view, delivery.sequence)

    async def multicast(self, octets: bytes) -> None:
        """Queue it, as the driver does."""
        self._process.queue(octets)


class ObjectsSpace(Space):
    """A space whose group is a simulated process, and which notes what it applies."""

    def __init__(self, process: ObjectsProcess) -> None:
        """No objects."""
        super().__init__()
        self._process = process
        self._group = _ProcessAsGroup(process)  # type: ignore[assignment]
        self.ledger = _Ledger()
        self.applied: list[Key] = []

    def hurry(self, message: Any) -> None:
        """The fuzzer settles without."""

    def later(self, work: Coroutine[Any, Any, Any]) -> Any:
        """At once: nothing in it waits."""
        run(work)

    def lock(self, name: str) -> Lock:
        """The lock of that name; the numbers of its requests are drawn as everything else is."""
        is_new = (Lock.kind, name) not in self._objects
        lock = super().lock(name)
        if is_new:
            lock._numbers = self._process.draw.getrandbits(48)
        return lock

    def take(self, event: Any) -> None:
        """What the group gives."""
        if not isinstance(event, ViewChange):
            kind, _, clock, value = msgspec.msgpack.decode(event.payload)
            stamp = (event.view, clock, str(event.sender.name), event.sender.incarnation, event.sequence)
            self.ledger.writes.append(_Write(kind, stamp, value))
        self._take(event)
        self.check()

    def stable(self) -> None:
        """More is causally stable."""
        self._stable()
        self.check()

    def lost(self) -> None:
        """The group continued without this member."""
        self._lost()

    def check(self) -> None:
        """Compare the objects with the ledger."""
        pairs = [
            ("counter", self.counter("c").value, self.ledger.counter()),
            ("dict", self.dict("d").items(), self.ledger.last_wins()),
            ("add-wins dict", self.dict("e", "add").items(), self.ledger.add_wins()),
        ]
        for kind, found, expected in pairs:
            if found != expected:
                self._process.complain(f"content: the {kind} has {found}, not {expected}")

    def _apply_ordered(self, ready: list[tuple[Key, tuple[str, str, Any]]]) -> None:
        for key, item in ready:
            self._process.applies(len(self.applied), key)
            self.applied.append(key)
            super()._apply_ordered([(key, item)])

    def snapshot(self) -> bytes:
        """The state, and the notes that belong to it."""
        return msgspec.msgpack.encode([super().snapshot(), self.ledger.writes, self.applied])

    def restore(self, state: bytes) -> None:
        """Take over another member's, notes included."""
        inner, writes, applied = msgspec.msgpack.decode(state)
        self.ledger.writes = [_Write(kind, tuple(stamp), value) for kind, stamp, value in writes]
        self.applied = [Key(view, clock, MemberId(*sender), sequence) for view, clock, sender, sequence in applied]
        super().restore(inner)
        self.check()


def run(work: Coroutine[Any, Any, Any]) -> None:
    """Run a coroutine that never waits to its end."""
    try:
        work.send(None)
    except (StopIteration, CubecastError):
        return
    raise AssertionError("a simulated operation had to wait")


class ObjectsProcess(Process):
    """A process whose application has shared objects."""

    world: ObjectsWorld

    def __init__(self, world: FuzzWorld, machine: Machine) -> None:
        """Not running."""
        super().__init__(world, machine)
        self.known: KnownLevels = NOTHING_KNOWN
        self.space = ObjectsSpace(self)

    def complain(self, what: str) -> None:
        """A property is violated."""
        self.world.violations.append(f"{what} ({self.name} at {self.world.time_ms:.3f} ms)")

    # The programs.

    def multicast(self, count: int) -> None:
        """Operations on random objects."""
        for _ in range(count):
            self._operate()
        self._multicast_unsent()
        self.pump()

    def _operate(self) -> None:
        space, key = self.space, self.draw.choice(KEYS)
        value = len(self.world.messages)
        run(
            self.draw.choice(
                [
                    lambda: space.dict("d").set(key, value),
                    lambda: space.dict("d").delete(key),
                    lambda: space.dict("e", "add").set(key, value),
                    lambda: space.dict("e", "add").delete(key),
                    lambda: space.counter("c").add(value),
                    self._acquire,
                    self._acquire,
                ]
            )()
        )

    async def _acquire(self) -> None:
        """As `Lock.acquire`, with a future of our own; some programs give up early, some hold the lock for a while."""
        lock = self.space.lock("l")
        lock._numbers += 1
        number = lock._numbers
        agenda = self.world.agenda
        lock._waiting[number] = _Grant(  # type: ignore[assignment]
            lambda token: self._granted(token, number),
            lambda: agenda.at(agenda.now_ns, self.post, self._give_up, number),
        )
        await lock._send(["acquire", number])
        if self.draw.random() < 0.1:
            agenda.after(self.draw.randrange(50 * MS), self.post, self._give_up, number)

    def _granted(self, token: Token, number: int) -> None:
        lock = self.space.lock("l")
        del lock._waiting[number]
        lock._held = _Request(self.member.me, number)
        self.world.granted(self, token, lock._held)
        delay_ns = 0 if self.world.is_calm else self.draw.choice([0, self.draw.randrange(20 * MS)])
        self.world.agenda.after(delay_ns, self.post, self._release, lock._held)

    def _release(self, held: _Request) -> None:
        lock = self.space.lock("l")
        if lock._held == held:
            lock._held = None
            run(lock._pass_on(held))  # `release` does so in a task, which needs an event loop

    def _give_up(self, number: int) -> None:
        lock = self.space.lock("l")
        if lock._waiting.pop(number, None) is not None:
            run(lock._send(["release", number]))

    def queue(self, octets: bytes) -> None:
        """Multicast as soon as there is room."""
        number = self.world.next_message(self)
        self.world.operations[number] = octets
        self.world.note(self, "make", number)
        self.unsent.append(number)
        self.member.queued = len(self.unsent)
        self.world.agenda.at(self.world.agenda.now_ns, self.post, self._send_queued)

    def _send_queued(self) -> None:
        if self.is_alive:
            self._multicast_unsent()
            self.pump()

    @property
    def is_busy(self) -> bool:
        """Is anything of it still in transit, or does a program hold or want the lock?"""
        lock = self.space.lock("l")
        return super().is_busy or bool(lock._waiting or lock._held)

    # The application.

    def _deliver(self, delivery: Delivery) -> None:
        super()._deliver(delivery)
        self.space.take(
            SimpleNamespace(
                sender=delivery.sender,
                view=delivery.view,
                sequence=delivery.sequence,
                payload=delivery.payload[HEADER_BYTES:],
            )
        )

    def _change_view(self, change: ViewChange) -> None:
        super()._change_view(change)
        self.space.take(change)

    def _hear(self, notice: Notice) -> None:
        super()._hear(notice)
        if notice.what == "levels":
            self.known = notice.value
            self.space.stable()
        elif notice.what == "excluded":
            self.space.lost()

    def is_causally_stable(self, sender: MemberId, view: int, sequence: int) -> bool:
        """By what the member has reported."""
        return self.known.is_causally_stable(sender, view, sequence)

    def encode_state(self) -> bytes:
        """The numbers, and the objects."""
        numbers = super().encode_state()
        return len(numbers).to_bytes(4, "little") + numbers + self.space.snapshot()

    def _decode_state(self, octets: bytes) -> list[int]:
        end = 4 + int.from_bytes(octets[:4], "little")
        self.space.restore(octets[end:])
        return super()._decode_state(octets[4:end])

    def applies(self, place: int, key: Key) -> None:
        """An operation on an ordered object is applied."""
        if self.member.view is not None:
            self.world.ordered(self, self.member.view.group_id, place, key)


class ObjectsWorld(FuzzWorld):
    """A history in which the applications have shared objects."""

    make_process: type[Process] = ObjectsProcess

    def __init__(self, seed: int, settings: Settings, plan: HistoryPlan, make_member: Callable[..., Any]) -> None:
        """Objects are restored from snapshots, and ordered in the primary partition only."""
        super().__init__(
            seed,
            replace(settings, quorum="majority", keep="none"),
            replace(plan, makes_snapshots=True),
            make_member,
        )
        self.operations: dict[int, bytes] = {}
        self._orders: dict[int, list[Key]] = {}
        """By group: the operations on ordered objects, as the first member applied them."""
        self._grants: dict[tuple[int, Token], _Request] = {}
        self._is_forced = False
        """Did an operator declare that the members of one branch are enough?"""

    def note(self, process: Process, what: str, data: Any) -> None:
        """Record an event."""
        super().note(process, what, data)
        self._is_forced |= what == "force"

    def payload(self, number: int) -> bytes:
        """The number, and the operation."""
        return number.to_bytes(HEADER_BYTES, "little") + self.operations[number]

    def ordered(self, process: ObjectsProcess, group_id: int, place: int, key: Key) -> None:
        """A member applies its operation number `place`."""
        order = self._orders.setdefault(group_id, [])
        if place == len(order):
            order.append(key)
        elif not self._is_forced and (place > len(order) or order[place] != key):
            process.complain(f"order: operation {place} is {key}, elsewhere {order[place : place + 1]}")

    def granted(self, process: ObjectsProcess, token: Token, request: _Request) -> None:
        """A program got the lock."""
        group_id = process.member.view.group_id if process.member.view is not None else 0
        other = self._grants.setdefault((group_id, token), request)
        if other != request and not self._is_forced:
            process.complain(f"grants: {token} belongs to {request} and to {other}")

    def judge(self) -> list[str]:
        """At the end: do all members have the same objects, and is the lock free?"""
        spaces = [process.space for process in self.living() if isinstance(process, ObjectsProcess)]
        states = [{place: one.state() for place, one in space._objects.items()} for space in spaces]
        complaints = [
            f"agreement: {place} is {state[place]} at one member, {states[0].get(place)} at another"
            for state in states[1:]
            for place in state
            if _plain(state[place]) != _plain(states[0].get(place))
        ]
        return complaints + [
            f"agreement: {lock.holder} holds the lock at the end"
            for lock in (space.lock("l") for space in spaces)
            if lock.holder is not None
        ]


def _plain(state: Any) -> Any:
    """A state in which the order of keys and of writes says nothing."""
    if isinstance(state, dict):
        return {key: _plain(value) for key, value in state.items()}
    if isinstance(state, list | tuple):
        return sorted((_plain(one) for one in state), key=repr)
    return state
