"""From a member's outbox into the network: unicast, multicast as copies or along a tree, one-hop flights."""

import math

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.mail import CONTROL, DATA, PAYLOAD
from cubecast.protocol.random import uniform
from cubecast.sim.events import PACKET_ARRIVES, schedule
from cubecast.sim.links import copy_packet, count_hop, enter_link, lose, pass_node, take_packet
from cubecast.sim.piggyback import free_copy, next_pending
from cubecast.sim.record import record
from cubecast.sim.world import DELAY_UNIFORM, LINKS_ONLY
from cubecast.trace import schema as tracing

FRAGMENT_BYTES = 1500  # causal §5.1 counts the messages that IP would send; the link carries their sum


@linked
def transmit_to(world, metrics, mail, slot, member, to, layer, now_ns):
    """Send to one member, or to all (−1)."""
    if to >= 0:
        transmit(world, metrics, mail, slot, member, to, layer, now_ns)
    else:
        transmit_to_all(world, metrics, mail, slot, member, layer, now_ns)


@linked
def transmit(world, metrics, mail, slot, source, to, layer, now_ns):
    """Send one copy to one member."""
    _count(metrics, mail, slot, layer, 1)
    metrics.totals[0].unicasts += 1
    packet = _new_packet(world, mail, slot, source, np.int64(world.hosts[to]), to, layer, now_ns)
    if packet < 0:
        return
    if world.scalars[0].forced_losses > 0 and layer != DATA and _is_lost_by_force(world, now_ns):
        lose(world, mail, packet, -1, now_ns)
    else:
        dispatch(world, mail, packet, source, now_ns)


@linked
def transmit_to_all(world, metrics, mail, slot, source, layer, now_ns):
    """Multicast: n−1 unicasts, or one copy per link of the shortest-path tree."""
    members = world.hosts.shape[0]
    _count(metrics, mail, slot, layer, members - 1)
    metrics.totals[0].multicasts += 1
    if world.on_tree.shape[0] > 1:
        tree = np.int64(-2) - world.hosts[source]
        packet = _new_packet(world, mail, slot, source, tree, tracing.EVERYONE, layer, now_ns)
        if packet >= 0:
            dispatch(world, mail, packet, source, now_ns)
        return
    for rank in range(members):
        if rank != source:
            packet = _new_packet(world, mail, slot, source, np.int64(world.hosts[rank]), rank, layer, now_ns)
            if packet >= 0:
                dispatch(world, mail, packet, source, now_ns)


@linked
def _count(metrics, mail, slot, layer, copies):
    """Count a message (MODELS §9): a multicast is n−1 messages, however it travels."""
    if layer == DATA:
        metrics.totals[0].data_messages += copies
        metrics.totals[0].data_bytes += copies * mail.heads[slot].size_bytes
        metrics.totals[0].data_fragments += copies * (
            (mail.heads[slot].size_bytes + FRAGMENT_BYTES - 1) // FRAGMENT_BYTES
        )
        if mail.heads[slot].kind != PAYLOAD:
            metrics.totals[0].overhead_messages += copies
            metrics.totals[0].overhead_bytes += copies * mail.heads[slot].size_bytes
    elif layer == CONTROL:
        metrics.totals[0].messages += copies
        metrics.totals[0].bytes += copies * mail.heads[slot].size_bytes
    else:
        metrics.totals[0].failure_messages += copies
        metrics.totals[0].failure_bytes += copies * mail.heads[slot].size_bytes


@linked
def _is_lost_by_force(world, now_ns):
    """Is this message one of the random losses at senders that are forced in every step (guo §5.3.1)?

    Each of the sends still expected in this step is equally likely to be among the remaining losses.
    """
    scalars = world.scalars
    if now_ns >= scalars[0].forced_until_ns:
        scalars[0].forced_until_ns = (now_ns // scalars[0].forced_step_ns + 1) * scalars[0].forced_step_ns
        scalars[0].forced_left = scalars[0].forced_losses
        scalars[0].sends_left = scalars[0].forced_sends
    lost = uniform(world.random) * max(scalars[0].sends_left, 1) < scalars[0].forced_left
    scalars[0].sends_left -= 1
    if lost:
        scalars[0].forced_left -= 1
    return lost


@linked
def _new_packet(world, mail, slot, source, to, peer, layer, now_ns):
    """Make a packet for a copy of a drafted message; −1 if there is no room."""
    packet = take_packet(world)
    if packet < 0:
        return packet
    scalars = world.scalars
    scalars[0].in_network += 1
    mail.heads[slot].copies += 1
    mail.heads[slot].source = source
    mail.layers[slot] = layer
    world.packets[packet].to = to
    world.packets[packet].message = slot
    world.packets[packet].size_bytes = mail.heads[slot].size_bytes
    if scalars[0].tracing != 0:
        world.numbers[packet] = scalars[0].packet_number
        scalars[0].packet_number += 1
        record(world, mail, tracing.SEND, now_ns, packet, source, peer, -1)
    return packet


@linked
def dispatch(world, mail, packet, source, now_ns):
    """Send a packet on a one-hop flight, through the sender's processor, or onto its first link."""
    scalars = world.scalars
    if scalars[0].one_hop != LINKS_ONLY:
        _fly(world, mail, packet, np.int64(world.packets[packet].to), now_ns)
    elif scalars[0].processors != 0:
        busy_ns = scalars[0].send_ns + np.int64(world.packets[packet].size_bytes * scalars[0].send_ns_per_byte + 0.5)
        link = world.reverse.shape[0] + np.int64(world.hosts[source])
        if not enter_link(world, link, packet, now_ns, busy_ns):
            lose(world, mail, packet, link, now_ns)
    else:
        pass_node(world, mail, np.int64(world.hosts[source]), packet, now_ns)


@linked
def _fly(world, mail, packet, to, now_ns):
    """Send a packet on one logical hop with a sampled delay; loss, duplication and reordering as on a link."""
    scalars = world.scalars
    count_hop(scalars, mail.layers[world.packets[packet].message])
    if scalars[0].loss > 0 and uniform(world.random) < scalars[0].loss:
        lose(world, mail, packet, -1, now_ns)
        return
    if scalars[0].duplicate > 0 and uniform(world.random) < scalars[0].duplicate:
        twin = copy_packet(world, mail, packet)
        if twin >= 0:
            schedule(world, now_ns + _flight_ns(world), PACKET_ARRIVES, to, twin, -1)
    late_ns = np.int64(0)
    if scalars[0].reorder > 0 and uniform(world.random) < scalars[0].reorder:
        late_ns = np.int64(uniform(world.random) * scalars[0].reorder_ns)
    schedule(world, now_ns + _flight_ns(world) + late_ns, PACKET_ARRIVES, to, packet, -1)


@linked
def _flight_ns(world):
    scalars = world.scalars
    stretch = uniform(world.random)
    if scalars[0].one_hop != DELAY_UNIFORM:
        stretch = -math.log(1.0 - stretch)
    return np.int64(scalars[0].one_hop_low_ns + scalars[0].one_hop_spread_ns * stretch + 0.5)


@linked
def transmit_pending(world, metrics, mail, member, tag, now_ns):
    """Send waiting control messages alone: no data message came in time."""
    if metrics.members[member].pending_tag != tag:
        return
    slot = next_pending(world, metrics, member)
    while slot > 0:
        _transmit_alone(world, metrics, mail, slot, member, now_ns)
        free_copy(mail, slot)
        slot = next_pending(world, metrics, member)


@linked
def _transmit_alone(world, metrics, mail, slot, member, now_ns):
    """Send one waiting control message; the bits of all members denote a multicast."""
    layer = np.int64(CONTROL)
    members = metrics.members.shape[0]
    if rank_sets.count(world.piggybacked_to[slot]) == members:
        transmit_to_all(world, metrics, mail, slot, member, layer, now_ns)
        return
    for rank in range(members):
        if rank_sets.contains(world.piggybacked_to[slot], rank):
            transmit(world, metrics, mail, slot, member, np.int64(rank), layer, now_ns)
