"""Changes at random times: lifecycle, load and faults. The target of each is drawn when it happens."""

from __future__ import annotations

from collections.abc import Callable

from cubecast.fuzz.agenda import MS
from cubecast.fuzz.process import Process
from cubecast.fuzz.world import MACHINES_MAX, FuzzWorld, Machine


def _one(world: FuzzWorld) -> Process | None:
    living = world.living()
    return world.draw.choice(living) if living else None


def _restart_later(world: FuzzWorld, process: Process, chance: float = 0.8) -> None:
    draw = world.draw
    if draw.random() < chance:
        wait_ms = draw.choice([0.1, 20, 60, 250]) * draw.random()
        world.agenda.after(round(wait_ms * MS), world.restart, process)


def burst(world: FuzzWorld) -> None:
    """A process multicasts a few messages."""
    process = _one(world)
    if process is not None:
        process.post(process.multicast, world.draw.choice([1, 1, 2, 5, 12]))


def talk(world: FuzzWorld) -> None:
    """Several processes multicast at the same time, so that they deliver in different orders."""
    for process in world.living():
        if world.draw.random() < 0.6:
            process.post(process.multicast, 1)


def kill(world: FuzzWorld) -> None:
    """A process is killed, at once or during its next step."""
    process = _one(world)
    if process is None:
        return
    draw = world.draw
    is_power = world.plan.is_durable and draw.random() < 0.3
    if draw.random() < 0.4:
        process.die("kill", is_power)
    else:
        process.fuse = draw.choice([1, 2, 3, draw.randint(1, 40)])
        process.fuse_is_power = is_power
    _restart_later(world, process)


def kill_and_erase(world: FuzzWorld) -> None:
    """A process is killed and starts again with an empty disk."""
    process = _one(world)
    if process is None:
        return
    process.die("kill", False)
    process.machine.disk.erase()
    _restart_later(world, process)


def kill_all(world: FuzzWorld) -> None:
    """All processes are killed at about the same time."""
    is_power = world.plan.is_durable and world.draw.random() < 0.5
    for process in world.living():
        if world.draw.random() < 0.3:
            process.fuse = world.draw.randint(1, 6)
            process.fuse_is_power = is_power
        else:
            process.die("kill", is_power)
        _restart_later(world, process, 1.0)


def intrude(world: FuzzWorld) -> None:
    """A process is killed, and a stranger listens at its address for a while."""
    process = _one(world)
    if process is not None and world.plan.has_certificates:
        process.die("kill", False)
        world.intrude(process.machine)
        wait_ms = world.draw.choice([20, 300]) * world.draw.random()
        world.agenda.after(round(wait_ms * MS), world.restart, process)


def end(world: FuzzWorld) -> None:
    """A process ends without leaving, and starts again."""
    process = _one(world)
    if process is not None:
        process.end()
        _restart_later(world, process)


def stop(world: FuzzWorld) -> None:
    """SIGSTOP for a while, often longer than the suspicion time."""
    process = _one(world)
    if process is not None:
        process.stop(round(world.draw.choice([30, 150, 400]) * world.draw.random() * MS))


def join(world: FuzzWorld) -> None:
    """A new machine joins."""
    number = len(world.machines)
    if number < MACHINES_MAX:
        world.start(world.machine(number))


def leave(world: FuzzWorld) -> None:
    """A process leaves."""
    process = _one(world)
    if process is not None and len(world.living()) > 1:
        process.post(process.leave)


def leave_together(world: FuzzWorld) -> None:
    """Several leave, but not all."""
    for process in world.living()[1:]:
        if world.draw.random() < 0.6:
            process.post(process.leave)


def come_back(world: FuzzWorld) -> None:
    """A machine that left, or is down, joins again."""
    idle = [machine for _, machine in sorted(world.machines.items()) if machine.process is None]
    if idle:
        machine: Machine = world.draw.choice(idle)
        machine.is_wanted = True
        world.start(machine)


def divide(world: FuzzWorld) -> None:
    """A partition; it ends by itself, or with all faults."""
    draw = world.draw
    names = sorted(world.machines)
    draw.shuffle(names)
    place = draw.randint(1, max(len(names) - 1, 1))
    links = [(one, two) for one in names[:place] for two in names[place:]]
    links += [(two, one) for one, two in links]
    _cut_for_a_while(world, links)


def cut(world: FuzzWorld) -> None:
    """Cut one direction between two machines."""
    if len(world.machines) > 1:
        one, other = world.draw.sample(sorted(world.machines), 2)
        _cut_for_a_while(world, [(one, other)])


def _cut_for_a_while(world: FuzzWorld, links: list[tuple[str, str]]) -> None:
    draw = world.draw
    world.network.cut(links)
    if draw.random() < 0.7:
        world.agenda.after(round(draw.choice([20, 100, 300]) * draw.random() * MS), world.network.mend, links)


def heal(world: FuzzWorld) -> None:
    """All cuts end."""
    world.network.mend(set(world.network.cuts))


def slow_link(world: FuzzWorld) -> None:
    """One direction becomes slow."""
    if len(world.machines) > 1:
        one, other = world.draw.sample(sorted(world.machines), 2)
        world.network.slow[one, other] = world.draw.choice([5.0, 30.0, 120.0])


def reset(world: FuzzWorld) -> None:
    """Some connections are reset."""
    share = world.draw.choice([0.2, 0.5, 1.0])
    for connection in list(world.network.connections):
        if world.draw.random() < share:
            world.network.reset(connection)


def disk_full(world: FuzzWorld) -> None:
    """A disk has little room left."""
    process = _one(world)
    if process is not None:
        process.machine.disk.room = world.draw.randint(0, 2000)
        world.agenda.after(150 * MS, world.restart, process)


def sync_hangs(world: FuzzWorld) -> None:
    """A sync does not return until the process is killed."""
    process = _one(world)
    if process is None:
        return
    process.machine.sync_hangs = True
    if world.draw.random() < 0.7:
        world.agenda.after(world.draw.randint(20, 200) * MS, _kill_hanging, world, process)


def _kill_hanging(world: FuzzWorld, process: Process) -> None:
    process.die("hangs", world.draw.random() < 0.5)
    _restart_later(world, process)


def sync_fails(world: FuzzWorld) -> None:
    """A sync fails: the process ends."""
    process = _one(world)
    if process is not None:
        process.machine.sync_fails = True
        world.agenda.after(100 * MS, world.restart, process)


def decay(world: FuzzWorld) -> None:
    """A journal is corrupted, and its process is killed and started again."""
    process = _one(world)
    if process is not None:
        process.die("kill", False)
        process.machine.disk.decay()
        _restart_later(world, process)


def checkpoint(world: FuzzWorld) -> None:
    """A process makes a checkpoint."""
    process = _one(world)
    if process is not None and process.member.view is not None and process.member.is_ready:
        process.checkpoint()


Change = Callable[[FuzzWorld], None]
ANY: dict[Change, int] = {
    kill: 4,
    kill_and_erase: 1,
    kill_all: 1,
    end: 1,
    intrude: 3,
    stop: 3,
    join: 3,
    leave: 2,
    leave_together: 1,
    come_back: 2,
    divide: 3,
    cut: 2,
    heal: 1,
    slow_link: 1,
    reset: 3,
}
DURABLE: dict[Change, int] = {
    **ANY,
    kill: 6,
    kill_all: 3,
    disk_full: 1,
    sync_hangs: 1,
    sync_fails: 1,
    decay: 1,
    checkpoint: 3,
}
AT_FAULT_POINTS: dict[Change, int] = {join: 3, leave: 2, leave_together: 1, kill: 1, come_back: 1, reset: 1}
"""Changes at random times in histories with fault points."""
