"""The simulated network as arrays: links, packets on them, and what is due.

| field      | shape         | meaning                                                                             |
|------------|---------------|-------------------------------------------------------------------------------------|
| links      | links + nodes | one record per directed link (64 bytes, a cache line), then one per node's processor |
| packets    | packets       | one record per message copy in flight; a link's packets form a list in FIFO order    |
| entered_ns | packets or 1  | for a trace: when each packet joined its link's queue                                |
| numbers    | packets or 1  | for a trace: the number of each message copy; copies of a tree multicast share it    |
| first_link | nodes + 1     | the links of node v are first_link[v] … first_link[v + 1] − 1                        |
| reverse    | links         | the opposite direction of each link                                                  |
| port       | nodes × nodes | port[d, v]: which of v's links leads to d; one entry without (`sim.next_link`)       |
| hosts      | n             | the node of each member                                                              |
| member_at  | nodes         | the member of each node, or −1                                                       |
| on_tree    | n × nodes     | is there a member at or below this node in the multicast tree of that member?        |
| due        | places        | which link is due next: see `sim.due`                                                |
| events     | room          | heap of everything that is not a hop: timers, faults, sends, late packets            |
| piggyback  | slots, or 1   | control messages on data messages; see `sim.piggyback`                               |
| piggybacked_to | slots × words | the ranks to which each of those is addressed; one row without                   |
| left_out   | slots × words | the entries left out of each message's array; one row without                        |
| scalars    | 1             | the clock, counters and sums                                                         |
| random     | 2             | the stream behind loss, duplication, reordering and one-hop delays                   |

Invariants: packets of one link arrive in the order they entered it, so only the first of each busy link stands in
`due`; every packet is on exactly one link, in one event, or free. Capacities are fixed here; running out ends the
run.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

CACHE_LINE = 64

LINK = np.dtype(
    [
        ("free_ns", np.int64),  # when the transmitter is free again
        ("delay_ns", np.int64),
        ("ns_per_byte", np.float64),
        ("head", np.uint32),  # first packet on the link, or NO_PACKET
        ("tail", np.uint32),
        ("queue", np.uint32),  # first packet whose transmission has not begun, or NO_PACKET
        ("waiting", np.int32),  # how many such packets
        ("to", np.int32),  # the node at the far end
        ("kind", np.int32),  # LINK_WIRE or LINK_PROCESSOR
        ("loss", np.float64),  # probability that a packet does not get across
        ("key", np.int64),  # what the keys of `due` end in: the link, and before it what breaks ties at random
    ],
    align=True,
)
LINK_WIRE, LINK_PROCESSOR = range(2)

NO_PACKET = 0  # its record ends every list: it never begins, never arrives

PACKET = np.dtype(
    [
        ("arrive_ns", np.int64),  # at the far end of its link
        ("start_ns", np.int64),  # when its transmission on this link begins
        ("next", np.uint32),  # behind it on the same link, or next free packet
        ("to", np.int32),  # destination node; −2 − root for a multicast along the tree of `root`
        ("message", np.int32),  # slot in the mail
        ("size_bytes", np.int32),
    ],
    align=True,
)

# `order` breaks ties: events of one instant happen in the order they were scheduled.
EVENT = np.dtype([(name, np.int64) for name in ("time_ns", "order", "what", "member", "a", "b")])

SCALARS = np.dtype(
    [
        ("now_ns", np.int64),
        # fixed for the run
        ("shift", np.int64),  # a key of `due` is arrival << shift | key of the link
        ("link_mask", np.int64),  # the link in a key
        ("leaves", np.int64),  # the place of the first link in `due`
        ("part_shift", np.int64),  # from a link's place in `due` to its part of 512; −1 in a small network
        ("arity", np.int64),  # how the next hop is found: `sim.next_link`
        ("queue_limit", np.int64),  # packets that may wait on a link, 0 = any number
        ("resend_ns", np.int64),  # when a lost packet is sent again by its source, 0 = never (`sim.views`)
        ("loss", np.float64),  # per link crossed
        ("duplicate", np.float64),
        ("reorder", np.float64),
        ("reorder_ns", np.int64),  # a reordered packet is late by up to this much
        ("measure", np.int64),  # sample queues and load?
        ("tracing", np.int64),
        ("processors", np.int64),  # do nodes take time?
        ("router_ns", np.int64),
        ("send_ns", np.int64),
        ("send_ns_per_byte", np.float64),
        ("receive_ns", np.int64),
        ("receive_ns_per_byte", np.float64),
        ("one_hop", np.int64),  # LINKS_ONLY, or the shape of the one-hop delay
        ("one_hop_low_ns", np.int64),
        ("one_hop_spread_ns", np.int64),
        ("sample_ns", np.int64),
        ("forced_losses", np.int64),  # control messages lost at their senders in every step
        ("forced_step_ns", np.int64),
        ("forced_sends", np.int64),  # control messages expected in a step
        # moving
        ("events_size", np.int64),
        ("events_order", np.int64),
        ("packet_free", np.int64),  # head of the list of free packets, or NO_PACKET
        ("packets_used", np.int64),
        ("packet_number", np.int64),
        ("in_network", np.int64),
        ("forced_until_ns", np.int64),  # the end of this step
        ("forced_left", np.int64),  # losses still to come in it
        ("sends_left", np.int64),  # sends still expected in it
        ("sampling", np.int64),  # how many rounds are in progress: load is averaged over rounds
        ("next_sample_ns", np.int64),
        ("load_sum", np.int64),
        ("load_samples", np.int64),
        ("held", np.int64),  # unstable data messages in all members' buffers
        ("held_sum", np.int64),
        ("held_samples", np.int64),
        ("queue_sum", np.int64),
        ("queue_samples", np.int64),
        ("queue_max", np.int64),
        ("node_queue_sum", np.int64),
        ("node_queue_samples", np.int64),
        ("node_queue_max", np.int64),
        ("hops", np.int64),
        ("data_hops", np.int64),
        ("failure_hops", np.int64),
        ("drops", np.int64),
        ("trace_size", np.int64),
        ("error", np.int64),
    ],
    align=True,
)

# Why a run cannot go on.
FINE, PACKETS_FULL, EVENTS_FULL, MAIL_FULL, TIME_FULL, ROUNDS_FULL, TRACE_FULL, CORE_FULL = range(8)
VIEWS_FULL, NO_ROUTE = range(8, 10)

# Kinds of `one_hop`.
LINKS_ONLY, DELAY_UNIFORM, DELAY_EXPONENTIAL = range(3)


def aligned(count: int, dtype: np.dtype[Any]) -> NDArray[Any]:
    """An uninitialised array that begins on a cache line: a record of 64 (32) bytes never takes two."""
    memory = np.empty(count * dtype.itemsize + CACHE_LINE, np.uint8)
    skip = -memory.ctypes.data % CACHE_LINE
    return memory[skip : skip + count * dtype.itemsize].view(dtype)


class World(NamedTuple):
    """Everything between the members, as arrays."""

    links: np.recarray
    packets: np.recarray
    entered_ns: np.ndarray
    numbers: np.ndarray
    first_link: np.ndarray
    reverse: np.ndarray
    port: np.ndarray
    hosts: np.ndarray
    member_at: np.ndarray
    on_tree: np.ndarray
    due: np.ndarray
    events: np.recarray
    piggyback: np.ndarray
    piggybacked_to: np.ndarray
    left_out: np.ndarray
    scalars: np.recarray
    random: np.ndarray
    trace: np.recarray
