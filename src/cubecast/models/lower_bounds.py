"""Lower bounds on time and messages that no protocol can beat.

**Time.** What is stable depends on what every member holds, so a member knows it only after information from the
farthest member has reached it, at the speed of the network: the first member needs at least the radius, the last one
the diameter. A multicast takes at least the distance from its sender to each receiver.

**Messages of a round.** The first member that knows the result has information from n − 1 others, directly or
indirectly, and each of these has sent at least one message that arrived before: n − 1 messages. No other member knows
the result at that moment, so each of the n − 1 others needs at least one more message: 2 (n − 1). A tree reaches this
bound.

**Messages of a multicast.** Each of n − 1 members receives it at least once.

**Hops of a round**, with aggregation inside the network: if routers could combine minima, one message up and one down
each link of a tree over the members would suffice, and a tree that connects n members has at least n − 1 links:
2 (n − 1) hops. Likewise n − 1 hops for a multicast. Messages that cross several links, and are combined at members
only, cost more.

The bounds hold for a group whose membership does not change, with or without loss.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def round_messages(members: int) -> int:
    """Messages, and hops, that a round takes at least."""
    return 2 * (members - 1)


def multicast_messages(members: int) -> int:
    """Messages, and hops, that a multicast takes at least."""
    return members - 1


def first_to_know(distances: NDArray[np.float64]) -> float:
    """The radius: how long until the best-placed member has heard from all; [i, j] is the distance from i to j."""
    return float(distances.max(axis=0).min())


def last_to_know(distances: NDArray[np.float64]) -> float:
    """The diameter: how long until the worst-placed member has heard from all."""
    return float(distances.max())


def multicast_delays(distances: NDArray[np.float64], senders: int) -> tuple[float, float]:
    """Mean and largest delay from ranks 0 … senders−1 to all other members."""
    sent = distances[:senders]
    others = sent.sum() / (sent.size - senders)
    return float(others), float(sent.max())
