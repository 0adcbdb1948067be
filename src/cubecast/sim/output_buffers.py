"""Rounds that begin when a buffer fills up, and senders that stop when their buffer is full (guo ch. 6).

`models.trigger_level` computes X; here it is given.

Every sender has an output buffer of g messages, which keeps each of its messages until it is stable. With the trigger
"buffer" the next round waits until a member that may begin one holds X unstable messages of some sender, at least one:
those in its own output buffer, or those it has received from another sender, since all senders send at the same rate.
Once every sender has sent all its messages, no buffer would reach X again; then rounds begin Δ after one another, as
with the trigger "delta".

A sender whose buffer is full does not send. The messages it holds back, and for how long, are counted; it continues as
soon as a message becomes stable. An input buffer has room for g messages of each sender; messages beyond that are kept
and counted too, never dropped.

The first round begins at once, as always; it finds the buffers empty.
"""

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.sim.events import SAMPLE, SEND_DATA, WAKE, schedule


@linked
def is_full_enough(metrics, group, member, sender):
    """Are X messages of this sender waiting here to become stable? With X = 0, any: other rounds would free nothing."""
    waiting = np.int64(group.received[member, sender]) - np.int64(group.stable[member, sender])
    return waiting > 0 and waiting >= metrics.totals[0].trigger_level


@linked
def is_any_full_enough(metrics, group, member):
    """Are X messages of some sender waiting here?"""
    for sender in range(group.received.shape[1]):
        if is_full_enough(metrics, group, member, sender):
            return True
    return False


@linked
def park_round(metrics, group, member, timer, tag, delay_ns):
    """Remember the timer of the next round if the round must wait for a fuller buffer; return whether it must."""
    if is_any_full_enough(metrics, group, member):
        return False
    metrics.members[member].parked = 1
    metrics.members[member].parked_timer = timer
    metrics.members[member].parked_tag = tag
    metrics.members[member].parked_ns = delay_ns
    return True


@linked
def is_buffer_full(metrics, group, member):
    """Is the output buffer of a sender full?"""
    room = metrics.totals[0].buffer_room
    if room == 0:
        return False  # R need not have an entry for the sender: it may share a sequence
    return np.int64(group.received[member, member]) - np.int64(group.stable[member, member]) >= room


@linked
def note_blocked(metrics, member, now_ns):
    """Note that a sender cannot send."""
    metrics.totals[0].overflows += 1
    metrics.members[member].blocked_ns = now_ns


@linked
def unblock_sender(metrics, group, member, now_ns):
    """Unblock a sender that has room again; return whether it was blocked and is not any more."""
    if metrics.members[member].blocked_ns < 0 or is_buffer_full(metrics, group, member):
        return False
    metrics.totals[0].blocked_sum_ns += now_ns - metrics.members[member].blocked_ns
    metrics.members[member].blocked_ns = -1
    return True


@linked
def note_input(metrics, group, member, sender):
    """Count an overflow of an input buffer, which has room for g messages of each sender."""
    room = metrics.totals[0].buffer_room
    if room > 0 and sender != member:
        waiting = np.int64(group.received[member, sender]) - np.int64(group.stable[member, sender])
        if waiting > room:
            metrics.totals[0].input_overflows += 1


@linked
def wait_for_round(world, metrics, group, member, timer, tag, delay_ns):
    """Begin the next round Δ after the last, or when the buffers are full enough: at once if they already are."""
    now_ns = world.scalars[0].now_ns
    if metrics.totals[0].triggered == 0 or metrics.totals[0].senders_left == 0:
        schedule(world, now_ns + delay_ns, WAKE, member, timer, tag)
    elif not park_round(metrics, group, member, timer, tag, delay_ns):
        schedule(world, now_ns, WAKE, member, timer, tag)


@linked
def release_round(world, metrics, member, time_ns):
    """Let the waiting round begin at this time."""
    metrics.members[member].parked = 0
    schedule(world, time_ns, WAKE, member, metrics.members[member].parked_timer, metrics.members[member].parked_tag)


@linked
def release_rounds(world, metrics, now_ns):
    """No sender has messages left: let rounds that wait for a fuller buffer begin Δ from now."""
    if metrics.totals[0].senders_left == 0:
        for member in range(metrics.members.shape[0]):
            if metrics.members[member].parked == 1:
                release_round(world, metrics, member, now_ns + metrics.members[member].parked_ns)


@linked
def resume_sender(world, metrics, group, member, now_ns):
    """Let a blocked sender continue, which has room again."""
    if unblock_sender(metrics, group, member, now_ns):
        schedule(world, now_ns, SEND_DATA, member, 0, 0)


@linked
def sample_buffers(world, metrics, interval_ns, now_ns):
    """Add a point to the time series of the buffers' contents."""
    place = metrics.totals[0].samples
    if place < metrics.held_series.shape[0]:
        metrics.held_series[place] = world.scalars[0].held
        metrics.totals[0].samples = place + 1
        schedule(world, now_ns + interval_ns, SAMPLE, 0, interval_ns, 0)
