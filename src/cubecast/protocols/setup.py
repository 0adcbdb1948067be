"""What a protocol needs to know before it starts: one record for all of them, of which each takes what it needs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubecast.protocol.overlays import Overlay, tree_parents
from cubecast.protocol.random import below, new_stream


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The size of the group, and what each protocol leaves open."""

    members: int
    senders: int
    delta_ns: int
    repeat_ns: int
    """0 in a reliable FIFO network; otherwise how long to wait before repeating what was not answered."""
    tree_degree: int
    seed: int
    group_size: int = 0
    """S_Coord and S_Train: members of a sub-group of the two-level tree, 0 for a balanced tree; S_Gossip: of a local
    group, 0 for 50."""
    near: tuple[int, ...] = ()
    """S_Gossip: the ranks listed so that neighbours in the network are neighbours in the list; default: by rank."""
    shuffled: bool = False
    """Do logical trees and local groups ignore the order of the ranks?"""
    repeat_acks: bool = False
    """Coord: members repeat their ACKs (guo §4.2.1) besides answering repeated STARTs (cube §3.5)."""
    scatter_ns: int = 0
    """FullDist: rows are multicast at random offsets up to this."""
    subset: int = 1
    """Gossip: members told in one step."""
    step_ns: int = 0
    """Gossip: the step interval."""
    piggyback: bool = False
    """Gossip: S rides on later gossip instead of being multicast."""
    controllers: int = 2
    """S_Gossip: stability controllers of a local group."""
    payload_bytes: int = 0
    """Application data in a message, for protocols that carry it themselves."""
    room: int = 1 << 16
    """How many messages the buffers and logs of such a protocol hold."""
    window: int = 1 << 10
    """How many messages of one sender are under way at a time, at most."""
    announce_ns: int = 20_000_000
    """Stamped trees: how long a member gathers news before it tells its neighbours what has arrived."""
    overlay: Overlay | None = None
    """Neighbours, for protocols that follow the network's own links."""
    link_failure: NDArray[np.float64] | None = None
    """How likely a message does not get across each link of `overlay`, as far as its members know."""
    quota: bool = False

    @property
    def logical_order(self) -> np.ndarray:
        """The ranks as logical trees and local groups list them; rank 0, which leads, comes first."""
        order = np.arange(self.members)
        if self.shuffled:
            stream = new_stream(self.seed, "logical order")
            for place in range(self.members - 1, 1, -1):  # Fisher and Yates
                other = 1 + below(stream, place)
                order[[place, other]] = order[[other, place]]
        return order

    @property
    def logical_place(self) -> np.ndarray:
        """Where every rank stands in the logical order."""
        return np.argsort(self.logical_order)

    @property
    def logical_tree(self) -> np.ndarray:
        """The parent of every rank."""
        return tree_parents(self.logical_order, degree=self.tree_degree, group_size=self.group_size)
