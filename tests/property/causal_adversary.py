"""An adversary schedules a causal core, and a slow oracle that knows the whole history judges every delivery.

The adversary has one FIFO queue for every ordered pair of members, which loses nothing; it chooses any interleaving of
the queues, and timers fire at any moment after they are due. It may kill a member: an arbitrary prefix of each of its
queues still arrives, as for a killed process.
Each survivor learns of a crash at its own time, and accepts nothing from the crashed member afterwards. A member may
also learn what is stable: it frees that, and can no longer send it.

`python -m tests.property.causal_adversary overlay 1000` plays this many random schedules and prints the seed of each
that breaks a promise.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable

from cubecast.protocol import mail as mailbox
from cubecast.protocol import rank_sets
from cubecast.protocols.catalogue import protocol_named
from tests.transcripts.exchange import Copy, Exchange

Move = tuple[str, int]
Message = tuple[int, int]
"""Sender and sequence number."""

MOVES = ("publish",) * 8 + ("arrive",) * 16 + ("wait",) * 4 + ("report",) * 3 + ("drain", "settle", "crash")
"""What the adversary may do next, the likely ones several times. Each takes a number, and makes of it what it can."""
NUMBERS = 1 << 30
WAIT_NS = 1 << 26
STEPS_MAX = 20_000
ROOM = 1 << 10


class BrokenPromiseError(AssertionError):
    """The core broke this promise."""


def require(holds: bool, promise: str) -> None:
    if not holds:
        raise BrokenPromiseError(promise)


class Oracle:
    """What happened, as it happened: who delivered what after what."""

    def __init__(self, members: int) -> None:
        self.delivered: list[list[Message]] = [[] for _ in range(members)]
        self.past: dict[Message, set[Message]] = {}

    def publish(self, rank: int) -> Message:
        """A member's next message happens after everything that member delivered."""
        message = (rank, 1 + sum(sender == rank for sender, _ in self.past))
        self.past[message] = set(self.delivered[rank])
        return message

    def deliver(self, rank: int, message: Message) -> None:
        before = set(self.delivered[rank])
        delivery = f"{rank} delivers {message[0]}.{message[1]}"
        require(message in self.past, f"{delivery}, which nobody sent")
        require(message not in before, f"{delivery} twice")
        require(message[1] == 1 or (message[0], message[1] - 1) in before, f"{delivery} with a gap before it")
        require(self.past[message] <= before, f"{delivery} before its causes {sorted(self.past[message] - before)}")
        self.delivered[rank].append(message)


class Adversary(Exchange):
    """A group of one causal core, scheduled by the adversary."""

    def __init__(self, protocol: str, *, members: int, senders: int, window: int = ROOM) -> None:
        super().__init__(protocol_named(protocol), members=members, senders=senders, room=ROOM, window=window)
        self.window = window
        self.oracle = Oracle(members)
        self.senders = senders
        self.live = list(range(members))
        self.unreported: list[tuple[int, int]] = []
        """Survivors, and the crashes not yet reported to them."""

    # What it may do.

    def play(self, moves: list[Move]) -> None:
        """Do all this, then let everything arrive, and judge."""
        self.start()
        for move, number in moves:
            getattr(self, f"let_{move}")(number)
        self.let_everything_arrive()
        self.judge_the_end()

    def let_publish(self, number: int) -> None:
        """A member multicasts, unless its window is full of messages that are not stable."""
        ready = [rank for rank in self.live if rank < self.senders]
        if not ready:
            return
        rank = ready[number % len(ready)]
        if self._unstable(rank) == self.window:
            self._settle(rank)
        if self._unstable(rank) < self.window:
            message = self.oracle.publish(rank)
            self.publish(rank)
            require(message in self.oracle.delivered[rank], f"{rank} does not deliver its own {message[1]} at once")

    def let_arrive(self, number: int) -> None:
        """The head of one of the queues arrives."""
        pairs = list(dict.fromkeys((copy.source, copy.to) for copy in self.under_way))
        if pairs:
            self.deliver(*pairs[number % len(pairs)])

    def let_drain(self, number: int) -> None:
        """All messages in transit to one member arrive."""
        self._drain(self.live[number % len(self.live)])

    def flow(self, source: int, to: int) -> None:
        """All messages in transit from one member to another arrive."""
        for _ in [copy for copy in self.under_way if (copy.source, copy.to) == (source, to)]:
            self.deliver(source, to)

    def let_wait(self, number: int) -> None:
        """Time passes, and some of the due timers fire: any of them may be late."""
        self.now_ns += number % WAIT_NS
        for alarm in sorted(alarm for alarm in self.alarms if alarm.time_ns <= self.now_ns):
            number = number * 0x5DEECE66D + 11 & NUMBERS - 1
            if number >> 20 & 3:
                self.alarms.remove(alarm)
                self.ring(alarm)

    def let_crash(self, number: int) -> None:
        """Kill a member; an arbitrary prefix of each of its queues survives."""
        if len(self.live) > 1:
            draw = random.Random(number)
            self.kill(self.live[number % len(self.live)], lambda waiting: draw.randint(0, waiting))

    def kill(self, dead: int, kept: Callable[[int], int] = lambda _waiting: 0) -> None:
        """Kill a member; `kept` says how many messages of each of its queues still arrive."""
        self.live.remove(dead)
        for to in self.live:
            queue = [copy for copy in self.under_way if (copy.source, copy.to) == (dead, to)]
            self._throw(queue[kept(len(queue)) :])
        self._throw([copy for copy in self.under_way if copy.to == dead])
        self.alarms = [alarm for alarm in self.alarms if alarm.rank != dead]
        self.unreported = [pair for pair in self.unreported if pair[0] != dead] + [(rank, dead) for rank in self.live]

    def let_report(self, number: int) -> None:
        """A survivor learns of a crash; messages in transit from the crashed member never arrive, or are not read."""
        if self.unreported:
            survivor, dead = self.unreported.pop(number % len(self.unreported))
            if number >> 10 & 1:
                self._throw([copy for copy in self.under_way if (copy.source, copy.to) == (dead, survivor)])
            self.leave(survivor, dead)

    def let_settle(self, number: int) -> None:
        """A member learns what every member it counts on has delivered, and frees it."""
        self._settle(self.live[number % len(self.live)])

    def _settle(self, rank: int) -> None:
        counted = [other for other in range(self.members) if rank_sets.contains(self.group.members[rank], other)]
        self.group.stable[rank] = self.group.received[counted].min(axis=0)

    def let_everything_arrive(self) -> None:
        """Nothing is lost any more, every crash is reported, every timer fires: it must end."""
        for _ in range(STEPS_MAX):
            if self.under_way:
                self._drain(self.under_way[0].to)
            elif self.unreported:
                self.let_report(0)
            elif self.alarms:
                self.pass_time(max(min(self.alarms).time_ns - self.now_ns, 0))
            else:
                return
        raise BrokenPromiseError("messages and timers never end")

    def describe(self, copy: Copy) -> str:
        return f"kind {copy.kind}, {copy.sender}.{copy.sequence} {copy.numbers}"

    # What must hold.

    def judge_the_end(self) -> None:
        """Survivors delivered the same, among it all that a survivor sent."""
        everything = set().union(*(self.oracle.delivered[rank] for rank in self.live))
        for rank in self.live:
            missing = sorted(everything - set(self.oracle.delivered[rank]))
            require(not missing, f"{rank} never delivers {missing}, which another survivor did")

    def _call(self, rank: int, what: int, a: int, b: int) -> None:
        super()._call(rank, what, a, b)
        counts = [0] * self.senders
        for sender, _ in self.oracle.delivered[rank]:
            counts[sender] += 1
        require(self.received()[rank] == counts, f"R of {rank} is {self.received()[rank]}, it delivered {counts}")

    def _carry_out(self, rank: int, what: int, slot: int, a: int, b: int, delay_ns: int) -> None:
        if what == mailbox.DELIVER:
            self.oracle.deliver(rank, (a, b))
        elif what in (mailbox.SEND, mailbox.MULTICAST):
            sender, sequence = int(self.mail.heads[slot].sender), int(self.mail.heads[slot].sequence)
            freed = sequence > 0 and sequence <= self.group.stable[rank, sender]
            require(not freed, f"{rank} sends {sender}.{sequence}, which it has freed")
        super()._carry_out(rank, what, slot, a, b, delay_ns)
        if what in (mailbox.SEND, mailbox.MULTICAST):
            self._throw([copy for copy in self.under_way if copy.to not in self.live])

    def _unstable(self, rank: int) -> int:
        return int(self.group.received[rank, rank] - self.group.stable[rank, rank])

    def _drain(self, to: int) -> None:
        for copy in [copy for copy in self.under_way if copy.to == to]:
            self.under_way.remove(copy)
            self.receive(copy)

    def _throw(self, copies: list[Copy]) -> None:
        thrown = {id(copy) for copy in copies}
        self.under_way = [copy for copy in self.under_way if id(copy) not in thrown]


def random_schedule(seed: int, *, moves: int = 200) -> tuple[int, int, list[Move]]:
    """Members, senders and moves, drawn from a seed."""
    draw = random.Random(seed)
    members = draw.randint(2, 9)
    senders = draw.randint(1, members)
    return members, senders, [(draw.choice(MOVES), draw.randrange(NUMBERS)) for _ in range(draw.randint(1, moves))]


def broken_promise(protocol: str, seed: int, window: int = ROOM) -> str:
    """What a random schedule makes the protocol break, if anything."""
    members, senders, moves = random_schedule(seed)
    try:
        Adversary(protocol, members=members, senders=senders, window=window).play(moves)
    except BrokenPromiseError as broken:
        return str(broken)
    return ""


def main(protocol: str, runs: int, begin: int = 0, window: int = ROOM) -> int:
    """Play them all; the exit status says whether one broke a promise."""
    began = time.perf_counter()
    broken = 0
    for seed in range(begin, begin + runs):
        violation = broken_promise(protocol, seed, window)
        broken += bool(violation)
        print(f"seed {seed}: {violation}" if violation else "", end="\n" if violation else "")
    print(f"{runs} schedules of {protocol}: {broken} broke a promise ({time.perf_counter() - began:.0f} s)")
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
