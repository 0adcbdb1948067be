"""Reliable FIFO links between incarnations, as TCP provides them: numbers, retransmission, order.

Every packet except those of failure detectors has a number on the link from its source's host to its destination's. The
source sends a lost packet again (`links.lose` schedules that), and a packet that arrives before an earlier one waits
for it. The numbers start again with each incarnation. If the network neither loses nor reorders, nothing is to be done.

A packet is dropped when its source or its destination no longer runs. A lost packet of a crashed process stays lost,
and so does everything behind it.
"""

import numpy as np

from cubecast.jit.decorators import entry_point, linked
from cubecast.protocol.mail import (
    CONTROL,
    DATA,
    FAILURE,
    OVERFLOW,
    PAYLOAD,
    clear_outbox,
    draft,
)
from cubecast.sim.events import RESEND, schedule
from cubecast.sim.links import free_packet, take_packet
from cubecast.sim.record import record
from cubecast.sim.transmit import FRAGMENT_BYTES, dispatch
from cubecast.sim.world import MAIL_FULL, NO_PACKET
from cubecast.trace import schema as tracing

MEMBERSHIP = 0  # the kind of a membership message


@linked
def send_copy(world, mail, tables, slot, source, target, now_ns):
    """Send one copy of a message whose source, layer and view are noted."""
    packet = take_packet(world)
    if packet < 0:
        return
    mail.heads[slot].copies += 1
    host = tables.processes[source].host
    there = tables.processes[target].host
    world.packets[packet].to = world.hosts[there]
    world.packets[packet].message = slot
    world.packets[packet].size_bytes = mail.heads[slot].size_bytes
    tables.target[packet] = target
    # A packet for an incarnation that is gone will be discarded, and the next incarnation does not wait for it.
    if tables.totals[0].ordered == 1 and mail.layers[slot] != FAILURE and tables.occupant[there] == target:
        tables.number[packet] = tables.next_out[host, there]
        tables.next_out[host, there] += 1
    _launch(world, mail, tables, packet, slot, source, target, now_ns)


@linked
def _launch(world, mail, tables, packet, slot, source, target, now_ns):
    _count(tables, mail, slot)
    world.scalars[0].in_network += 1
    if world.scalars[0].tracing != 0:
        world.numbers[packet] = world.scalars[0].packet_number
        world.scalars[0].packet_number += 1
        record(world, mail, tracing.SEND, now_ns, packet, source, target, -1)
    dispatch(world, mail, packet, tables.processes[source].host, now_ns)


@linked
def _count(tables, mail, slot):
    totals = tables.totals
    size = mail.heads[slot].size_bytes
    layer = mail.layers[slot]
    totals[0].unicasts += 1
    if layer == DATA:
        totals[0].data_messages += 1
        totals[0].data_bytes += size
        totals[0].data_fragments += (size + FRAGMENT_BYTES - 1) // FRAGMENT_BYTES
        if mail.heads[slot].kind != PAYLOAD:
            totals[0].overhead_messages += 1
            totals[0].overhead_bytes += size
    elif layer == CONTROL:
        totals[0].messages += 1
        totals[0].bytes += size
        if tables.place[slot] < 0:
            totals[0].membership_messages += 1
            totals[0].membership_bytes += size
    else:
        totals[0].failure_messages += 1
        totals[0].failure_bytes += size


@linked
def send_again(world, mail, tables, packet, now_ns):
    """Send a lost packet again, unless its source or its destination no longer runs."""
    slot = np.int64(world.packets[packet].message)
    source = tables.source[slot]
    target = np.int64(tables.target[packet])
    if _is_there(tables, source) and _is_there(tables, target):
        _launch(world, mail, tables, packet, slot, source, target, now_ns)
    else:
        free_packet(world, mail, packet)


@linked
def _is_there(tables, process):
    return tables.processes[process].up == 1 and tables.occupant[tables.processes[process].host] == process


@linked
def arrives_in_order(world, mail, tables, packet, now_ns):
    """May a packet be handled that is at its host? Otherwise it waits for an earlier one, or is dropped."""
    slot = np.int64(world.packets[packet].message)
    source = tables.source[slot]
    target = np.int64(tables.target[packet])
    host = tables.processes[target].host
    origin = tables.processes[source].host
    if not _is_there(tables, target) or tables.occupant[origin] != source:
        _discard(world, mail, packet, now_ns)
        return False
    if tables.side[host] != tables.side[origin]:
        _wait_for_partition(world, mail, tables, packet, now_ns)
        return False
    world.scalars[0].in_network -= 1
    record(world, mail, tracing.RECEIVE, now_ns, packet, target, source, -1)
    if tables.totals[0].ordered == 0 or mail.layers[slot] == FAILURE:
        return True
    if tables.number[packet] != tables.next_in[host, origin]:
        world.packets[packet].next = tables.late[host]
        tables.late[host] = packet
        return False
    tables.next_in[host, origin] += 1
    _release_late(world, tables, host, origin)
    return True


@linked
def _discard(world, mail, packet, now_ns):
    world.scalars[0].drops += 1
    world.scalars[0].in_network -= 1
    record(world, mail, tracing.DROP, now_ns, packet, -1, -1, -1)
    free_packet(world, mail, packet)


@linked
def _wait_for_partition(world, mail, tables, packet, now_ns):
    """Let the source try again after the partition that cuts off the other side; drop packets of a failure detector."""
    slot = np.int64(world.packets[packet].message)
    if mail.layers[slot] == FAILURE:
        _discard(world, mail, packet, now_ns)
        return
    world.scalars[0].drops += 1
    world.scalars[0].in_network -= 1
    record(world, mail, tracing.DROP, now_ns, packet, -1, -1, -1)
    again_ns = max(now_ns + world.scalars[0].resend_ns, tables.totals[0].cut_until_ns)
    schedule(world, again_ns, RESEND, 0, packet, 0)


@linked
def _release_late(world, tables, host, origin):
    """Let the packets that waited for the one just arrived be handled next, in order."""
    found = True
    while found:
        found = False
        before = np.int64(NO_PACKET)
        packet = tables.late[host]
        while packet != NO_PACKET:
            after = np.int64(world.packets[packet].next)
            slot = np.int64(world.packets[packet].message)
            if (
                tables.processes[tables.source[slot]].host == origin
                and tables.number[packet] == tables.next_in[host, origin]
            ):
                if before != NO_PACKET:
                    world.packets[before].next = after
                else:
                    tables.late[host] = after
                tables.next_in[host, origin] += 1
                replay(world, tables, packet)
                found = True
                break
            before = packet
            packet = after


@linked
def replay(world, tables, packet):
    """Handle this packet before anything else, after those already queued for this."""
    world.packets[packet].next = NO_PACKET
    if tables.totals[0].replay == NO_PACKET:
        tables.totals[0].replay = packet
    else:
        world.packets[tables.totals[0].replay_last].next = packet
    tables.totals[0].replay_last = packet


@linked
def next_replayed(world, tables):
    """Take the first of these packets, or NO_PACKET."""
    packet = tables.totals[0].replay
    if packet != NO_PACKET:
        tables.totals[0].replay = np.int64(world.packets[packet].next)
    return packet


@linked
def keep_early(world, tables, process, packet):
    """Keep a packet of a view that this process has not installed yet."""
    world.packets[packet].next = NO_PACKET
    if tables.processes[process].early == NO_PACKET:
        tables.processes[process].early = packet
    else:
        world.packets[tables.processes[process].early_last].next = packet
    tables.processes[process].early_last = packet


@linked
def replay_early(world, tables, process):
    """The view has begun: handle the packets that arrived before."""
    packet = tables.processes[process].early
    tables.processes[process].early = NO_PACKET
    while packet != NO_PACKET:
        after = np.int64(world.packets[packet].next)
        replay(world, tables, packet)
        packet = after


@entry_point
def begin_on(world, mail, tables, process, host):
    """Reset all links of a host on which a new incarnation begins."""
    before = tables.occupant[host]
    if before >= 0:
        _free_list(world, mail, tables.processes[before].early)
        tables.processes[before].early = NO_PACKET
    _free_list(world, mail, tables.late[host])
    tables.late[host] = NO_PACKET
    tables.occupant[host] = process
    tables.processes[process].host = host
    tables.processes[process].up = 1
    if tables.totals[0].ordered == 1:
        for other in range(tables.late.shape[0]):
            tables.next_out[host, other] = 0
            tables.next_in[host, other] = 0
            tables.next_out[other, host] = 0
            tables.next_in[other, host] = 0
            if other != host:
                _forget_origin(world, mail, tables, other, host)


@linked
def _forget_origin(world, mail, tables, host, origin):
    """Drop the packets of an incarnation that no longer runs."""
    kept = np.int64(NO_PACKET)
    packet = tables.late[host]
    while packet != NO_PACKET:
        after = np.int64(world.packets[packet].next)
        slot = np.int64(world.packets[packet].message)
        if tables.processes[tables.source[slot]].host == origin:
            free_packet(world, mail, packet)
        else:
            world.packets[packet].next = kept
            kept = packet
        packet = after
    tables.late[host] = kept


@linked
def _free_list(world, mail, packet):
    while packet != NO_PACKET:
        after = np.int64(world.packets[packet].next)
        free_packet(world, mail, packet)
        packet = after


@linked
def token_of(mail, slot):
    """The Python object of a membership message."""
    return mail.heads[slot].field_1


@linked
def _set_token(mail, slot, token):
    mail.heads[slot].field_1 = token


@entry_point
def post(world, mail, tables, source, targets, sizes, tokens, count, now_ns):
    """Send membership messages; a token identifies the Python object of each."""
    for k in range(count):
        slot = draft(mail, MEMBERSHIP, -1, sizes[k])
        _set_token(mail, slot, tokens[k])
        mail.heads[slot].source = source
        mail.layers[slot] = CONTROL
        tables.source[slot] = source
        tables.place[slot] = -1
        tables.stamp[slot] = -1
        send_copy(world, mail, tables, slot, source, targets[k], now_ns)
    clear_outbox(mail)
    if mail.counts[OVERFLOW] != 0:
        world.scalars[0].error = MAIL_FULL
