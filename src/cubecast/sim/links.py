"""Packets crossing links: the hot path of the simulator.

A packet that enters a FIFO link begins its transmission when the link is free, leaves it `size · ns_per_byte` later
and arrives after the propagation delay. One event per hop suffices, and since a link never reorders, only its first
packet needs an entry in the queue of due links. A node that spends time on a message (guo §5.1) is one more FIFO
link, from the node to itself.
"""

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.jit.prefetch import fetch
from cubecast.protocol.mail import (
    CONTROL,
    DATA,
    FAILURE,
    release,
)
from cubecast.protocol.random import uniform
from cubecast.sim.due import IDLE, WINNER, challenge, play_again
from cubecast.sim.events import PACKET_ARRIVES, RESEND, schedule
from cubecast.sim.next_link import next_link
from cubecast.sim.piggyback import drop_piggyback
from cubecast.sim.record import record
from cubecast.sim.world import LINK_PROCESSOR, NO_PACKET, NO_ROUTE, PACKETS_FULL, TIME_FULL
from cubecast.trace import schema as tracing


@linked
def take_packet(world):
    """Take a free packet; −1 if there is none."""
    scalars = world.scalars
    packet = scalars[0].packet_free
    if packet != NO_PACKET:
        scalars[0].packet_free = world.packets[packet].next
        return packet
    packet = scalars[0].packets_used
    if packet >= world.packets.shape[0]:
        scalars[0].error = PACKETS_FULL
        return np.int64(-1)
    scalars[0].packets_used = packet + 1
    return packet


@linked
def free_packet(world, mail, packet):
    """Free the packet of a copy; with its last copy, free the message."""
    slot = np.int64(world.packets[packet].message)
    world.packets[packet].next = world.scalars[0].packet_free
    world.scalars[0].packet_free = packet
    copies = mail.heads[slot].copies - 1
    mail.heads[slot].copies = copies
    if copies == 0:
        if world.piggyback.shape[0] > 1:
            drop_piggyback(world, mail, slot)
        release(mail, slot)


@linked
def update_queue(line, packets, now_ns):
    """Update the queue of a link at this time; return how many packets still wait for transmission."""
    waiting = np.int64(line.waiting)
    packet = line.queue
    # Whether a queue has advanced is hard to predict: the first step is taken without a branch.
    begun = packets[packet].start_ns <= now_ns  # never true of NO_PACKET
    packet = packets[packet].next if begun else packet
    waiting -= np.int64(begun)
    while packets[packet].start_ns <= now_ns:
        packet = packets[packet].next
        waiting -= 1
    line.queue = packet
    line.waiting = waiting
    return waiting


@linked
def sample_queue(scalars, waiting):
    """MODELS §9: the queue is sampled at every send and receive."""
    scalars[0].queue_sum += waiting
    scalars[0].queue_samples += 1
    if waiting > scalars[0].queue_max:
        scalars[0].queue_max = waiting


@linked
def sample_node(world, node, now_ns):
    """guo §5.2: "the queue size at each network node is recorded whenever the node sends or receives a message".

    The queue of a node is everything that waits for its processor and for each of its links. It is sampled only if
    nodes have processors; otherwise a node can have very many links.
    """
    scalars = world.scalars
    waiting = update_queue(world.links[world.reverse.shape[0] + node], world.packets, now_ns)
    for link in range(world.first_link[node], world.first_link[node + 1]):
        waiting += update_queue(world.links[link], world.packets, now_ns)
    scalars[0].node_queue_sum += waiting
    scalars[0].node_queue_samples += 1
    if waiting > scalars[0].node_queue_max:
        scalars[0].node_queue_max = waiting


@linked
def enter_link(world, link, packet, now_ns, busy_ns):
    """Queue the packet on a link that needs `busy_ns` to transmit it; False when the queue has no room."""
    line = world.links[np.uint64(link)]
    packets = world.packets
    entering = packets[np.uint64(packet)]
    scalars = world.scalars
    limit = scalars[0].queue_limit
    measured = scalars[0].measure != 0
    waiting = np.int64(0)
    if measured or limit > 0:
        waiting = update_queue(line, packets, now_ns)
        if limit > 0 and waiting >= limit:
            return False
    start_ns = max(now_ns, line.free_ns)
    free_ns = start_ns + busy_ns
    arrive_ns = free_ns + line.delay_ns
    line.free_ns = free_ns
    entering.start_ns = start_ns
    entering.arrive_ns = arrive_ns
    entering.next = NO_PACKET
    if scalars[0].tracing != 0:
        world.entered_ns[packet] = now_ns
    if arrive_ns >= IDLE >> scalars[0].shift:
        scalars[0].error = TIME_FULL
    if line.head == NO_PACKET:
        line.head = packet
        challenge(world.due, scalars[0].leaves, link, arrive_ns << scalars[0].shift | line.key)
    else:
        packets[line.tail].next = packet
    line.tail = packet
    if measured or limit > 0:
        waits = np.int64(start_ns > now_ns)
        queue = np.int64(line.queue)  # the packet is the first of an empty queue, again without a branch
        line.queue = queue + (packet - queue) * (waits & np.int64(waiting == 0))
        waiting += waits
        line.waiting = waiting
        if measured:
            sample_queue(scalars, waiting)
    return True


@linked
def leave_link(world, link, packet):
    """Remove the first packet from a link; the next one on it, if any, is due instead."""
    scalars = world.scalars
    following = world.packets[np.uint64(packet)].next
    line = world.links[np.uint64(link)]
    line.head = following
    key = world.packets[following].arrive_ns << scalars[0].shift | line.key  # of NO_PACKET: idle
    play_again(world.due, scalars[0].leaves, link, key)
    if scalars[0].part_shift >= 0:
        fetch_ahead(world, link)


@linked
def fetch_ahead(world, link):
    """Prefetch what the next hops need: a large network does not fit into the fast caches.

    The winner of a part of the tournament is due after about as many hops as there are such parts. So the link that
    is first of its part of 512 is fetched; its packets, when it is first of a part of 64; and the data of these
    packets, when it is first of a part of 8.
    """
    scalars = world.scalars
    links = world.links
    packets = world.packets
    mask = scalars[0].link_mask
    part = np.uint64((scalars[0].leaves + link) >> scalars[0].part_shift)
    fetch(links, world.due[part] & mask)
    line = links[np.uint64(world.due[part >> np.uint64(3)] & mask)]
    fetch(packets, line.head)
    fetch(packets, line.queue)
    line = links[np.uint64(world.due[part >> np.uint64(6)] & mask)]
    ahead = packets[line.head]
    fetch(packets, ahead.next)
    fetch(world.port, (max(ahead.to, np.int32(0)), line.to))


@linked
def sample_load(scalars, now_ns):
    """MODELS §9: sample the messages on all links every millisecond of a round, and the contents of the buffers."""
    while scalars[0].next_sample_ns <= now_ns:
        scalars[0].held_sum += scalars[0].held
        scalars[0].held_samples += 1
        if scalars[0].sampling > 0:
            scalars[0].load_sum += scalars[0].in_network
            scalars[0].load_samples += 1
        scalars[0].next_sample_ns += scalars[0].sample_ns


@linked
def lose(world, mail, packet, link, now_ns):
    """Drop a packet: its queue is full, it is lost at random, or its destination is down or cut off.

    Over a reliable transport its source sends it again, except packets of failure detectors.
    """
    world.scalars[0].drops += 1
    world.scalars[0].in_network -= 1
    record(world, mail, tracing.DROP, now_ns, packet, -1, -1, link)
    if world.scalars[0].resend_ns > 0 and mail.layers[world.packets[packet].message] != FAILURE:
        schedule(world, now_ns + world.scalars[0].resend_ns, RESEND, 0, packet, 0)
        return
    free_packet(world, mail, packet)


@linked
def disturb(world, mail, packet, link, now_ns):
    """Apply loss, duplication and reordering at the end of a link. Return whether the packet continues now."""
    scalars = world.scalars
    if uniform(world.random) < world.links[link].loss:
        lose(world, mail, packet, link, now_ns)
        return False
    if uniform(world.random) < scalars[0].duplicate:
        twin = copy_packet(world, mail, packet)
        if twin >= 0:
            schedule(world, now_ns, PACKET_ARRIVES, np.int64(world.links[link].to), twin, link)
    if uniform(world.random) < scalars[0].reorder:
        late_ns = now_ns + np.int64(uniform(world.random) * scalars[0].reorder_ns)
        schedule(world, late_ns, PACKET_ARRIVES, np.int64(world.links[link].to), packet, link)
        return False
    return True


@linked
def copy_packet(world, mail, packet):
    """Make one more copy of the same message in the network; −1 if there is no room."""
    twin = take_packet(world)
    if twin >= 0:
        world.packets[twin] = world.packets[packet]
        if world.scalars[0].tracing != 0:
            world.numbers[twin] = world.numbers[packet]
        mail.heads[world.packets[packet].message].copies += 1
        world.scalars[0].in_network += 1
    return twin


@linked
def enter_wire(world, mail, link, packet, now_ns):
    """Send a packet over a link."""
    entering = world.packets[np.uint64(packet)]
    busy_ns = np.int64(entering.size_bytes * world.links[np.uint64(link)].ns_per_byte + 0.5)
    if not enter_link(world, link, packet, now_ns, busy_ns):
        lose(world, mail, packet, link, now_ns)
        return
    count_hop(world.scalars, mail.layers[np.uint64(entering.message)])
    if world.scalars[0].processors != 0 and world.scalars[0].measure != 0:
        sample_node(world, np.int64(world.links[world.reverse[link]].to), now_ns)


@linked
def count_hop(scalars, layer):
    """Count a message of this layer that crossed a link."""
    if layer == CONTROL:
        scalars[0].hops += 1
    elif layer == DATA:
        scalars[0].data_hops += 1
    else:
        scalars[0].failure_hops += 1


@linked
def _is_branch(world, root, link):
    """Does the multicast tree of `root` continue over this link, to members?"""
    child = np.int64(world.links[link].to)
    if child == root or not world.on_tree[world.member_at[root], child]:
        return False
    return world.first_link[child] + world.port[root, child] == world.reverse[link]


@linked
def _goes_on(world, node, root):
    """Does the multicast tree of `root` continue from this node?"""
    for link in range(world.first_link[node], world.first_link[node + 1]):
        if _is_branch(world, root, link):
            return True
    return False


@linked
def enter_processor(world, mail, node, packet, now_ns):
    """At a node that takes time: receive at the destination, route elsewhere, both where a multicast continues."""
    scalars = world.scalars
    size = np.int64(world.packets[packet].size_bytes)
    receive_ns = scalars[0].receive_ns + np.int64(size * scalars[0].receive_ns_per_byte + 0.5)
    busy_ns = scalars[0].router_ns
    to = np.int64(world.packets[packet].to)
    if to == node:
        busy_ns = receive_ns
    elif to < 0 and world.member_at[node] >= 0:
        busy_ns = receive_ns + (busy_ns if _goes_on(world, node, -2 - to) else 0)
    link = world.reverse.shape[0] + node
    if not enter_link(world, link, packet, now_ns, busy_ns):
        lose(world, mail, packet, link, now_ns)
    elif scalars[0].measure != 0:
        sample_node(world, node, now_ns)


@linked
def pass_node(world, mail, node, packet, now_ns):
    """Handle a packet at a node: return it if it has arrived for the member there, −1 if it was forwarded."""
    to = np.int64(world.packets[np.uint64(packet)].to)
    if to == node:
        return packet
    if to >= 0:
        link = next_link(world, node, to)
        if link < 0:
            world.scalars[0].error = NO_ROUTE
            return np.int64(-1)
        enter_wire(world, mail, link, packet, now_ns)
        return np.int64(-1)
    root = -2 - to
    spread(world, mail, node, root, packet, now_ns)
    if world.member_at[node] >= 0 and node != root:
        world.packets[packet].to = node
        return packet
    world.scalars[0].in_network -= 1
    free_packet(world, mail, packet)
    return np.int64(-1)


@linked
def spread(world, mail, node, root, packet, now_ns):
    """Send a copy of a tree multicast to every child of `node` in the tree of `root` that leads to members."""
    for link in range(world.first_link[node], world.first_link[node + 1]):
        if _is_branch(world, root, link):
            twin = copy_packet(world, mail, packet)
            if twin < 0:
                return
            enter_wire(world, mail, link, twin, now_ns)


@linked
def advance(world, mail, limit_ns, budget):
    """Move packets, hop by hop in time order, until one arrives at its destination.

    Return that packet; −1 if nothing more is due by `limit_ns`; −2 if `budget` hops were made or a capacity is
    exhausted.
    """
    scalars = world.scalars
    links = world.links
    packets = world.packets
    due = world.due
    shift = scalars[0].shift
    mask = scalars[0].link_mask
    measured = scalars[0].measure != 0
    limited = scalars[0].queue_limit > 0
    traced = scalars[0].tracing != 0
    processors = scalars[0].processors != 0
    disturbed = scalars[0].loss > 0 or scalars[0].duplicate > 0 or scalars[0].reorder > 0
    limit_ns = min(limit_ns, (IDLE >> shift) - 1)
    for _ in range(budget):
        key = due[WINNER]
        now_ns = key >> shift
        if now_ns > limit_ns:
            return np.int64(-1)
        link = key & mask
        line = links[np.uint64(link)]
        packet = np.int64(line.head)
        scalars[0].now_ns = now_ns
        if measured:
            if now_ns >= scalars[0].next_sample_ns:
                sample_load(scalars, now_ns - 1)
            sample_queue(scalars, update_queue(line, packets, now_ns))
        elif limited:
            update_queue(line, packets, now_ns)
        leave_link(world, link, packet)
        node = np.int64(line.to)
        if line.kind == LINK_PROCESSOR:
            arrived = pass_node(world, mail, node, packet, now_ns)
        else:
            if traced:
                record(world, mail, tracing.HOP, now_ns, packet, -1, -1, link)
            if disturbed:
                goes_on = disturb(world, mail, packet, link, now_ns)
                if scalars[0].events_size > 0:  # a late or second copy may now be the next thing to happen
                    limit_ns = min(limit_ns, world.events[0].time_ns)
                if not goes_on:
                    continue
            if processors:
                enter_processor(world, mail, node, packet, now_ns)
                continue
            arrived = pass_node(world, mail, node, packet, now_ns)
        if arrived >= 0:
            return arrived
        if scalars[0].error != 0 or (traced and scalars[0].trace_size * 2 > world.trace.shape[0]):
            return np.int64(-2)
    return np.int64(-2)
