"""Rounds that begin when a buffer fills up, and senders that stop when theirs is full (guo ch. 6).

What X should be is `core.stability.trigger`; here it is given.

Every sender has an output buffer of g messages, which keeps each of its messages until it is stable. With the trigger
"buffer" the next round waits until a member that may begin one holds X messages of some sender that are not stable: its
own output buffer, or another's as far as it has seen it, for all senders send at one rate. Once every sender has sent
all it has, nothing would ever reach X again, and rounds begin Δ after one another, as with the trigger "delta".

A sender whose buffer is full does not send. What it had to hold back then, and for how long, is counted; it goes on
as soon as a message becomes stable. An input buffer has room for g messages of each sender; what goes beyond is kept
and counted too, never dropped.

The first round begins at once, as always; it finds the buffers empty.
"""

import numpy as np

from cubecast.core.compiled import internal


@internal
def is_full_enough(books, group, member, sender):
    """Are X messages of this sender waiting here to become stable?"""
    waiting = np.int64(group.received[member, sender]) - np.int64(group.stable[member, sender])
    return waiting >= books.totals[0].trigger_level


@internal
def is_any_full_enough(books, group, member):
    """Are X messages of some sender waiting here?"""
    for sender in range(group.received.shape[1]):
        if is_full_enough(books, group, member, sender):
            return True
    return False


@internal
def holds_round_back(books, group, member, timer, tag, delay_ns):
    """Must the next round wait for a fuller buffer? Then remember what was to happen."""
    if is_any_full_enough(books, group, member):
        return False
    books.members[member].parked = 1
    books.members[member].parked_timer = timer
    books.members[member].parked_tag = tag
    books.members[member].parked_ns = delay_ns
    return True


@internal
def has_no_room(books, group, member):
    """Is the output buffer of a sender full?"""
    room = books.totals[0].buffer_room
    waiting = np.int64(group.received[member, member]) - np.int64(group.stable[member, member])
    return room > 0 and waiting >= room


@internal
def note_blocked(books, member, now_ns):
    """A sender cannot send."""
    books.totals[0].overflows += 1
    books.members[member].blocked_ns = now_ns


@internal
def may_go_on(books, group, member, now_ns):
    """Was a sender held back that has room now?"""
    if books.members[member].blocked_ns < 0 or has_no_room(books, group, member):
        return False
    books.totals[0].blocked_sum_ns += now_ns - books.members[member].blocked_ns
    books.members[member].blocked_ns = -1
    return True


@internal
def note_input(books, group, member, sender):
    """An input buffer has room for g messages of each sender."""
    room = books.totals[0].buffer_room
    if room > 0 and sender != member:
        waiting = np.int64(group.received[member, sender]) - np.int64(group.stable[member, sender])
        if waiting > room:
            books.totals[0].input_overflows += 1
