"""A coordinator that crashes, is cut off or becomes slow at any point of a change of the view.

The change is one join, asked for while everybody multicasts over lossy links. The k-th message that the coordinator
sends to agree on the view, PREPARE to DECIDE, is the point: there it crashes, nobody hears it for a while, or whatever
it sends comes late.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from cubecast.core.membership import MembershipSettings
from cubecast.core.membership.messages import Accept, Accepted, Decide, Flush, Prepare, Refusal, Send, State
from cubecast.core.membership.views import MemberId
from cubecast.sim.churn.promises import Judge
from cubecast.sim.churn.random_histories import SETTLE_NS, is_lost
from cubecast.sim.churn.world import MS, Weather, World

MEMBERS = 4
POINTS = range(1, 18)
KINDS = ("crash", "cut off", "slow")
HEALED_NS = 1500 * MS


class Interrupted(World):
    """A world in which rank 0 is interrupted at its k-th message of a change."""

    def __init__(self, seed: int, kind: str, point: int) -> None:
        """Members with the usual settings."""
        settings = MembershipSettings(chunk_bytes=16)
        super().__init__(seed, settings, Weather(loss=0.1, delay_ms=(0.2, 8.0)))
        self.kind = kind
        self.point = point
        self.said = 0

    def _send(self, source: MemberId, action: Send, late_ms: float = 0.0) -> None:
        if source == (0, 1):
            if isinstance(action.message, Prepare | Flush | Accept | Decide):
                self.said += 1
                if self.said == self.point:
                    self._interrupt()
            if self.kind == "slow" and self.said >= self.point:
                late_ms = self.random.random() * 700
        if self.processes[source].is_alive:
            super()._send(source, action, late_ms)

    def _interrupt(self) -> None:
        if self.kind == "crash":
            self.crash(0)
        elif self.kind == "cut off":
            self.divide([list(range(1, 16)), [0]])


def run_interrupted(seed: int, kind: str, point: int) -> tuple[str, ...]:
    """What was broken."""
    world = Interrupted(seed, kind, point)
    world.found(range(MEMBERS))
    for burst in range(12):
        name = world.random.randrange(MEMBERS)
        world.at((40 + 8 * burst) * MS, partial(world.multicast, name))
    world.at(60 * MS, lambda: world.join(MEMBERS, [1, 2, 3]))
    world.run_until(HEALED_NS)
    world.heal()
    world.weather = Weather()
    began_ns = world.now_ns
    while not world.is_settled() and world.now_ns - began_ns < SETTLE_NS:
        world.run_until(world.now_ns + world.settings.tick_ns)
    judge = Judge()
    judge.read(world.history)
    if not world.is_settled() and not is_lost(world):
        judge.broken.append("progress: the group has not settled")
    judge.judge_end(world.history, [process.core.me for process in world.in_group()])
    return tuple(judge.broken)


class Adversary(World):
    """A world in which a test decides which messages pass: `passes` lets one go, keeps it in `held`, or drops it."""

    def __init__(self) -> None:
        """Nothing is held."""
        super().__init__(0, MembershipSettings(is_durable=True), Weather(delay_ms=(1.0, 1.0)))
        self.held: list[tuple[MemberId, Send]] = []
        self.hold: Callable[[MemberId, Send], bool] = lambda source, action: False
        self.drop: Callable[[MemberId, Send], bool] = lambda source, action: False

    def _send(self, source: MemberId, action: Send, late_ms: float = 0.0) -> None:
        if self.hold(source, action):
            self.held.append((source, action))
        elif not self.drop(source, action):
            super()._send(source, action, late_ms)

    def release(self) -> None:
        """Let go what is held."""
        held, self.held = self.held, []
        for source, action in held:
            super()._send(source, action)

    def run_while(self, is_so: Callable[[], bool]) -> None:
        """Until something happens, for at most ten seconds."""
        end_ns = self.now_ns + 10_000 * MS
        while is_so():
            assert self.now_ns < end_ns, "it does not happen"
            self.run_until(self.now_ns + MS)


def run_old_ballot(_seed: int = 0, *, restarts: bool = False) -> tuple[str, ...]:
    """ACCEPT of a coordinator that was given up arrives when others have decided: it must be refused.

    Member 0 is about to have a newcomer accepted when it is cut off. The other two decide to go on without it, and one
    of them does not hear of that decision, and may be started again; then it gets the old ACCEPT, and its answer
    reaches member 0.
    """
    world = Adversary()
    world.found(range(3))
    world.run_until(50 * MS)
    world.hold = lambda source, action: source.name == 0 and isinstance(action.message, Accept)
    world.join(5, [0])
    world.run_while(lambda: not world.held)
    cut_off = {0, 5}
    world.hold = lambda source, action: False
    world.drop = lambda source, action: (
        isinstance(action.message, Decide) or (source.name in cut_off) != (action.to.name in cut_off)
    )
    cores = {who.name: process.core for who, process in world.processes.items()}
    world.run_while(lambda: all(cores[name].view.number == 1 for name in (1, 2)))
    behind = min((1, 2), key=lambda name: cores[name].view.number)
    world.held = [held for held in world.held if held[1].to.name == behind]
    world.drop = lambda source, action: not isinstance(action.message, Accepted | Refusal)
    if restarts:
        world.stop(behind)
        world.restart(behind)
    world.release()
    world.run_until(world.now_ns + 10 * MS)
    judge = Judge()
    judge.read(world.history)
    return tuple(judge.broken)


def run_forgotten_proposal(_seed: int = 0) -> tuple[str, ...]:
    """A member accepts a proposal, is started again, and is asked by the next coordinator what it accepted.

    Member 0 decides with the word of member 1, and nobody hears of the decision: 0 is cut off. Member 1 goes on from
    its disk. What it decides with member 2 must be the same view.
    """
    world = Adversary()
    world.found(range(3))
    world.run_until(50 * MS)
    first = world.processes[MemberId(0, 1)].core
    world.drop = lambda source, action: (
        isinstance(action.message, Decide) or (isinstance(action.message, Accept) and action.to.name == 2)
    )
    world.join(5, [0])
    world.run_while(lambda: first.view.number == 1)
    world.drop = lambda source, action: (source.name in (0, 5)) != (action.to.name in (0, 5))
    world.stop(1)
    world.restart(1)
    world.run_until(world.now_ns + 2000 * MS)
    judge = Judge()
    judge.read(world.history)
    views = {process.core.view.number for process in world.in_group() if process.core.me.name in (1, 2)}
    return (*judge.broken, *(() if views == {2} else ("progress: the others do not go on",)))


def run_restart_when_out(_seed: int = 0) -> tuple[str, ...]:
    """A member that was excluded is started again from its disk: it is still out."""
    world = Adversary()
    world.rejoin_ms = 0
    world.found(range(3))
    world.divide([[0, 1], [2]])
    world.run_until(1000 * MS)
    world.heal()
    excluded = world.processes[MemberId(2, 1)]
    world.run_while(lambda: not excluded.is_out)
    world.stop(2)
    world.restart(2)
    world.run_until(world.now_ns + 1000 * MS)
    judge = Judge()
    judge.read(world.history)
    return tuple(judge.broken)


def run_lost_decision(_seed: int = 0) -> tuple[str, ...]:
    """Two of three leave, and the one that stays does not hear of the decision at first.

    It is too few to find out by itself: those who left must tell it again.
    """
    world = Adversary()
    world.found(range(3))
    world.run_until(50 * MS)
    decided: list[int] = []

    def is_early_decision(_source: MemberId, action: Send) -> bool:
        if not isinstance(action.message, Decide) or action.to.name != 2:
            return False
        decided.append(world.now_ns)
        return world.now_ns < decided[0] + 30 * MS

    world.drop = is_early_decision
    world.leave(0)
    world.leave(1)
    world.run_until(world.now_ns + 3000 * MS)
    stays = world.processes[MemberId(2, 1)].core
    return () if stays.view.members == (stays.me,) else ("progress: the member that stays is alone in the old view",)


def run_late_holder(_seed: int = 0) -> tuple[str, ...]:
    """Member 6 joins while member 5 still fetches the state; then the others leave, and 5 is the only one to ask."""
    world = Adversary()
    world.found(range(2))
    world.multicast(0)
    world.run_until(50 * MS)
    world.drop = lambda source, action: isinstance(action.message, State)
    world.join(5, [0])
    world.run_until(world.now_ns + 200 * MS)
    world.join(6, [0])
    world.run_until(world.now_ns + 200 * MS)
    world.drop = lambda source, action: isinstance(action.message, State) and action.to.name == 6
    late = world.processes[MemberId(5, 1)].core
    world.run_while(lambda: not late.is_ready)
    world.leave(0)
    world.leave(1)
    world.run_until(world.now_ns + 2000 * MS)
    world.drop = lambda source, action: False
    world.run_until(world.now_ns + 2000 * MS)
    judge = Judge()
    judge.read(world.history)
    return (*judge.broken, *(() if world.is_settled() else ("progress: the last one never gets the state",)))


def run_state_after_promise(_seed: int = 0) -> tuple[str, ...]:
    """A newcomer gets the state when the one who sent it has crashed, and it began to go on without it and the state.

    It promised to itself without the state; that it has the state now must count, for there is nobody else.
    """
    world = Adversary()
    world.found(range(2))
    world.multicast(0)
    world.run_until(50 * MS)
    world.hold = lambda source, action: isinstance(action.message, State)
    world.leave(0)
    world.join(5, [1])
    world.run_while(lambda: not world.held)
    newcomer = world.processes[MemberId(5, 1)].core
    assert [who.name for who in newcomer.view.members] == [5, 1], "the newcomer has the rank of the one who left"
    world.crash(1)
    world.run_while(lambda: newcomer.proposer is None)
    world.release()
    world.run_until(world.now_ns + 2000 * MS)
    judge = Judge()
    judge.read(world.history)
    return (*judge.broken, *(() if world.is_settled() else ("progress: the newcomer does not go on alone",)))


def run_holder_dies(_seed: int = 0) -> tuple[str, ...]:
    """The member that hands the state to a newcomer dies in the midst of it; another one has it in another order."""
    world = World(0, MembershipSettings(chunk_bytes=4), Weather(delay_ms=(1.0, 1.0)))
    world.found(range(3))
    for name in (2, 1, 0):
        for _ in range(5):
            world.multicast(name)
    world.run_until(100 * MS)
    logs = {tuple(process.log) for process in world.processes.values()}
    assert len(logs) == 3, "each has delivered its own messages first"
    world.join(7, [1])
    newcomer = world.processes[MemberId(7, 1)].core
    while newcomer._fetch is None or len(newcomer._fetch.pieces) < 3:
        world.run_until(world.now_ns + MS)
    world.crash(0)
    world.run_until(world.now_ns + 2000 * MS)
    judge = Judge()
    judge.read(world.history)
    return tuple(judge.broken) if newcomer.is_ready else ("progress: the newcomer never gets the state",)
