"""What may happen to a group at random: whom it hits is drawn when it happens."""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import partial

from cubecast.sim.churn.world import MS, World

MEMBERS_MAX = 16
CHANGES = ("crash", "crash", "join", "join", "leave", "return", "divide", "cut", "heal")
DURABLE = ("crash", "join", "join", "leave", "return", "divide", "cut", "heal", *("stop", "stop", "stop all") * 2)
"""What happens by the clock; only those who write down what they do can stop and go on."""
STRUCK = ("join", "join", "leave", "leave together", "crash", "return")
"""What happens by the clock where strokes do the rest."""


def happen(world: World, draw: random.Random, what: str, names: Iterator[int]) -> None:
    """One change or fault; `names` gives those of newcomers."""
    living = sorted(world.living)
    if what == "crash" and len(living) > 1:
        world.crash(draw.choice(living))
    elif what == "join":
        name = next(names, None)
        if name is not None and living:
            world.join(name, contacts_of(draw, living))
    elif what == "return" and living:
        dead = sorted({who.name for who in world.processes} - set(living))
        if dead:
            world.join(draw.choice(dead), contacts_of(draw, living))
    elif what == "leave" and len(living) > 1:
        world.leave(draw.choice(living))
    elif what == "leave together" and len(living) > 1:
        for name in draw.sample(living, draw.randint(1, len(living) - 1)):
            if name in world.living:
                world.leave(name)
    elif what.startswith("stop"):
        stop(world, draw, living if what == "stop all" else draw.sample(living, min(1, len(living))))
    elif what == "divide":
        everybody = list(range(MEMBERS_MAX))
        draw.shuffle(everybody)
        place = draw.randint(1, MEMBERS_MAX - 1)
        world.divide([everybody[:place], everybody[place:]])
    elif what == "cut" and len(living) > 1:
        world.cut(*draw.sample(living, 2))
    elif what == "heal":
        world.heal()


def stop(world: World, draw: random.Random, names: list[int]) -> None:
    """At once, or in the midst of what they do next, and perhaps with a torn record; most go on after a while."""
    for name in names:
        if draw.random() < 0.3:
            world.checkpoint(name)
        if name not in world.living:
            continue
        if draw.random() < 0.3:
            world.stop(name)
        else:
            world.processes[world.living[name]].fuse = draw.choice([1, 2, 3, draw.randint(1, 40)])
        if draw.random() < 0.7:
            world.at(world.now_ns + draw.randint(1, 300) * MS, partial(restart, world, name))


def contacts_of(draw: random.Random, living: list[int]) -> list[int]:
    """Those who live come first; the others may come back, and live when these do not."""
    return [*draw.sample(living, len(living)), *(name for name in range(MEMBERS_MAX) if name not in living)]


def burst(world: World, draw: random.Random) -> None:
    """Somebody multicasts a few messages."""
    if not world.living:
        return
    name = draw.choice(sorted(world.living))
    for _ in range(draw.choice([1, 1, 2, 5])):
        world.multicast(name)


def talk(world: World, draw: random.Random) -> None:
    """Some multicast a message each at the same time, so that they deliver them in different orders."""
    living = sorted(world.living)
    for name in draw.sample(living, draw.randint(0, len(living))):
        world.multicast(name)


def restart(world: World, name: int) -> None:
    """Go on from the disk, if it is still there and nobody did so yet."""
    if name in world.stopped():
        world.restart(name)
