"""The protocols by name. A new one is one file and one entry here (outside the package: one call of `add_protocol`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from cubecast.core import dispatch
from cubecast.core.broadcast import nak, silent
from cubecast.core.group import Group
from cubecast.core.overlays import hypercube
from cubecast.core.stability import coord, cube_full_dist, full_dist, s_coord
from cubecast.errors import LocalProtocolError


@dataclass(frozen=True, kw_only=True)
class Setup:
    """What a protocol needs to know before it starts."""

    members: int
    senders: int
    delta_ns: int
    repeat_ns: int
    """0 in a reliable FIFO network; otherwise how long to wait before repeating what was not answered."""
    tree_degree: int
    seed: int


@dataclass(frozen=True, kw_only=True)
class Protocol:
    """A protocol as the command line, the simulator and the live runtime find it."""

    name: str
    title: str
    family: str
    paper: str
    summary: str
    state: type
    handlers: ModuleType | Any
    """The module (or any object) with start, receive, on_timer, on_leave."""
    build: Callable[[Group, Setup], Any]
    numbers: Callable[[Setup], int] = field(default=lambda setup: setup.senders)
    """How many numbers its messages carry at most."""


_PROTOCOLS: dict[str, Protocol] = {}


def add_protocol(protocol: Protocol) -> None:
    """Make a protocol known by its name; an existing one of that name is replaced."""
    dispatch.register(protocol.state, protocol.handlers)
    _PROTOCOLS[protocol.name] = protocol


def protocol_named(name: str) -> Protocol:
    """The protocol of that name; `full-dist` and `FULL_DIST` mean `full_dist`."""
    found = _PROTOCOLS.get(name.lower().replace("-", "_"))
    if found is None:
        raise LocalProtocolError(f"unknown protocol {name!r}: choose one of {', '.join(_PROTOCOLS)}")
    return found


def protocols(family: str | None = None) -> list[Protocol]:
    """All protocols, or those of one family, in the order in which they were added."""
    found = [protocol for protocol in _PROTOCOLS.values() if family in (None, protocol.family)]
    if not found:
        families = sorted({protocol.family for protocol in _PROTOCOLS.values()})
        raise LocalProtocolError(f"unknown family {family!r}: choose one of {', '.join(families)}")
    return found


def paper_tree_degree(members: int) -> int:
    """⌈log2 n⌉ children an inner member (cube §4.1), at least two so that it is a tree."""
    return max(2, math.ceil(math.log2(members)))


def _build_coord(group: Group, setup: Setup) -> coord.CoordState:
    return coord.new_state(group, delta_ns=setup.delta_ns, repeat_ns=setup.repeat_ns)


def _build_full_dist(group: Group, setup: Setup) -> full_dist.FullDistState:
    return full_dist.new_state(group, members=setup.members, delta_ns=setup.delta_ns, repeat_ns=setup.repeat_ns)


def _build_s_coord(group: Group, setup: Setup) -> s_coord.SCoordState:
    return s_coord.new_state(
        group,
        members=setup.members,
        degree=setup.tree_degree,
        delta_ns=setup.delta_ns,
        repeat_ns=setup.repeat_ns,
    )


def _build_cube_full_dist(group: Group, setup: Setup) -> cube_full_dist.CubeFullDistState:
    return cube_full_dist.new_state(
        group,
        hypercube(setup.members),
        members=setup.members,
        delta_ns=setup.delta_ns,
        repeat_ns=setup.repeat_ns,
    )


dispatch.register(silent.SilentState, silent)
dispatch.register(nak.NakState, nak)

add_protocol(
    Protocol(
        name="coord",
        title="Coord",
        family="stability",
        paper="cube §2.1, guo §4.2.1",
        summary="one coordinator collects every R and multicasts the minimum",
        state=coord.CoordState,
        handlers=coord,
        build=_build_coord,
    )
)
add_protocol(
    Protocol(
        name="full_dist",
        title="FullDist",
        family="stability",
        paper="cube §2.2, guo §4.2.2",
        summary="every member multicasts its R to every member",
        state=full_dist.FullDistState,
        handlers=full_dist,
        build=_build_full_dist,
    )
)
add_protocol(
    Protocol(
        name="s_coord",
        title="S_Coord",
        family="stability",
        paper="cube §2.3, guo §5.2",
        summary="minima climb a tree, the root multicasts the result",
        state=s_coord.SCoordState,
        handlers=s_coord,
        build=_build_s_coord,
    )
)
add_protocol(
    Protocol(
        name="cube_full_dist",
        title="CubeFullDist",
        family="stability",
        paper="cube §3.2",
        summary="minima spread between hypercube neighbours, iteration by iteration",
        state=cube_full_dist.CubeFullDistState,
        handlers=cube_full_dist,
        build=_build_cube_full_dist,
    )
)
