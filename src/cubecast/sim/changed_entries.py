"""A saving of guo ch. 7, transparent to protocols: only the entries of an array that changed are sent.

An array is sent as a bitmap of m bits and the numbers that differ from S as the sender knew it before this call, if
that is shorter. The receiver fills in the omitted entries from its own S. The result is never premature: every member
holds what is stable, so each R behind the array is at least the receiver's S too. If messages arrive in order, nothing
is lost either: an omitted S arrives, or has arrived, with the round it came from. Only the first array of a message is
shortened; the S that Gossip piggybacks behind M is sent in full.

`world.left_out` (slots × words; one row without the saving) marks the omitted entries of the array in each message.
"""

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.mail import DRAFTED, HEADER_BYTES, NUMBER_BYTES


@linked
def leave_out_unchanged(world, metrics, mail, member):
    """Shorten the arrays in the messages just drafted."""
    width = metrics.seen_stable.shape[1]
    for k in range(mail.counts[DRAFTED]):
        slot = mail.drafts[k]
        rank_sets.clear(world.left_out[slot])
        saved = -((width + 7) // 8)
        for j in range(width):
            if mail.numbers[slot, j] == metrics.seen_stable[member, j]:
                saved += NUMBER_BYTES
        if saved > 0 and mail.heads[slot].size_bytes >= HEADER_BYTES + NUMBER_BYTES * width:
            mail.heads[slot].size_bytes -= saved
            _leave_out(world, metrics, mail, slot, member)


@linked
def _leave_out(world, metrics, mail, slot, member):
    for j in range(metrics.seen_stable.shape[1]):
        if mail.numbers[slot, j] == metrics.seen_stable[member, j]:
            rank_sets.add(world.left_out[slot], j)


@linked
def fill_in_unchanged(world, group, mail, slot, member):
    """Fill in the omitted entries from this receiver's S; each receiver does so with its own."""
    for j in range(group.stable.shape[1]):
        if rank_sets.contains(world.left_out[slot], j):
            mail.numbers[slot, j] = group.stable[member, j]
