"""Compile what a live member calls, once, so that members started later begin at once."""

from __future__ import annotations

from cubecast.live.cores import Cores
from cubecast.live.settings import MESH_MEMBERS_MAX, Settings
from cubecast.wire import data

MEMBER = "live member"
MEMBERS = (4, MESH_MEMBERS_MAX + 1)
"""A small group and a larger one: messages travel differently."""


def states() -> set[type]:
    """The classes of the states of a member's cores."""
    stacks = [Cores(Settings(), members, 0) for members in MEMBERS]
    return {type(core.state) for cores in stacks for core in (cores.data, cores.stability, cores.failure)}


def compile_piece(name: str) -> None:
    """Compile the only piece there is: a member."""
    assert name == MEMBER, name
    warm()


def warm() -> None:
    """Call every compiled function of a member once."""
    for members in MEMBERS:
        call_all(Cores(Settings(), members, 0), members)


def call_all(cores: Cores, members: int) -> None:
    """Call what a member calls, with nobody listening."""
    cores.stability.start(0)
    cores.failure.start(0)
    cores.data.start(0)
    cores.data.publish(0, 1)
    numbers = cores.data.stamp_numbers
    body = data.encode_record(0, 1, 1, b"warm", bytes(4 * numbers))
    table = data.new_table()
    count = data.decode_batch(body, table, data.Form(members, numbers, cores.data.own_numbers, 1 << 20))
    cores.data.receive(0, 1, body, table, 0, count)
    cores.remove(1)
    cores.data.leave(0, 1)
