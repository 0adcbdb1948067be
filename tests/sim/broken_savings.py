"""The savings of guo ch. 7, each broken on purpose; prints which checkers noticed.

Run with `CUBECAST_JIT=off`: what the kernel calls are then plain functions, and breaking one is an assignment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy as np

from cubecast.jit.backend import COMPILED
from cubecast.protocol import rank_sets
from cubecast.protocol.mail import PAYLOAD, draft
from cubecast.sim import kernel, piggyback
from cubecast.sim.build import build_simulation
from cubecast.sim.scenario import Scenario
from tests.sim.broken_stability import broken, noticed
from tests.sim.runs import network_of

SMALL: dict[str, Any] = {"members": 6, "network": "random:degree=3", "seed": 2, "rounds": 2, "until_ms": 2_000.0}
SENDING = SMALL | {"messages": 12, "rate": 300.0}


def _taken_for_received(world: Any, group: Any, mail: Any, slot: int, member: int) -> None:
    for entry in range(group.stable.shape[1]):
        if rank_sets.contains(world.left_out[slot], entry):
            mail.numbers[slot, entry] = 1_000


def changed_only() -> Iterator[tuple[str, list[str]]]:
    """What a message leaves out is read wrongly."""
    wanted = Scenario(protocol="coord", changed_only=True, **SMALL)
    yield "nothing left out", noticed(wanted)
    with broken(kernel, "fill_in_unchanged", _taken_for_received):
        yield "what is left out is taken for received", noticed(wanted)


def piggybacked_on_data() -> Iterator[tuple[str, list[str]]]:
    """Control messages inside data messages are not read, or wait for ever."""
    wanted = Scenario(protocol="coord", piggyback_control=True, **SENDING)
    yield "nothing is piggybacked wrongly", noticed(wanted)
    with broken(kernel, "next_piggybacked_for", lambda world, slot, member: 0):
        yield "piggyback are not read", noticed(wanted)
    full = Scenario(protocol="coord", piggyback_control=True, buffer_messages=1, **SENDING)
    yield "full buffers", noticed(full)
    with broken(kernel, "transmit_pending", lambda *_: None):
        yield "nobody flushes", noticed(full)


def order_of_piggybacked() -> list[int]:
    """The rounds of three control messages for member 4, as it reads them; one more is for member 5 alone."""
    simulation = build_simulation(*_sending(), tracing=False)
    world, metrics, mail = simulation.world, simulation.metrics, simulation.mail
    for number, to in ((1, 4), (2, 5), (3, piggyback.EVERYONE), (4, 4)):
        slot = draft(mail, 0, number, 36)
        assert piggyback.hold_for_data(world, metrics, mail, slot, 0, to, 0)
    data = draft(mail, PAYLOAD, 0, 132)
    piggyback.take_piggyback(world, metrics, mail, data, 0)
    assert mail.heads[data].size_bytes == 132 + 4 * 4
    read, slot = [], data
    while (slot := int(piggyback.next_piggybacked_for(world, slot, 4))) > 0:
        read.append(int(mail.heads[slot].round_number))
    return read


def _sending() -> tuple[Scenario, Any]:
    wanted = Scenario(protocol="coord", piggyback_control=True, **SENDING)
    return wanted, network_of(wanted)


def main() -> None:
    """Print a JSON object: what was broken, and which checkers noticed."""
    assert not COMPILED, "run this with CUBECAST_JIT=off"
    np.seterr(over="ignore")
    found: dict[str, list[Any]] = dict(
        one for experiment in (changed_only, piggybacked_on_data) for one in experiment()
    )
    print(json.dumps(found | {"piggyback in order": order_of_piggybacked()}))


if __name__ == "__main__":
    main()
