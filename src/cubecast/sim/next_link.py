"""Which link leads from a node to another: by table, by arithmetic in a tree, or straight to a neighbour.

A table of next hops takes two bytes for every pair of nodes. Networks with more nodes than `NODES_MAX` have no table:

- Star, chain and balanced tree are trees whose nodes are numbered breadth first, with `arity` children per inner node
  (n − 1, 1, 3): the parent of v is (v − 1) div arity. A node's links are sorted by their destination, so the link to
  the parent comes first and those to the children follow.
- In other graphs a message can only go to a neighbour; protocols that follow the links of the network need no more.
"""

import numpy as np

from cubecast.jit.decorators import linked

BY_TABLE = 0
TO_NEIGHBOURS = -1


@linked
def next_link(world, node, to):
    """The link to take at a node, or −1 when there is no route."""
    arity = world.scalars[0].arity
    first = np.int64(world.first_link[np.uint64(node)])
    if arity == BY_TABLE:
        return first + np.int64(world.port[np.uint64(to), np.uint64(node)])
    if arity == TO_NEIGHBOURS:
        return _link_to_neighbour(world, first, np.int64(world.first_link[node + 1]), to)
    return first + _port_in_tree(node, to, arity)


@linked
def _link_to_neighbour(world, first, end, to):
    for link in range(first, end):
        if world.links[link].to == to:
            return np.int64(link)
    return np.int64(-1)


@linked
def _port_in_tree(node, to, arity):
    """Down to the child above `to`, if there is one; up otherwise."""
    below = to
    if arity == 1:
        below = min(to, node + 1)
    while below > arity * node + arity:
        below = (below - 1) // arity
    if below <= arity * node:
        return np.int64(0)
    return below - (arity * node + 1) + (1 if node > 0 else 0)
