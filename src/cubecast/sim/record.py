"""Write rows of the event trace from inside the kernel.

The kernel stops when half of the buffer is filled, and Python writes the rows out; `cubecast.trace.schema` documents
the columns.
"""

from cubecast.jit.decorators import linked
from cubecast.sim.world import TRACE_FULL
from cubecast.trace import schema as tracing


@linked
def record(world, mail, event, time_ns, packet, member, peer, link):
    """Write a row about a message copy: send, hop, drop, receive."""
    if world.scalars[0].tracing == 0:
        return
    slot = world.packets[packet].message
    head = mail.heads[slot]
    row = _blank_row(world, event, time_ns, member, peer)
    row.message = world.numbers[packet]
    row.size = world.packets[packet].size_bytes
    row.round = head.round_number
    row.layer = mail.layers[slot]  # kinds have the same numbers in the mail and in the trace
    row.link = link
    row.sender = head.sender
    row.sequence = head.sequence
    if event == tracing.HOP:
        row.entered_ns = world.entered_ns[packet]


@linked
def record_fact(world, event, time_ns, member, peer, round_number, sender, sequence):
    """Write a row about a member: deliver, stable, crash, recover, exclude, round, done."""
    if world.scalars[0].tracing == 0:
        return
    row = _blank_row(world, event, time_ns, member, peer)
    row.round = round_number
    row.sender = sender
    row.sequence = sequence


@linked
def _blank_row(world, event, time_ns, member, peer):
    place = world.scalars[0].trace_size
    if place + 1 < world.trace.shape[0]:
        world.scalars[0].trace_size = place + 1
    else:
        world.scalars[0].error = TRACE_FULL
    row = world.trace[place]
    row.time_ns = time_ns
    row.event = event
    row.member = member
    row.peer = peer
    row.message = -1
    row.sender = -1
    row.sequence = 0
    row.round = -1
    row.link = -1
    row.entered_ns = time_ns
    row.size = 0
    row.layer = tracing.CONTROL
    return row
