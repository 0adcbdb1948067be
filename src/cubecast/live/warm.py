"""Compile what a live member calls, once, so that members started later begin at once."""

from __future__ import annotations

from cubecast.live.cores import Cores
from cubecast.live.settings import Settings
from cubecast.wire import data

MEMBER = "live member"


def states(settings: Settings | None = None) -> list[type]:
    """The classes of the states of a member's cores."""
    cores = Cores(settings or Settings(), 4, 0)
    return [type(core.state) for core in (cores.data, cores.stability, cores.failure)]


def compile_piece(name: str) -> None:
    """Compile the only piece there is: a member."""
    assert name == MEMBER, name
    warm()


def warm(settings: Settings | None = None) -> None:
    """Call every compiled function of a member once."""
    cores = Cores(settings or Settings(), 4, 0)
    cores.stability.start(0)
    cores.failure.start(0)
    cores.data.publish(0, 1)
    body = data.encode_record(0, 1, 1, b"warm")
    table = data.new_table()
    count = data.decode_batch(body, table, data.Form(4, 0, 4, 1 << 20))
    cores.data.receive(0, 1, body, table, 0, count)
    cores.remove(1)
    cores.data.leave(0, 1)
