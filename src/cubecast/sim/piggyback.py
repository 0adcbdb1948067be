"""A saving of guo ch. 7 that no protocol needs to know of: control messages ride on data.

Control messages of a member that is about to multicast data wait for that message, at most for the time between two of
them, and travel inside: no header, no processing of their own. Members they are not for ignore them. What waits leaves
in the order in which it was sent.

| field               | shape              | meaning                                                                   |
|---------------------|--------------------|---------------------------------------------------------------------------|
| world.riders        | slots, or 1        | the first control message inside a data message, and the next one         |
|                     |                    | behind a control message that waits or travels so; 0 for none             |
| world.rides_to      | slots × words or 1 | for whom each of those control messages is: a set of ranks                |
| members.pending     | n                  | the first control message that waits for data, 0 for none                 |
| members.pending_tag | n                  | tells these from those that waited before, for their deadline             |

Without the saving the arrays have one row and nothing else happens. A control message that waits or rides counts as one
copy of itself, until the data message it is in is gone.
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
def rides(world, books, mail, slot, member, to, layer, now_ns):
    """Does a control message wait for data? A data message takes along those that wait."""
    if layer == DATA and to < 0:
        take_riders(world, books, mail, slot, member)
    return layer == CONTROL and waits_for_data(world, books, mail, slot, member, to, now_ns)


@linked
def waits_for_data(world, books, mail, slot, member, to, now_ns):
    """Hold a control message back until the member's next data message, if there is one to come."""
    first = books.members[member].pending
    if first == 0 and not _sends_soon(books, member):
        return False
    last = _find(world, first, slot)
    if last != slot:
        _queue(world, books, mail, slot, member, last)
        if first == 0:
            tag = books.members[member].pending_tag + 1
            books.members[member].pending_tag = tag
            schedule(world, now_ns + books.totals[0].data_interval_ns, FLUSH, member, tag, 0)
    if to != EVERYONE:
        rank_sets.add(world.rides_to[slot], to)
        return True
    for rank in range(books.members.shape[0]):
        rank_sets.add(world.rides_to[slot], rank)
    return True


@linked
def _sends_soon(books, member):
    """Has the member more data to multicast, and room to keep it?"""
    is_sender = member < books.published.shape[0]
    return is_sender and books.published[member] < books.totals[0].data_wanted and books.members[member].blocked_ns < 0


@linked
def _find(world, first, slot):
    """This message among those that wait, or the last of them; 0 where none does."""
    place = first
    while place != slot and place > 0 and world.riders[place] > 0:
        place = world.riders[place]
    return place


@linked
def _queue(world, books, mail, slot, member, last):
    if last == 0:
        books.members[member].pending = slot
    else:
        world.riders[last] = slot
    world.riders[slot] = 0
    rank_sets.clear(world.rides_to[slot])
    mail.heads[slot].copies += 1
    mail.heads[slot].source = member
    mail.layers[slot] = CONTROL


@linked
def take_riders(world, books, mail, slot, member):
    """The data message in `slot` takes along what waits."""
    rider = books.members[member].pending
    if rider == 0 or mail.heads[slot].kind != PAYLOAD:
        return
    books.members[member].pending = 0
    world.riders[slot] = rider
    while rider > 0:
        books.totals[0].rides += 1
        mail.heads[slot].size_bytes += mail.heads[rider].size_bytes - HEADER_BYTES
        rider = world.riders[rider]


@linked
def next_rider_for(world, slot, member):
    """The next control message for this member, inside a data message or behind such a one; 0 for none."""
    rider = world.riders[slot]
    while rider > 0 and not rank_sets.contains(world.rides_to[rider], member):
        rider = world.riders[rider]
    return rider


@linked
def drop_riders(world, mail, slot):
    """The data message is gone, and with it what it carried."""
    rider = world.riders[slot]
    world.riders[slot] = 0
    while rider > 0:
        following = world.riders[rider]
        world.riders[rider] = 0
        let_go(mail, rider)
        rider = following


@linked
def drop_lost_riders(world, mail):
    """A data message lost in the act of sending takes its riders with it."""
    for k in range(mail.counts[DRAFTED]):
        slot = mail.drafts[k]
        if mail.heads[slot].copies == 1 and mail.layers[slot] == DATA:
            drop_riders(world, mail, slot)


@linked
def let_go(mail, slot):
    """Give up one copy of a message that is in no packet."""
    mail.heads[slot].copies -= 1
    if mail.heads[slot].copies == 0:
        release(mail, slot)


@linked
def next_pending(world, books, member):
    """Take the first message that waits out of the queue; 0 for none."""
    slot = books.members[member].pending
    if slot > 0:
        books.members[member].pending = world.riders[slot]
        world.riders[slot] = np.int64(0)
    return slot
