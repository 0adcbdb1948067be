"""The processes, machines and network of one history, and the events in it."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

from cubecast.errors import JournalError
from cubecast.fuzz.agenda import MS, SECOND, Agenda
from cubecast.fuzz.disk import Disk
from cubecast.fuzz.impostor import Impostor
from cubecast.fuzz.network import FuzzNetwork
from cubecast.fuzz.process import HEADER_BYTES, Note, Process, Replayed
from cubecast.member.effects import Delivery, Excluded, Outgoing
from cubecast.member.own_messages import StoppedError
from cubecast.member.settings import Settings
from cubecast.protocols.membership.views import MemberId

MACHINES_MAX = 10
FIRST_INCARNATION = 1_700_000_000 * SECOND


class HistoryEvent(NamedTuple):
    """An event in a process or of its environment."""

    time_ns: int
    name: str
    me: MemberId
    what: str
    data: Any


@dataclass(frozen=True, kw_only=True)
class HistoryPlan:
    """Parameters of a history besides the settings of the members."""

    is_durable: bool = False
    makes_snapshots: bool = True
    has_certificates: bool = False
    slow_application: float = 0.0
    """Share of processes whose application takes entries late."""
    snapshot_fails: float = 0.0
    sync_ms: tuple[float, float] = (0.0, 0.0)
    payload_bytes: tuple[int, int] = (4, 60)


class Machine:
    """A name, a disk, and what an operator knows of it."""

    def __init__(self, world: FuzzWorld, name: str) -> None:
        """No process runs on it."""
        self.name = name
        self.disk = Disk(world.draw, world.group, name)
        self.process: Process | None = None
        self.impostor: Impostor | None = None
        self.is_wanted = True
        """Should it be in the group at the end?"""
        self.founders: tuple[str, ...] = ()
        self.seen: list[int] = []
        """The state that its application had when the last process ended."""
        self.seen_incarnation = 0
        self.sync_hangs = False
        self.sync_fails = False


class FuzzWorld:
    """One history."""

    make_process = Process

    def __init__(self, seed: int, settings: Settings, plan: HistoryPlan, make_member: Callable[..., Any]) -> None:
        """There are no processes yet."""
        self.draw = random.Random(seed ^ 0x5EED)
        self.agenda = Agenda()
        self.settings = settings
        self.plan = plan
        self.make_member = make_member
        self.group = "fuzz"
        self.network = FuzzNetwork(self.draw, self.agenda, self.find)
        self.machines: dict[str, Machine] = {}
        self.events: list[HistoryEvent] = []
        self.violations: list[str] = []
        self.tracebacks: list[str] = []
        self.messages: list[str] = []
        """By number: the name of the machine that multicast it."""
        self.on_persist: Callable[[Process, list[bytes]], None] = lambda *_: None
        self.is_calm = False
        self._incarnations = 0

    @property
    def time_ms(self) -> float:
        """Since the beginning."""
        return (self.agenda.now_ns - SECOND) / MS

    def next_incarnation(self) -> int:
        """The wall clock at the start of a process: it grows."""
        self._incarnations += 1
        return FIRST_INCARNATION + self.agenda.now_ns + self._incarnations

    # Machines and processes.

    def machine(self, number: int) -> Machine:
        """The machine of that number."""
        name = f"10.0.0.{number + 1}:7000"
        if name not in self.machines:
            self.machines[name] = Machine(self, name)
        return self.machines[name]

    def find(self, name: str) -> Process | Impostor | None:
        """The process that listens under a name."""
        machine = self.machines.get(name)
        return machine.process or machine.impostor if machine is not None else None

    def living(self) -> list[Process]:
        """All processes that run, by name."""
        found = [self.machines[name].process for name in sorted(self.machines)]
        return [process for process in found if process is not None]

    def start(self, machine: Machine, how: str = "join", contacts: tuple[str, ...] = ()) -> None:
        """Start a process: from its journal if there is one, else as `how` says.

        An operator erases a journal that is refused. A founder that lost its journal contacts the others.
        """
        if machine.process is not None or not machine.is_wanted:
            return
        self.expose(machine)
        self.network.silent.discard(machine.name)
        machine.sync_hangs = machine.sync_fails = False
        machine.disk.room = None
        batches: list[bytes] = []
        if self.plan.is_durable:
            try:
                batches = machine.disk.read()
            except JournalError as error:
                self.events.append(
                    HistoryEvent(
                        self.agenda.now_ns, machine.name, MemberId(machine.name, 0), "journal refused", str(error)
                    )
                )
                machine.disk.erase()
                batches = machine.disk.read()
        others = contacts or tuple(name for name in sorted(self.machines) if name != machine.name)
        machine.process = process = self.make_process(self, machine)
        if batches:
            process.begin("resume", {"batches": batches, "contacts": others, "founders": machine.founders})
            return
        if machine.seen or machine.seen_incarnation:
            self.note(process, "amnesia", None)
        machine.seen = []
        if machine.founders and how != "found":
            process.begin("form", {"founders": machine.founders})
        elif how == "found" or not others:
            process.begin("found", {})
        else:
            process.begin("join", {"contacts": others})

    def restart(self, process: Process) -> None:
        """Start a machine again whose process died, if it should run and does not yet."""
        machine = process.machine
        if process.is_alive and process.fuse:  # it was to crash during a step, and had nothing to do
            process.die("fault", process.fuse_is_power)
        if machine.process is None and machine.is_wanted:
            self.start(machine)

    def died(self, process: Process, is_power: bool) -> None:
        """A process has ended."""
        machine = process.machine
        if machine.process is not process:
            return
        machine.process = None
        machine.seen = list(process.state)
        machine.seen_incarnation = process.state_incarnation
        if is_power:
            self.network.silent.add(machine.name)
            if self.settings.sync == "always":
                machine.disk.lose_power()
            else:  # unsynced records may hold promises to others: an operator must not continue from them
                machine.disk.erase()
        if process.has_left:
            machine.disk.erase()
            machine.is_wanted = False
            machine.founders = ()
        self.network.process_died(process, is_power)

    def intrude(self, machine: Machine) -> None:
        """An impostor listens where a machine is down."""
        if machine.process is None and machine.impostor is None and self.plan.has_certificates:
            machine.impostor = Impostor(self, machine.name)

    def expose(self, machine: Machine) -> None:
        """End the impostor."""
        if machine.impostor is not None:
            self.network.process_died(machine.impostor, is_power=False)
            machine.impostor = None

    def kill(self, process: Process, is_power: bool = False) -> None:
        """Kill a process, or cut the power of its machine."""
        process.die("kill", is_power)

    # The application's messages.

    def next_message(self, process: Process) -> int:
        """The number of a new message."""
        self.messages.append(process.name)
        return len(self.messages) - 1

    def payload(self, number: int) -> bytes:
        """The payload of a message: its number and padding."""
        low, high = self.plan.payload_bytes
        return number.to_bytes(HEADER_BYTES, "little") + bytes(self.draw.randint(low, high) - HEADER_BYTES)

    # Events.

    def note(self, process: Process, what: str, data: Any) -> None:
        """Record an event."""
        me = process.member.me if process.member is not None else MemberId(process.name, 0)
        self.events.append(HistoryEvent(self.agenda.now_ns, process.name, me, what, data))

    def note_of_member(self, process: Process, note: Note) -> None:
        """Record a trace event of a member."""
        self.events.append(HistoryEvent(self.agenda.now_ns, process.name, note.me, f"member {note.event}", note.data))

    def delivered(self, process: Process, delivery: Delivery, number: int) -> None:
        """An application took a message."""
        self.note(process, "deliver", (delivery.sender, delivery.view, delivery.sequence, number, delivery.is_history))

    def restored(self, process: Process, is_checkpoint: bool) -> None:
        """An application took over a state."""
        if not is_checkpoint:
            process.state_incarnation = process.arriving.popleft()
        self.note(process, "restore", (tuple(process.state), is_checkpoint, process.state_incarnation))

    def replayed(self, process: Process, entry: Replayed) -> None:
        """An application was given again what it had before a restart."""
        is_same = process.member.me.incarnation == entry.incarnation
        self.note(process, "replayed", (entry.seen, tuple(process.state), is_same))

    def settled(self, process: Process, outgoing: Outgoing) -> None:
        """A message is stable, or will never be."""
        number = int.from_bytes(outgoing.payload[:HEADER_BYTES], "little")
        process.unsettled.discard(number)
        has_stopped = isinstance(outgoing.failure, StoppedError)
        self.note(process, "settled", (number, outgoing.is_stable, has_stopped))

    def excluded(self, process: Process, excluded: Excluded) -> None:
        """A member learns that the group continues without it."""
        numbers = tuple(int.from_bytes(payload[:HEADER_BYTES], "little") for payload in excluded.returned)
        self.note(process, "excluded", (numbers, excluded.certain, excluded.reason))

    # Faults.

    def divide(self, sides: list[list[str]]) -> None:
        """Machines of different sides do not reach each other."""
        place = {name: side for side, names in enumerate(sides) for name in names}
        self.network.cut(
            (one, other) for one in self.machines for other in self.machines if place.get(one, 0) != place.get(other, 0)
        )

    def calm(self) -> None:
        """All faults end: stopped processes continue, hung ones are killed, the network is whole."""
        self.is_calm = True
        self.on_persist = lambda *_: None
        self.network.calm()
        for machine in self.machines.values():
            self.expose(machine)
            machine.disk.room = None
            machine.sync_fails = False
            process = machine.process
            if process is None:
                continue
            process.fuse = 0
            process.is_slow = False
            process.sync_ms = (0.0, 0.0)
            if machine.sync_hangs:
                machine.sync_hangs = False
                self.kill(process)
            else:
                process.go_on()
