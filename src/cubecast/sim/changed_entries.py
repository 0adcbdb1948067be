"""A saving of guo ch. 7 that no protocol needs to know of: only the entries that changed are sent.

An array is sent as a bitmap of m bits and the numbers that differ from S as the sender knew it before this call, where
that is shorter. The receiver takes its own S for what was left out. That is never premature: what is stable,
everybody holds, so each R behind the array is at least the receiver's S too. Nor is anything lost, where messages
arrive in order: the S that was left out arrives, or arrived, with the round it came from. Only the first array of a
message is shortened; the S that Gossip piggybacks behind M goes in full.

`world.left_out` (slots × words; one row without the saving) says which entries were left out of the array in each
message.
"""

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.mail import DRAFTED, HEADER_BYTES, NUMBER_BYTES


@linked
def leave_out_unchanged(world, metrics, mail, member):
    """Shorten the arrays among the messages just drafted."""
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
    """What was left out is what this receiver knows to be stable. Each receiver fills it in anew."""
    for j in range(group.stable.shape[1]):
        if rank_sets.contains(world.left_out[slot], j):
            mail.numbers[slot, j] = group.stable[member, j]
