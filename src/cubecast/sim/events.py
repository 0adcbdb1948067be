"""The events other than hops: timers, faults, sends, packets that are delayed individually.

They wait in a binary heap of records; ties are in the order of scheduling. Hops are in `cubecast.sim.due`.
"""

from cubecast.jit.decorators import entry_point, linked
from cubecast.sim.world import EVENTS_FULL

PACKET_ARRIVES = 0  # a packet that travels outside the lists of the links
BEGIN, WAKE, WAKE_DATA, CRASH, RECOVER, EVICT, SUSPECT, EXCLUDE, SEND_DATA, SPLIT = range(1, 11)
ENTER, INCLUDE, COUNTS = range(11, 14)
WAKE_FAILURE, LASTED, SAMPLE = range(14, 17)
GOODBYE, CONFIRM = range(17, 19)
FLUSH = 19
RESEND = 20  # retransmission of a lost packet by a reliable transport


@entry_point
def schedule(world, time_ns, what, member, a, b):
    """Add an event."""
    scalars = world.scalars
    place = scalars[0].events_size
    if place >= world.events.shape[0]:
        scalars[0].error = EVENTS_FULL
        return
    scalars[0].events_size = place + 1
    order = scalars[0].events_order
    scalars[0].events_order = order + 1
    events = world.events
    while place > 0:
        parent = (place - 1) >> 1
        if events[parent].time_ns <= time_ns:
            break
        events[place] = events[parent]
        place = parent
    events[place].time_ns = time_ns
    events[place].order = order
    events[place].what = what
    events[place].member = member
    events[place].a = a
    events[place].b = b


@entry_point
def schedule_beginnings(world, up):
    """Schedule the start of every member that is up, at time 0 in the order of the ranks."""
    for member in range(up.shape[0]):
        if up[member] == 1:
            schedule(world, 0, BEGIN, member, 0, 0)


@linked
def _is_before(events, one, other):
    if events[one].time_ns != events[other].time_ns:
        return events[one].time_ns < events[other].time_ns
    return events[one].order < events[other].order


@linked
def remove_first_event(world):
    """Remove the event at the root; the last one replaces it and sinks."""
    events = world.events
    size = world.scalars[0].events_size - 1
    world.scalars[0].events_size = size
    if size == 0:
        return
    place = 0
    while True:
        child = 2 * place + 1
        if child >= size:
            break
        if child + 1 < size and _is_before(events, child + 1, child):
            child += 1
        if not _is_before(events, child, size):
            break
        events[place] = events[child]
        place = child
    events[place] = events[size]
