"""The nodes that a tree multicast must reach."""

import numpy as np

from cubecast.jit.decorators import entry_point


@entry_point
def mark_tree_cover(cover, hosts, link_to, first_link, port):
    """cover[rank, node] = is there a member at `node` or below it, in the tree of shortest paths from `rank`?

    The walk goes from every member upwards to the first marked node, so each node is visited once per tree.
    """
    for rank in range(hosts.shape[0]):
        root = np.int64(hosts[rank])
        for other in range(hosts.shape[0]):
            node = np.int64(hosts[other])
            while node != root and not cover[rank, node]:
                cover[rank, node] = True
                node = np.int64(link_to[np.int64(first_link[node]) + np.int64(port[root, node])])
