"""The context of a protocol when a group, or a view of it, begins.

The driver (the simulator, a live member) fills it in; a protocol's `build` takes what it needs from it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from cubecast.protocol.overlays import Overlay


@dataclass(frozen=True, kw_only=True)
class NetworkFacts:
    """Facts about the network for a protocol that chooses times and shapes."""

    bandwidth_bps: float = math.inf
    """The bandwidth of the slowest link."""
    node_ns: float = 0.0
    node_ns_per_byte: float = 0.0
    """The time a node takes to handle a message."""
    delay_ns_max: float = 0.0
    one_hop_ns: float | None = None
    """Every message takes one hop of at most this long; None: messages follow links."""
    tree_children: int = 0
    """The network is a tree of this degree; 0: it is not a tree."""
    is_sparse: bool = False
    """Is it a tree in which some nodes are not members?"""
    has_multicast: bool = False
    """Does it carry a multicast with one copy per link? Otherwise a multicast is a message to each member."""
    loss: float = 0.0
    """The probability that a link loses a message."""
    arrival: float = 1.0
    """The probability that a message between two members arrives, averaged over all pairs."""

    def service_ns(self, size_bytes: int) -> float:
        """How long a message occupies the slowest link, or a node."""
        return max(8e9 * size_bytes / self.bandwidth_bps, self.node_ns + size_bytes * self.node_ns_per_byte)

    def crossing_ns(self, size_bytes: int) -> float:
        """How long a message takes over the slowest and longest link."""
        if self.one_hop_ns is not None:
            return self.one_hop_ns
        return 2 * self.service_ns(size_bytes) + self.delay_ns_max


@dataclass(frozen=True, kw_only=True)
class Context:
    """The size of the group, its times, and the network below it."""

    members: int
    senders: int
    seed: int = 0
    delta_ns: int = 0
    """Δ: how long after a round the next one begins."""
    repeat_ns: int = 0
    """0 in a reliable FIFO network; otherwise how long to wait before repeating an unanswered message."""
    wait_ns: int = 0
    """How long a gap may last before it counts as a loss: links may reorder."""
    payload_bytes: int = 0
    """Application data in a message, for protocols that carry it."""
    room: int = 1 << 16
    """How many messages the buffers and logs of such a protocol hold."""
    window: int = 1 << 10
    """The largest number of messages of one sender in transit at a time."""
    is_live: bool = False
    """Does this member run live? If so, its message log stores messages with their numbers, and links lose nothing."""
    overlay: Overlay | None = None
    """Neighbours, for protocols that follow the links of the network; None if not every node is a member."""
    link_failure: NDArray[np.float64] | None = None
    """The failure probability of each link of `overlay`, as its members know it."""
    local_groups: Callable[[int], tuple[tuple[int, ...], ...]] | None = None
    """Divides the ranks into groups of at most this size that are close in the network; None if unknown."""
    network: NetworkFacts = NetworkFacts()
