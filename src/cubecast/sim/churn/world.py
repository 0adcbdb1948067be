"""A small world for changing groups: processes, a network that loses, delays, doubles and divides, and a clock.

Every draw comes from one generator, so a history is replayed by its seed. The application of every process is a log of
payloads; its state is that log.
"""

from __future__ import annotations

import heapq
import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from cubecast.core.membership import Member, MemberId, MembershipSettings, View, fold, founding_view
from cubecast.core.membership.member import LINGER, MEMBER, OUT
from cubecast.core.membership.messages import (
    ANY_LIFE,
    Action,
    Blocked,
    Decide,
    Deliver,
    Excluded,
    Install,
    Left,
    Persist,
    Restore,
    Send,
    Sent,
    Stable,
    Unblocked,
    WantSnapshot,
)
from cubecast.core.membership.records import Record, Whole
from cubecast.sim.churn.history import History, Row

MS = 1_000_000


@dataclass(frozen=True, kw_only=True)
class Weather:
    """How the network treats messages."""

    loss: float = 0.0
    double: float = 0.0
    stale: float = 0.0
    """Share of messages that come up to `stale_ms` late."""
    delay_ms: tuple[float, float] = (0.2, 3.0)
    stale_ms: float = 400.0


@dataclass
class Process:
    """One life of a process, with its application."""

    core: Member
    log: list[int] = field(default_factory=list)
    is_alive: bool = True
    is_out: bool = False
    fuse: int = 0
    """Stops when it is about to carry out this action; a record that it is about to write is torn. 0: never."""

    @property
    def is_in_group(self) -> bool:
        """Alive, and neither left nor excluded."""
        return self.is_alive and not self.is_out


class Goodbye(NamedTuple):
    """A member that is out has told the decision for the last time, to these members of its view."""

    time_ns: int
    who: MemberId
    view: int
    told: tuple[Process, ...]


class World:
    """The processes, what is on its way to them, and what has happened."""

    def __init__(
        self, seed: int, settings: MembershipSettings, weather: Weather, make: Callable[..., Member] = Member
    ) -> None:
        """Nobody yet; `make` makes the cores."""
        self.random = random.Random(seed)
        self.settings = settings
        self.weather = weather
        self.now_ns = 0
        self.history: History = []
        self.processes: dict[MemberId, Process] = {}
        self.living: dict[int, MemberId] = {}
        self.messages = 0
        self.pauses_ns: list[int] = []
        self.rejoin_ms = 60.0
        self.decided: dict[int, View] = {}
        """The views of which somebody said that they were decided."""
        self.goodbyes: list[Goodbye] = []
        self.lost_ns: dict[tuple[MemberId, MemberId], int] = {}
        """When the network last lost a message from one member to another."""
        self._lives: dict[int, int] = {}
        self._disks: dict[int, list[Record]] = {}
        self._component: dict[int, int] = {}
        self._cut: set[tuple[int, int]] = set()
        self._queue: list[tuple[int, int, Callable[[], None]]] = []
        self._order = 0
        self._payload = 0
        self._make = make

    # Time.

    def at(self, time_ns: int, what: Callable[[], None]) -> None:
        """Do something then."""
        self._order += 1
        heapq.heappush(self._queue, (time_ns, self._order, what))

    def run_until(self, end_ns: int) -> None:
        """Do everything that is due."""
        while self._queue and self._queue[0][0] <= end_ns:
            self.now_ns, _, what = heapq.heappop(self._queue)
            what()
        self.now_ns = end_ns

    # Processes.

    def found(self, names: Iterable[int]) -> None:
        """The founders, all at once."""
        founders = [self._new_life(name) for name in names]
        view = founding_view(founders)
        for who in founders:
            process = self._start(who)
            self._carry_out(who, process.core.found(view, self.now_ns))

    def join(self, name: int, contacts: list[int]) -> None:
        """A process starts, or starts again, and asks to be taken in."""
        who = self._new_life(name)
        process = self._start(who)
        self._carry_out(who, process.core.join(contacts, self.now_ns))

    def stop(self, name: int) -> None:
        """The process of this name dies; what it has written is still there."""
        who = self.living.pop(name)
        self.processes[who].is_alive = False
        self._note(who, "stop", None)

    def stopped(self) -> list[int]:
        """The names of those who can be started again from their disks."""
        return sorted(name for name, disk in self._disks.items() if disk and name not in self.living)

    def restart(self, name: int) -> None:
        """A process goes on from its disk, in the same life."""
        durable = fold(self._disks[name])
        process = self._start(durable.me)
        self._note(durable.me, "resume", None)
        self._carry_out(durable.me, process.core.resume(durable, self.now_ns))
        if process.is_alive:
            self._note(durable.me, "resumed", None)

    def checkpoint(self, name: int) -> None:
        """The application of this name writes its state down."""
        process = self.processes[self.living[name]]
        if self.settings.is_durable and process.core.phase == MEMBER and process.core.is_ready:
            octets = json.dumps(process.log).encode()
            self._carry_out(process.core.me, process.core.checkpoint(octets, self.now_ns))

    def crash(self, name: int) -> None:
        """The process of this name dies, and its disk with it."""
        who = self.living.pop(name)
        self.processes[who].is_alive = False
        self._disks[name] = []
        self._note(who, "crash", None)

    def leave(self, name: int) -> None:
        """The process of this name is told to leave."""
        process = self.processes[self.living[name]]
        self._carry_out(process.core.me, process.core.leave(self.now_ns))

    def multicast(self, name: int) -> None:
        """The process of this name multicasts one message, if it is there and may."""
        process = self.processes[self.living[name]] if name in self.living else None
        if process is None or process.is_out or process.core.leaving:
            return
        self._payload += 1
        place = len(self.history)
        self._note(process.core.me, "multicast", self._payload)
        if not self._carry_out(process.core.me, process.core.multicast(self._payload, self.now_ns)):
            del self.history[place]  # it was torn before it was written

    def _new_life(self, name: int) -> MemberId:
        self._lives[name] = self._lives.get(name, 0) + 1
        self._disks[name] = []
        return MemberId(name, self._lives[name])

    def _start(self, who: MemberId) -> Process:
        process = Process(self._make(who, self.settings))
        self.processes[who] = process
        self.living[who.name] = who
        self.at(self.now_ns + self.random.randrange(self.settings.tick_ns), lambda: self._tick(process))
        return process

    def _tick(self, process: Process) -> None:
        if process.is_alive and process.core.phase != OUT:
            lingered = process.core.phase == LINGER
            self._carry_out(process.core.me, process.core.on_timer(self.now_ns))
            self.at(self.now_ns + self.settings.tick_ns, lambda: self._tick(process))
            if lingered:
                self._note_goodbye(process)

    def _note_goodbye(self, process: Process) -> None:
        if process.is_alive and process.core.phase == OUT:
            view = process.core.view.number
            told = tuple(one for one in self.in_group() if one.core.phase == MEMBER and one.core.view.number == view)
            self.goodbyes.append(Goodbye(self.now_ns, process.core.me, view, told))

    # The network.

    def divide(self, components: list[list[int]]) -> None:
        """Names of different components do not hear each other."""
        self._component = {name: place for place, names in enumerate(components) for name in names}

    def cut(self, one: int, other: int) -> None:
        """What `one` sends does not reach `other`."""
        self._cut.add((one, other))

    def mend(self, links: Iterable[tuple[int, int]]) -> None:
        """What was cut between these passes again."""
        self._cut.difference_update(links)

    def heal(self) -> None:
        """Everybody hears everybody."""
        self._component = {}
        self._cut = set()

    def calm(self) -> None:
        """All faults of the network end."""
        self.heal()
        self.weather = Weather()

    def _passes(self, source: MemberId, to: MemberId) -> bool:
        if self._cut and (source.name, to.name) in self._cut:
            return False
        return not self._component or self._component.get(source.name, 0) == self._component.get(to.name, 0)

    def _send(self, source: MemberId, action: Send, late_ms: float = 0.0) -> None:
        self.messages += 1
        to = action.to
        weather = self.weather
        draw = self.random.random
        if type(action.message) is Decide:
            self.decided[action.message.proposal.view.number] = action.message.proposal.view
        if not self._passes(source, to) or draw() < weather.loss:
            self.lost_ns[source, to] = self.now_ns
            return
        for _ in range(2 if weather.double and draw() < weather.double else 1):
            low, high = weather.delay_ms
            delay_ms = low + draw() * (high - low) + late_ms
            if weather.stale and draw() < weather.stale:
                delay_ms += draw() * weather.stale_ms
            self.at(self.now_ns + round(delay_ms * MS), partial(self._arrive, source, to, action.message))

    def _arrive(self, source: MemberId, to: MemberId, message: Any) -> None:
        if self._passes(source, to):
            self._hand_over(source, to, message)
        else:
            self.lost_ns[source, to] = self.now_ns

    def _hand_over(self, source: MemberId, to: MemberId, message: Any) -> None:
        if to.incarnation == ANY_LIFE:
            to = self.living.get(to.name, to)
        process = self.processes.get(to)
        if process is not None and process.is_alive:
            self._carry_out(to, process.core.receive(source, message, self.now_ns))

    # The application.

    def _note(self, who: MemberId, event: str, data: Any) -> None:
        self.history.append(Row(self.now_ns, who, event, data))

    def _carry_out(self, who: MemberId, actions: list[Action]) -> bool:
        """Do all of it, unless the process crashes in the midst; False when it does so before anything is done."""
        process = self.processes[who]
        for place, action in enumerate(actions):
            if process.fuse:
                process.fuse -= 1
                if not process.fuse and process.is_alive:
                    self.stop(who.name)
            if not process.is_alive:
                return place > 0
            if isinstance(action, Send):
                self._send(who, action)
            elif isinstance(action, Persist):
                if not self._write(who.name, action.records):
                    return False
            else:
                self._tell(process, action)
        return True

    def _write(self, name: int, records: tuple[Record, ...]) -> bool:
        """To the disk; False when it is torn."""
        if isinstance(records[0], Whole) and self.random.random() < 0.5:
            self._disks[name] = []  # what was written before may be deleted, or not
        self._disks[name] += records
        return True

    def _tell(self, process: Process, action: Action) -> None:
        who = process.core.me
        if isinstance(action, Deliver):
            process.log.append(action.payload)  # type: ignore[arg-type]
            self._note(who, "deliver", (action.view, action.sender, action.number, action.payload))
        elif isinstance(action, Sent):
            self._note(who, "sent", (action.view, action.number, action.payload))
        elif isinstance(action, Install):
            self._note(who, "install", action.view)
            self.pauses_ns.append(action.pause_ns)
        elif isinstance(action, WantSnapshot):
            process.core.give_snapshot(action.view, json.dumps(process.log).encode())
        elif isinstance(action, Restore):
            process.log = json.loads(action.octets)
            self._note(who, "restore", tuple(process.log))
        elif isinstance(action, Stable):
            self._note(who, "stable", (action.view, action.delivered))
        elif isinstance(action, Blocked | Unblocked):
            self._note(who, "blocked" if isinstance(action, Blocked) else "unblocked", action.view)
        elif isinstance(action, Left | Excluded):
            self._end(process, action)

    def _end(self, process: Process, action: Left | Excluded) -> None:
        """A process that left is gone; one that was excluded comes back in a new life after a while."""
        process.is_out = True
        who = process.core.me
        if isinstance(action, Left):
            self._note(who, "left", None)
            if self.living.get(who.name) == who:
                del self.living[who.name]
                self._disks[who.name] = []
            return
        self._note(who, "excluded", (action.returned, action.certain))
        if self.rejoin_ms and not process.core.leaving:
            wait_ns = round(self.random.random() * self.rejoin_ms * MS)
            self.at(self.now_ns + wait_ns, lambda: self.come_back(who))

    def come_back(self, who: MemberId) -> None:
        """Start a process again that is still there; not when it wanted to leave."""
        if self.living.get(who.name) == who:
            self.crash(who.name)
            others = [name for name in self._lives if name != who.name]
            if others and not self.processes[who].core.leaving:
                self.random.shuffle(others)
                self.join(who.name, others)

    def in_group(self) -> list[Process]:
        """Everybody who is alive and wants to be in the group."""
        return [self.processes[who] for who in self.living.values() if self.processes[who].is_in_group]

    def is_settled(self) -> bool:
        """Are all who want to be in the group in the same view, with the same log, and is nothing left to do?"""
        present = self.in_group()
        cores = [process.core for process in present]
        if not cores or any(core.phase != MEMBER or not core.is_ready or core.pending for core in cores):
            return False
        if any(core.is_blocked or core.acceptor.is_frozen or core.leaving for core in cores):
            return False
        first = cores[0]
        return (
            all(core.view == first.view for core in cores)
            and set(first.view.members) == {core.me for core in cores}
            and all(core.frontier == first.frontier == tuple(core.channel.stable) for core in cores)
        )
