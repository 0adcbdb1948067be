"""A saving of guo ch. 7, transparent to protocols: control messages are piggybacked on data messages.

Control messages of a member that is about to multicast data wait for that message, at most for the time between two
data messages, and travel inside it, without a header and processing of their own. Members to which they are not
addressed ignore them. Waiting messages leave in the order in which they were sent.

| field                | shape              | meaning                                                                  |
|----------------------|--------------------|--------------------------------------------------------------------------|
| world.piggyback      | slots, or 1        | the first control message inside a data message, and the next one        |
|                      |                    | behind a control message that waits or travels so; 0 for none            |
| world.piggybacked_to | slots × words or 1 | the set of ranks to which each of those control messages is addressed    |
| members.pending      | n                  | the first control message that waits for data, 0 for none                |
| members.pending_tag  | n                  | distinguishes these from earlier ones, for their deadline                |

Without the saving the arrays have one row and nothing else happens. A control message that waits or is piggybacked
counts as one copy of itself, until the data message it is in is gone.
"""

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.mail import (
    CONTROL,
    DATA,
    DRAFTED,
    HEADER_BYTES,
    PAYLOAD,
    release,
)
from cubecast.sim.events import FLUSH, schedule

EVERYONE = -1


@linked
def try_piggyback(world, metrics, mail, slot, member, to, layer, now_ns):
    """Attach waiting control messages to a data message; return whether a control message waits for data instead."""
    if layer == DATA and to < 0:
        take_piggyback(world, metrics, mail, slot, member)
    return layer == CONTROL and hold_for_data(world, metrics, mail, slot, member, to, now_ns)


@linked
def hold_for_data(world, metrics, mail, slot, member, to, now_ns):
    """Hold a control message back until the member's next data message, if there will be one."""
    first = metrics.members[member].pending
    if first == 0 and not _sends_soon(metrics, member):
        return False
    last = _find(world, first, slot)
    if last != slot:
        _queue(world, metrics, mail, slot, member, last)
        if first == 0:
            tag = metrics.members[member].pending_tag + 1
            metrics.members[member].pending_tag = tag
            schedule(world, now_ns + metrics.totals[0].data_interval_ns, FLUSH, member, tag, 0)
    if to != EVERYONE:
        rank_sets.add(world.piggybacked_to[slot], to)
        return True
    for rank in range(metrics.members.shape[0]):
        rank_sets.add(world.piggybacked_to[slot], rank)
    return True


@linked
def _sends_soon(metrics, member):
    """Does the member have more data to multicast, and room to keep it?"""
    is_sender = member < metrics.published.shape[0]
    return (
        is_sender
        and metrics.published[member] < metrics.totals[0].data_wanted
        and metrics.members[member].blocked_ns < 0
    )


@linked
def _find(world, first, slot):
    """Find this message among the waiting ones, or the last of them; 0 if none waits."""
    place = first
    while place != slot and place > 0 and world.piggyback[place] > 0:
        place = world.piggyback[place]
    return place


@linked
def _queue(world, metrics, mail, slot, member, last):
    if last == 0:
        metrics.members[member].pending = slot
    else:
        world.piggyback[last] = slot
    world.piggyback[slot] = 0
    rank_sets.clear(world.piggybacked_to[slot])
    mail.heads[slot].copies += 1
    mail.heads[slot].source = member
    mail.layers[slot] = CONTROL


@linked
def take_piggyback(world, metrics, mail, slot, member):
    """Attach the waiting control messages to the data message in `slot`."""
    piggybacked = metrics.members[member].pending
    if piggybacked == 0 or mail.heads[slot].kind != PAYLOAD:
        return
    metrics.members[member].pending = 0
    world.piggyback[slot] = piggybacked
    while piggybacked > 0:
        metrics.totals[0].piggybacked += 1
        mail.heads[slot].size_bytes += mail.heads[piggybacked].size_bytes - HEADER_BYTES
        piggybacked = world.piggyback[piggybacked]


@linked
def next_piggybacked_for(world, slot, member):
    """The next control message for this member, inside a data message or behind a piggybacked one; 0 for none."""
    piggybacked = world.piggyback[slot]
    while piggybacked > 0 and not rank_sets.contains(world.piggybacked_to[piggybacked], member):
        piggybacked = world.piggyback[piggybacked]
    return piggybacked


@linked
def drop_piggyback(world, mail, slot):
    """Free the control messages of a data message that is freed."""
    piggybacked = world.piggyback[slot]
    world.piggyback[slot] = 0
    while piggybacked > 0:
        following = world.piggyback[piggybacked]
        world.piggyback[piggybacked] = 0
        free_copy(mail, piggybacked)
        piggybacked = following


@linked
def drop_lost_piggyback(world, mail):
    """Free the control messages of a data message that was lost during sending."""
    for k in range(mail.counts[DRAFTED]):
        slot = mail.drafts[k]
        if mail.heads[slot].copies == 1 and mail.layers[slot] == DATA:
            drop_piggyback(world, mail, slot)


@linked
def free_copy(mail, slot):
    """Free one copy of a message that is in no packet."""
    mail.heads[slot].copies -= 1
    if mail.heads[slot].copies == 0:
        release(mail, slot)


@linked
def next_pending(world, metrics, member):
    """Remove the first waiting message from the queue; 0 if there is none."""
    slot = metrics.members[member].pending
    if slot > 0:
        metrics.members[member].pending = world.piggyback[slot]
        world.piggyback[slot] = np.int64(0)
    return slot
