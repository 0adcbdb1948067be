"""The cost of one stability round: guo Tables 4.1, 4.2 and 5.2, cube Fig 7, as functions.

The counts assume no loss, no repetition and no membership change:

| word | meaning |
|---|---|
| unicast | one logical point-to-point send, whatever the number of links it crosses |
| multicast | one logical send to the whole group, counted once |
| copies | unicasts + (n − 1) per multicast: the sends of a network without multicast |
| step | one message of the longest chain of a round; for gossip, one step interval |
| bytes | the sizes of all logical sends, a multicast counted once |
| copied bytes | the sizes of all copies |

Every cost has a `Kind`: exact, or an upper bound. Gossip is random, so its bound holds with probability
1 − P_incomplete.

Sizes (guo §5.2): header 32 B, sequence number 4 B, START is a header, ACK and INFO carry m numbers; Gossip and
CubeFullDist add a bitmap of ceil(n/8) and a round number of 4 B.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Callable
from dataclasses import dataclass

from cubecast.errors import LocalProtocolError
from cubecast.models import trees
from cubecast.models.checks import require_probability, require_whole
from cubecast.models.gossip_chain import GossipChain

HEADER_BYTES = 32
SEQUENCE_BYTES = 4
ROUND_NUMBER_BYTES = 4


class Kind(enum.Enum):
    """Whether a cost is exact or a bound."""

    EXACT = "exact"
    UPPER_BOUND = "upper bound"


@dataclass(frozen=True, kw_only=True)
class GroupSize:
    """What the counts depend on: n, m, the gossip subset p, the tree's branching factor b and S_Gossip's groups."""

    members: int
    senders: int
    subset: int = 1
    degree: int = 3
    local_group: int = 50
    controllers: int = 2
    p_incomplete: float = 1e-3

    def __post_init__(self) -> None:
        require_whole("members", self.members, least=2)
        require_whole("senders", self.senders, least=1, most=self.members)
        require_whole("subset", self.subset, least=1, most=self.members - 1)
        require_whole("degree", self.degree, least=1)
        require_whole("local_group", self.local_group, least=2)
        require_whole("controllers", self.controllers, least=1, most=self.local_group)
        require_probability("p_incomplete", self.p_incomplete, zero=False, one=False)


@dataclass(frozen=True, kw_only=True)
class RoundCost:
    """One round of one protocol."""

    protocol: str
    kind: Kind
    unicasts: int
    multicasts: int
    steps: int
    sent_bytes: int
    copies: int
    copied_bytes: int


def start_bytes() -> int:
    """A START message has an empty body."""
    return HEADER_BYTES


def array_bytes(senders: int) -> int:
    """An ACK or INFO message: one sequence number per sender."""
    return HEADER_BYTES + SEQUENCE_BYTES * senders


def gossip_bytes(members: int, senders: int) -> int:
    """A Gossip or CubeFullDist message: 36 + 4m + ceil(n/8) (guo §5.2)."""
    return array_bytes(senders) + ROUND_NUMBER_BYTES + math.ceil(members / 8)


def round_cost(protocol: str, group: GroupSize) -> RoundCost:
    """The cost of one round; `PROTOCOLS` lists the names."""
    if protocol not in _COSTS:
        raise LocalProtocolError(f"protocol={protocol!r}: choose one of {', '.join(PROTOCOLS)}")
    return _COSTS[protocol](group)


def _cost(group: GroupSize, protocol: str, kind: Kind, steps: int, *sends: tuple[int, int, int]) -> RoundCost:
    """Add up `sends`, each (unicasts, multicasts, bytes per message)."""
    others = group.members - 1
    return RoundCost(
        protocol=protocol,
        kind=kind,
        unicasts=sum(unicasts for unicasts, _, _ in sends),
        multicasts=sum(multicasts for _, multicasts, _ in sends),
        steps=steps,
        sent_bytes=sum((unicasts + multicasts) * size for unicasts, multicasts, size in sends),
        copies=sum(unicasts + multicasts * others for unicasts, multicasts, _ in sends),
        copied_bytes=sum((unicasts + multicasts * others) * size for unicasts, multicasts, size in sends),
    )


def _collected(group: GroupSize, protocol: str, steps: int) -> RoundCost:
    """START multicast, n − 1 ACKs, INFO multicast: CoordP, S_CoordP and S_Train (guo §4.2.1, §4.3.1, §4.3.2)."""
    array = array_bytes(group.senders)
    sends = ((0, 1, start_bytes()), (group.members - 1, 0, array), (0, 1, array))
    return _cost(group, protocol, Kind.EXACT, steps, *sends)


def _coord(group: GroupSize) -> RoundCost:
    return _collected(group, "coord", 3)


def _s_coord(group: GroupSize) -> RoundCost:
    return _collected(group, "s_coord", trees.height(group.members, group.degree) + 2)


def _s_train(group: GroupSize) -> RoundCost:
    return _collected(group, "s_train", trees.train_steps(group.members, group.degree))


def _full_dist(group: GroupSize) -> RoundCost:
    """n multicasts of INFO (guo §4.2.2)."""
    return _cost(group, "full_dist", Kind.EXACT, 2, (0, group.members, array_bytes(group.senders)))


def _train(group: GroupSize) -> RoundCost:
    """ACK goes round the group once, then INFO does (guo §4.2.3)."""
    hops = 2 * group.members
    return _cost(group, "train", Kind.EXACT, hops, (hops, 0, array_bytes(group.senders)))


def _gossip(group: GroupSize) -> RoundCost:
    """Steps from the chain of guo §4.2.5 for the group's P_incomplete, then one INFO multicast (optimised ending)."""
    steps = _gossip_steps(group.members, group.subset, group.p_incomplete)
    size = gossip_bytes(group.members, group.senders)
    sends = ((steps * group.members * group.subset, 0, size), (0, 1, array_bytes(group.senders)))
    return _cost(group, "gossip", Kind.UPPER_BOUND, steps, *sends)


def _gossip_steps(members: int, subset: int, p_incomplete: float) -> int:
    if members < 2:
        return 0
    chain = GossipChain(members=members, subset=min(subset, members - 1))
    return math.ceil(chain.steps_for(p_incomplete))


def _s_gossip(group: GroupSize) -> RoundCost:
    """Local groups gossip, then the controllers among themselves, then one INFO multicast (guo §4.3.3).

    The bitmap of the first phase covers a local group, that of the second the local groups. P_incomplete is shared
    equally among all the gossips, since each must be complete.
    """
    local_groups = math.ceil(group.members / group.local_group)
    local = min(group.local_group, group.members)
    controllers = local_groups * min(group.controllers, local) if local_groups > 1 else 0
    share = group.p_incomplete / (local_groups + 1 if local_groups > 1 else 1)
    phase_one = _gossip_steps(local, group.subset, share)
    phase_two = _gossip_steps(controllers, group.subset, share)
    local_subset, controller_subset = min(group.subset, local - 1), min(group.subset, max(controllers - 1, 0))
    sends = (
        (phase_one * group.members * local_subset, 0, gossip_bytes(local, group.senders)),
        (phase_two * controllers * controller_subset, 0, gossip_bytes(local_groups, group.senders)),
        (0, 1, array_bytes(group.senders)),
    )
    return _cost(group, "s_gossip", Kind.UPPER_BOUND, phase_one + phase_two, *sends)


def _cube_full_dist(group: GroupSize) -> RoundCost:
    """With d = ceil(log2 n): after k iterations a member knows all within distance k; d iterations and a last send.

    A member sends to at most d neighbours, d + 1 times. The bound is reached when n is a power of two and all links
    are equally slow; a member that receives a full bitmap early sends less.
    """
    dimension = math.ceil(math.log2(group.members))
    unicasts = group.members * dimension * (dimension + 1)
    size = gossip_bytes(group.members, group.senders)
    return _cost(group, "cube_full_dist", Kind.UPPER_BOUND, dimension, (unicasts, 0, size))


_COSTS: dict[str, Callable[[GroupSize], RoundCost]] = {
    "coord": _coord,
    "full_dist": _full_dist,
    "train": _train,
    "gossip": _gossip,
    "s_coord": _s_coord,
    "s_train": _s_train,
    "s_gossip": _s_gossip,
    "cube_full_dist": _cube_full_dist,
}
PROTOCOLS = tuple(_COSTS)
