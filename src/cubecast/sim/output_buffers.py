"""Rounds that begin when a buffer fills up, and senders that stop when theirs is full (guo ch. 6).

`models.trigger_level` computes X; here it is given.

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

from cubecast.jit.decorators import linked
from cubecast.sim.events import SAMPLE, SEND_DATA, WAKE, schedule


@linked
def is_full_enough(metrics, group, member, sender):
    """Are X messages of this sender waiting here to become stable?"""
    waiting = np.int64(group.received[member, sender]) - np.int64(group.stable[member, sender])
    return waiting >= metrics.totals[0].trigger_level


@linked
def is_any_full_enough(metrics, group, member):
    """Are X messages of some sender waiting here?"""
    for sender in range(group.received.shape[1]):
        if is_full_enough(metrics, group, member, sender):
            return True
    return False


@linked
def holds_round_back(metrics, group, member, timer, tag, delay_ns):
    """Must the next round wait for a fuller buffer? Then remember what was to happen."""
    if is_any_full_enough(metrics, group, member):
        return False
    metrics.members[member].parked = 1
    metrics.members[member].parked_timer = timer
    metrics.members[member].parked_tag = tag
    metrics.members[member].parked_ns = delay_ns
    return True


@linked
def has_no_room(metrics, group, member):
    """Is the output buffer of a sender full?"""
    room = metrics.totals[0].buffer_room
    if room == 0:
        return False  # and R has no entry for a sender that shares a sequence
    return np.int64(group.received[member, member]) - np.int64(group.stable[member, member]) >= room


@linked
def note_blocked(metrics, member, now_ns):
    """A sender cannot send."""
    metrics.totals[0].overflows += 1
    metrics.members[member].blocked_ns = now_ns


@linked
def may_go_on(metrics, group, member, now_ns):
    """Was a sender held back that has room now?"""
    if metrics.members[member].blocked_ns < 0 or has_no_room(metrics, group, member):
        return False
    metrics.totals[0].blocked_sum_ns += now_ns - metrics.members[member].blocked_ns
    metrics.members[member].blocked_ns = -1
    return True


@linked
def note_input(metrics, group, member, sender):
    """An input buffer has room for g messages of each sender."""
    room = metrics.totals[0].buffer_room
    if room > 0 and sender != member:
        waiting = np.int64(group.received[member, sender]) - np.int64(group.stable[member, sender])
        if waiting > room:
            metrics.totals[0].input_overflows += 1


@linked
def wait_for_round(world, metrics, group, member, timer, tag, delay_ns):
    """Δ after the last round, or when the buffers are full enough: at once when they are already."""
    now_ns = world.scalars[0].now_ns
    if metrics.totals[0].triggered == 0 or metrics.totals[0].senders_left == 0:
        schedule(world, now_ns + delay_ns, WAKE, member, timer, tag)
    elif not holds_round_back(metrics, group, member, timer, tag, delay_ns):
        schedule(world, now_ns, WAKE, member, timer, tag)


@linked
def let_round_begin(world, metrics, member, time_ns):
    """The round that waits begins at this time."""
    metrics.members[member].parked = 0
    schedule(world, time_ns, WAKE, member, metrics.members[member].parked_timer, metrics.members[member].parked_tag)


@linked
def let_rounds_go(world, metrics, now_ns):
    """No sender is left: rounds that wait for a fuller buffer begin Δ from now."""
    if metrics.totals[0].senders_left == 0:
        for member in range(metrics.members.shape[0]):
            if metrics.members[member].parked == 1:
                let_round_begin(world, metrics, member, now_ns + metrics.members[member].parked_ns)


@linked
def go_on_sending(world, metrics, group, member, now_ns):
    """A sender that was held back has room again."""
    if may_go_on(metrics, group, member, now_ns):
        schedule(world, now_ns, SEND_DATA, member, 0, 0)


@linked
def sample_buffers(world, metrics, interval_ns, now_ns):
    """One more point of the time series of what the buffers hold."""
    place = metrics.totals[0].samples
    if place < metrics.held_series.shape[0]:
        metrics.held_series[place] = world.scalars[0].held
        metrics.totals[0].samples = place + 1
        schedule(world, now_ns + interval_ns, SAMPLE, 0, interval_ns, 0)
