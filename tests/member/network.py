"""Members joined by a simulated network: one seed, one history.

A connection carries bytes in order, each way, after a short delay. `cut` holds bytes in transit between two names and
makes dials fail; `reset` loses bytes in transit and ends the connection at both ends; `kill` ends a process and keeps
its journal. The driver carries out effects in their order, and asserts that a durable member shows nothing, to the
application or to a peer, that its journal does not hold.
"""

from __future__ import annotations

import heapq
import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from cubecast.errors import CubecastError
from cubecast.member.effects import (
    Delivery,
    Effects,
    Entry,
    Excluded,
    Notice,
    Outgoing,
    SnapshotWanted,
    StateArrived,
    ViewChange,
)
from cubecast.member.history import decode_history
from cubecast.member.member import Member
from cubecast.member.settings import Settings
from cubecast.protocols.membership.views import MemberId, View

MS = 1_000_000
DELAY_NS = MS // 5
SETTINGS = Settings(heartbeat_s=0.05, suspect_after_s=0.4, patience_s=0.2, takeover_s=0.3)
NAMES = [f"10.0.0.{number}:7000" for number in range(1, 17)]


class Application:
    """What the application of one process saw. Its state is the list of payloads, which is its snapshot."""

    def __init__(self) -> None:
        """Nothing yet."""
        self.entries: list[Entry] = []
        self.state: list[bytes] = []
        self.views: list[View] = []
        self.settled: list[Outgoing] = []
        self.notices: list[Notice] = []
        self.is_slow = False
        """Does it take nothing for now?"""
        self.restores_slowly = False
        """Does it not say that it has restored a state?"""

    @property
    def deliveries(self) -> list[Delivery]:
        """All deliveries, those of discarded states included."""
        return [entry for entry in self.entries if isinstance(entry, Delivery)]

    @property
    def payloads(self) -> list[bytes]:
        """What was delivered."""
        return [delivery.payload for delivery in self.deliveries]

    def heard(self, what: str) -> list[Any]:
        """The values of all notices of one kind."""
        return [notice.value for notice in self.notices if notice.what == what]


class Process:
    """One run of one member, and the state of its driver."""

    def __init__(self, member: Member, application: Application, journal: list[bytes], makes_snapshots: bool) -> None:
        """Just started."""
        self.member = member
        self.application = application
        self.journal = journal
        self.makes_snapshots = makes_snapshots
        self.timer_ns: int | None = None
        self.untaken: deque[Entry] = deque()


class Connection:
    """Bytes in transit between two processes, by destination."""

    def __init__(self, dialler: Process, listener: Process) -> None:
        """Open, nothing in transit."""
        self.ends = (dialler, listener)
        self.under_way: dict[int, deque[bytes]] = {id(dialler): deque(), id(listener): deque()}

    def other(self, one: Process) -> Process:
        """The process at the other end."""
        return self.ends[1] if one is self.ends[0] else self.ends[0]


class Network:
    """All processes and connections, and the clock."""

    def __init__(self, seed: int = 0, *, jitter_ns: int = 0) -> None:
        """Empty."""
        self.now_ns = 0
        self.processes: dict[str, Process] = {}
        self.applications: dict[str, Application] = {}
        self.journals: dict[str, list[bytes]] = {}
        self.connections: dict[int, Connection] = {}
        self.refuses: set[frozenset[str]] = set()
        self.on_effects: Callable[[Process, Effects], None] | None = None
        self._chance = random.Random(seed)
        self._jitter_ns = jitter_ns
        self._heap: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._order = itertools.count()
        self._numbers = itertools.count(1)
        self._sessions = itertools.count(1)

    # Processes.

    def start(
        self,
        name: str,
        *,
        founders: Sequence[str] = (),
        contacts: Sequence[str] = (),
        settings: Settings = SETTINGS,
        durable: bool = False,
        snapshots: bool = False,
        group: str = "g",
    ) -> Member:
        """Found a group, or form or join one, or continue from the journal if there is one."""
        member = Member(
            group,
            name,
            settings,
            incarnation=self.now_ns + 1,
            session=next(self._sessions),
            is_durable=durable,
            makes_snapshots=snapshots,
        )
        journal = self.journals.setdefault(name, []) if durable else []
        application = self.applications[name] = Application()
        process = self.processes[name] = Process(member, application, journal, snapshots)
        if journal:
            member.resume(list(journal), self.now_ns, contacts=contacts, founders=founders)
        elif founders:
            member.form(founders, self.now_ns)
        elif contacts:
            member.join(contacts, self.now_ns)
        else:
            member.found(self.now_ns)
        self.turn(process)
        return member

    def form(self, count: int, **options: Any) -> list[str]:
        """Start a group of this many founders, and wait until all are in one view."""
        names = NAMES[:count]
        for name in names:
            self.start(name, founders=names, **options)
        self.run_until(lambda: self.in_one_view(names))
        return names

    def member(self, name: str) -> Member:
        """The member that runs under a name."""
        return self.processes[name].member

    def app(self, name: str) -> Application:
        """The application of the last process of a name."""
        return self.applications[name]

    def kill(self, *names: str) -> None:
        """End processes; others learn of it from their connections."""
        for name in names:
            process = self.processes.pop(name)
            for number, connection in list(self.connections.items()):
                if process in connection.ends:
                    del self.connections[number]
                    self._at(MS, self._lost, connection.other(process), number, "reset")

    def in_one_view(self, names: Iterable[str], *, exactly: bool = True) -> bool:
        """Are these members in one view, ready, with nobody else?"""
        wanted = set(names)
        members = [self.member(name) for name in wanted]
        views = {member.view.id for member in members if member.view is not None and member.phase == "member"}
        if len(views) != 1 or not all(
            member.view is not None and member.phase == "member" and member.stack is not None and not member.is_changing
            for member in members
        ):
            return False
        view = members[0].view
        return view is not None and (not exactly or {who.name for who in view.members} == wanted)

    # Calls of the application.

    def multicast(self, name: str, *payloads: bytes) -> list[Outgoing]:
        """Multicast, all in one turn of the loop."""
        process = self.processes[name]
        outgoing = [process.member.multicast(payload, self.now_ns) for payload in payloads]
        self.turn(process)
        return outgoing

    def leave(self, name: str) -> None:
        """Leave."""
        self.call(name, lambda member: member.leave(self.now_ns))

    def call(self, name: str, function: Callable[[Member], object]) -> None:
        """Call a member, and carry out its effects."""
        process = self.processes[name]
        function(process.member)
        self.turn(process)

    def take_all(self, name: str) -> None:
        """The application of a name takes what waits, and is no longer slow."""
        process = self.processes[name]
        process.application.is_slow = False
        self._give(process)
        self.turn(process)

    # Faults.

    def cut(self, one: Iterable[str], other: Iterable[str]) -> None:
        """Nothing passes between these names until `heal`."""
        self.refuses |= {frozenset((a, b)) for a in one for b in other if a != b}

    def heal(self) -> None:
        """Everything passes again."""
        self.refuses.clear()
        for number, connection in self.connections.items():
            for end in connection.ends:
                for _ in connection.under_way[id(end)]:
                    self._at(DELAY_NS, self._arrive, number, end)

    def reset(self, one: str, other: str) -> None:
        """End the connections between two names; bytes in transit are lost."""
        for number, connection in list(self.connections.items()):
            if {end.member.me.name for end in connection.ends} == {one, other}:
                del self.connections[number]
                for end in connection.ends:
                    self._lost(end, number, "reset")

    # The clock.

    def run(self, milliseconds: float) -> None:
        """Let time pass."""
        end_ns = self.now_ns + round(milliseconds * MS)
        while self._heap and self._heap[0][0] <= end_ns:
            self._step()
        self.now_ns = end_ns

    def run_until(self, is_done: Callable[[], bool], *, seconds: float = 20) -> None:
        """Let time pass until a condition holds."""
        end_ns = self.now_ns + round(seconds * 1000) * MS
        while not is_done():
            assert self._heap, "nothing is left to happen"
            assert self._heap[0][0] <= end_ns, f"not within {seconds} s: {self.describe()}"
            self._step()

    def settle(self, *names: str) -> None:
        """Let time pass until these members are in one view, alone, and everything is stable."""
        self.run_until(
            lambda: (
                self.in_one_view(names)
                and all(not self.member(name).log.bytes and not len(self.member(name).own) for name in names)
            )
        )

    def describe(self) -> str:
        """Where every member is."""
        return "; ".join(
            f"{name}: {process.member.phase} {process.member.view.number if process.member.view else 0} "
            f"{process.member.waiting_for()}"
            for name, process in self.processes.items()
        )

    def _step(self) -> None:
        self.now_ns, _, function, arguments = heapq.heappop(self._heap)
        function(*arguments)

    def _at(self, delay_ns: int, function: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._heap, (self.now_ns + delay_ns, next(self._order), function, arguments))

    # The driver.

    def turn(self, process: Process) -> None:
        """Take effects and carry them out, in their order."""
        member = process.member
        effects = member.take_effects()
        if self.on_effects is not None:
            self.on_effects(process, effects)
        if replacement := effects.replacement():
            process.journal[:] = [b"".join(replacement)]
        elif effects.persist:
            process.journal.append(b"".join(effects.persist))
        for number, buffers in effects.writes:
            self._send(process, number, b"".join(buffers))
        for close in effects.closes:
            if close.connection in self.connections:
                self._at(2 * DELAY_NS, self._close, close.connection, process)
        for name in effects.dials:
            self._at(DELAY_NS, self._dial, process, name)
        process.application.settled += effects.settled
        process.application.notices += effects.notices
        if any(notice.what == "excluded" for notice in effects.notices):
            member.exclusion_reported()
        process.untaken.extend(effects.entries)
        for entry in effects.entries:
            if isinstance(entry, ViewChange):
                process.application.views.append(entry.view)
        if not process.application.is_slow:
            self._give(process)
        if effects.is_partial:
            self._at(0, self._turn_again, process)
        self._set_timer(process)

    def _turn_again(self, process: Process) -> None:
        if self._runs(process):
            self.turn(process)

    def _give(self, process: Process) -> None:
        """The application takes everything that waits for it."""
        member, application = process.member, process.application
        octets, called = 0, False
        while process.untaken:
            entry = process.untaken.popleft()
            application.entries.append(entry)
            if isinstance(entry, Delivery):
                application.state.append(entry.payload)
                octets += len(entry.record)
            elif isinstance(entry, SnapshotWanted):
                member.give_snapshot(entry.view, b"\n".join(application.state), self.now_ns)
                called = True
            elif isinstance(entry, StateArrived):
                self._restore(process, entry)
                called = True
        if octets:
            member.taken(octets, self.now_ns)
        if octets or called:
            self._at(0, self._turn_again, process)

    def _restore(self, process: Process, entry: StateArrived) -> None:
        application = process.application
        if process.makes_snapshots:
            state = b"".join(entry.pieces)
            application.state = state.split(b"\n") if state else []
        else:
            application.state = [delivery.payload for delivery in decode_history(entry.pieces)]
        if not application.restores_slowly:
            process.member.restored(self.now_ns)

    def _set_timer(self, process: Process) -> None:
        due_ns = process.member.next_timer_ns
        if due_ns is None:
            return
        due_ns = max(due_ns, self.now_ns)
        if process.timer_ns is None or due_ns < process.timer_ns or process.timer_ns <= self.now_ns:
            process.timer_ns = due_ns
            self._at(due_ns - self.now_ns, self._fire, process, due_ns)

    def _fire(self, process: Process, due_ns: int) -> None:
        if self._runs(process) and process.timer_ns == due_ns:
            process.timer_ns = None
            process.member.on_timer(self.now_ns)
            self.turn(process)

    def _runs(self, process: Process) -> bool:
        return self.processes.get(process.member.me.name) is process

    def _dial(self, process: Process, name: str) -> None:
        if not self._runs(process):
            return
        listener = self.processes.get(name)
        if listener is None or frozenset((name, process.member.me.name)) in self.refuses:
            process.member.dial_failed(name, "connection refused", self.now_ns)
            self.turn(process)
            return
        number = next(self._numbers)
        self.connections[number] = Connection(process, listener)
        listener.member.connection_made(number, "", None, process.member.me.name, self.now_ns)
        process.member.connection_made(number, name, None, name, self.now_ns)
        self.turn(listener)
        self.turn(process)

    def _send(self, process: Process, number: int, data: bytes) -> None:
        connection = self.connections.get(number)
        if connection is not None:
            to = connection.other(process)
            connection.under_way[id(to)].append(data)
            delay_ns = DELAY_NS + (self._chance.randrange(self._jitter_ns) if self._jitter_ns else 0)
            self._at(delay_ns, self._arrive, number, to)

    def _arrive(self, number: int, to: Process) -> None:
        """The oldest bytes in transit arrive, unless they are held."""
        connection = self.connections.get(number)
        if connection is None or not self._runs(to) or not connection.under_way[id(to)]:
            return
        if frozenset(end.member.me.name for end in connection.ends) in self.refuses:
            return
        to.member.data_received(number, connection.under_way[id(to)].popleft(), self.now_ns)
        self.turn(to)

    def _close(self, number: int, by: Process) -> None:
        connection = self.connections.pop(number, None)
        if connection is not None:
            self._at(DELAY_NS, self._lost, connection.other(by), number, "closed by the other side")

    def _lost(self, process: Process, number: int, reason: str) -> None:
        if self._runs(process):
            process.member.connection_lost(number, reason, self.now_ns)
            self.turn(process)


def agree_on_deliveries(network: Network, names: Sequence[str]) -> None:
    """Each member delivered, of each sender, the same messages, each once and in the order of sending."""
    seen: dict[MemberId, set[tuple[int, bytes]]] = {}
    for name in names:
        of_sender: dict[MemberId, list[tuple[int, bytes]]] = {}
        for delivery in network.app(name).deliveries:
            of_sender.setdefault(delivery.sender, []).append((delivery.sequence, delivery.payload))
        for sender, messages in of_sender.items():
            numbers = [number for number, _ in messages]
            assert numbers == list(range(numbers[0], numbers[0] + len(numbers))), f"{name} of {sender}: {numbers}"
            seen.setdefault(sender, set()).update(messages)
    for sender, all_of_it in seen.items():
        assert len({number for number, _ in all_of_it}) == len(all_of_it), f"two messages of one number of {sender}"


def excluded(application: Application) -> list[Excluded]:
    """The exclusions that were reported to the application of a member."""
    return [value for value in application.heard("excluded") if isinstance(value, Excluded)]


def failures(application: Application) -> list[CubecastError]:
    """Why a member could not continue."""
    return [value for value in application.heard("failed") if isinstance(value, CubecastError)]
