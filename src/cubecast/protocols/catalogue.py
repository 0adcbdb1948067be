"""The protocols by name. A new one is one file and one entry here (outside the package: one call of `add_protocol`)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.protocol import handlers
from cubecast.protocol.group import Group
from cubecast.protocol.overlays import Overlay, hypercube, of_ranks
from cubecast.protocols.broadcast import plumtree, rasm
from cubecast.protocols.causal import (
    overlay,
    pc_overlay,
    stamped_tree,
    timestamp,
)
from cubecast.protocols.causal.eager_tree import BINOMIAL, STAR, tree_overlay
from cubecast.protocols.from_setup import from_setup
from cubecast.protocols.setup import Setup
from cubecast.protocols.stability import (
    coord,
    cube_full_dist,
    full_dist,
    gossip,
    s_coord,
    s_gossip,
    s_train,
    train,
)

GRAFT_NS = 10_000_000  # Plumtree: ten rounds of 1 ms, longer than any path of the rasm study's trees but the ring's


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
    joins: bool = False
    """Does it take newcomers in and let members go by itself, while messages flow?"""
    links: Literal["lossy", "reliable", "fifo"] = "lossy"
    """The least it asks of the network: anything, no loss, or no loss and no reordering."""

    @property
    def carries_data(self) -> bool:
        """Does it multicast the application's messages itself, rather than find out when they are stable?"""
        return self.family in ("causal", "broadcast")


_PROTOCOLS: dict[str, Protocol] = {}


def add_protocol(protocol: Protocol) -> None:
    """Make a protocol known by its name; an existing one of that name is replaced."""
    handlers.register(protocol.state, protocol.handlers)
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


LOCAL_GROUP = 50  # members of a local group of S_Gossip (guo §5.4)


def paper_tree_degree(members: int) -> int:
    """⌈log2 n⌉ children an inner member (cube §4.1), at least two so that it is a tree."""
    return max(2, math.ceil(math.log2(members)))


def _build_s_gossip(group: Group, setup: Setup) -> s_gossip.SGossipState:
    order = setup.logical_order
    if setup.near and not setup.shuffled:
        order = np.array(setup.near)
    return s_gossip.new_state(
        group,
        order=order,
        place=np.argsort(order),
        group_size=setup.group_size or LOCAL_GROUP,
        controllers=setup.controllers,
        delta_ns=setup.delta_ns,
        repeat_ns=setup.repeat_ns,
        step_ns=setup.step_ns,
        subset=setup.subset,
        seed=setup.seed,
    )


def _build_cube_full_dist(group: Group, setup: Setup) -> cube_full_dist.CubeFullDistState:
    return cube_full_dist.new_state(
        group,
        of_ranks(hypercube(setup.members), group.rank),
        members=setup.members,
        delta_ns=setup.delta_ns,
        repeat_ns=setup.repeat_ns,
    )


def _build_overlay(group: Group, setup: Setup) -> overlay.OverlayState:
    return overlay.new_state(
        group,
        of_ranks(hypercube(setup.members), group.rank),
        members=setup.members,
        payload_bytes=setup.payload_bytes,
        room=setup.room,
    )


def _build_tree(group: Group, setup: Setup) -> overlay.OverlayState:
    return _build_eager_tree(group, setup, BINOMIAL)


def _build_star(group: Group, setup: Setup) -> overlay.OverlayState:
    return _build_eager_tree(group, setup, STAR)


def _build_eager_tree(group: Group, setup: Setup, shape: int) -> overlay.OverlayState:
    return overlay.new_state(
        group,
        of_ranks(tree_overlay(setup.members, shape), group.rank),
        members=setup.members,
        payload_bytes=setup.payload_bytes,
        room=setup.room,
        eager_tree=shape,
    )


def _build_pc_overlay(group: Group, setup: Setup) -> pc_overlay.PcOverlayState:
    # Pings are logged too: one for each link that is opened, and there are few of those for each join and leave.
    room = setup.room + min(512 * setup.members, 1 << 14)
    return pc_overlay.new_state(group, members=setup.members, payload_bytes=setup.payload_bytes, room=room)


def _neighbours(setup: Setup) -> tuple[Overlay, NDArray[np.float64]]:
    if setup.overlay is None or setup.link_failure is None:
        raise LocalProtocolError("a multicast tree follows links between members: choose a network whose nodes are all")
    return setup.overlay, setup.link_failure


def _build_plumtree(group: Group, setup: Setup) -> plumtree.PlumtreeState:
    graft_ns = setup.repeat_ns or GRAFT_NS
    return plumtree.new_state(
        group, *_neighbours(setup), payload_bytes=setup.payload_bytes, quota=setup.quota, graft_ns=graft_ns
    )


def _build_rasm(group: Group, setup: Setup) -> rasm.RasmState:
    return rasm.new_state(group, *_neighbours(setup), payload_bytes=setup.payload_bytes, quota=setup.quota)


add_protocol(
    Protocol(
        name="coord",
        title="Coord",
        family="stability",
        paper="cube §2.1, guo §4.2.1 (CoordP)",
        summary="one coordinator collects every R and multicasts the minimum",
        state=coord.CoordState,
        handlers=coord,
        build=from_setup(coord.new_state),
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
        build=from_setup(full_dist.new_state),
    )
)
add_protocol(
    Protocol(
        name="s_coord",
        title="S_Coord",
        family="stability",
        paper="cube §2.3, guo §4.3.1 (S_CoordP)",
        summary="minima climb a tree, the root multicasts the result",
        state=s_coord.SCoordState,
        handlers=s_coord,
        build=from_setup(s_coord.new_state, parents="logical_tree"),
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
add_protocol(
    Protocol(
        name="train",
        title="Train",
        family="stability",
        paper="guo §4.2.3",
        summary="the running minimum goes round the group, then the result",
        state=train.TrainState,
        handlers=train,
        build=from_setup(train.new_state),
    )
)
add_protocol(
    Protocol(
        name="gossip",
        title="Gossip",
        family="stability",
        paper="guo §4.2.4",
        summary="minima spread to random members, step by step",
        state=gossip.GossipState,
        handlers=gossip,
        build=from_setup(gossip.new_state),
        numbers=lambda setup: 2 * setup.senders if setup.piggyback else setup.senders,
    )
)
add_protocol(
    Protocol(
        name="s_train",
        title="S_Train",
        family="stability",
        paper="guo §4.3.2",
        summary="a train in every sub-group of a tree, the root multicasts the result",
        state=s_train.STrainState,
        handlers=s_train,
        build=from_setup(s_train.new_state, parents="logical_tree", place="logical_place"),
    )
)
add_protocol(
    Protocol(
        name="s_gossip",
        title="S_Gossip",
        family="stability",
        paper="guo §4.3.3",
        summary="gossip in local groups, then among their controllers",
        state=s_gossip.SGossipState,
        handlers=s_gossip,
        build=_build_s_gossip,
    )
)
add_protocol(
    Protocol(
        name="timestamp",
        title="Timestamp",
        family="causal",
        paper="causal §3.1",
        summary="causal order by a vector clock on every message and a delivery buffer",
        state=timestamp.TimestampState,
        handlers=timestamp,
        build=from_setup(timestamp.new_state),
        links="reliable",
    )
)
add_protocol(
    Protocol(
        name="overlay",
        title="Overlay",
        family="causal",
        paper="causal §3.2",
        summary="causal order by flooding the hypercube, without control data",
        state=overlay.OverlayState,
        handlers=overlay,
        build=_build_overlay,
        links="fifo",
    )
)
add_protocol(
    Protocol(
        name="tree",
        title="Overlay tree",
        family="causal",
        paper="causal §3.2 over a spanning tree",
        summary="causal order by flooding a tree of the hypercube, one copy a delivery",
        state=overlay.OverlayState,
        handlers=overlay,
        build=_build_tree,
        links="fifo",
    )
)
add_protocol(
    Protocol(
        name="star",
        title="Overlay star",
        family="causal",
        paper="causal §3.2 over a star",
        summary="causal order by one member that forwards everything, two hops and one copy a delivery",
        state=overlay.OverlayState,
        handlers=overlay,
        build=_build_star,
        links="fifo",
    )
)
add_protocol(
    Protocol(
        name="causal_plumtree",
        title="Causal Plumtree",
        family="causal",
        paper="causal §3.1 along the trees of rasm §3.2",
        summary="causal order by vector clocks along the fastest paths, one copy a delivery",
        state=stamped_tree.CausalPlumtreeState,
        handlers=stamped_tree,
        build=from_setup(stamped_tree.new_plumtree),
        links="fifo",
    )
)
add_protocol(
    Protocol(
        name="causal_rasm",
        title="Causal RASM",
        family="causal",
        paper="causal §3.1 along the trees of rasm §3",
        summary="causal order by vector clocks along the most reliable paths, one copy a delivery",
        state=stamped_tree.CausalRasmState,
        handlers=stamped_tree,
        build=from_setup(stamped_tree.new_rasm),
        numbers=lambda setup: setup.senders + 1,
        links="fifo",
    )
)
add_protocol(
    Protocol(
        name="pc_overlay",
        title="PC-Overlay",
        family="causal",
        paper="causal §7; Nédelec, Molli and Mostéfaoui 2018",
        summary="causal order by flooding an overlay that changes as members join and leave",
        state=pc_overlay.PcOverlayState,
        handlers=pc_overlay,
        build=_build_pc_overlay,
        links="fifo",
        joins=True,
    )
)
add_protocol(
    Protocol(
        name="plumtree",
        title="Plumtree",
        family="broadcast",
        paper="rasm §3.2",
        summary="a tree of the fastest paths by eager push and PRUNE, mended by IHAVE and GRAFT",
        state=plumtree.PlumtreeState,
        handlers=plumtree,
        build=_build_plumtree,
    )
)
add_protocol(
    Protocol(
        name="rasm",
        title="RASM",
        family="broadcast",
        paper="rasm §3",
        summary="a tree of the most reliable paths by eager push, PRUNE and REPAIR",
        state=rasm.RasmState,
        handlers=rasm,
        build=_build_rasm,
    )
)
