"""Members crash, come back, are put out, join and leave; the others hear of it, each in its own time.

A member that crashes stops sending, receiving and waking; the node under it goes on routing. A timer of a member that
is down waits until it is up again. When the failure detector's delay is over and the member is still down, it is
evicted: it never comes back, and every other member takes it out of its membership within the detector's spread.

A newcomer (guo §3.2) begins with everything that anybody holds, from a late-join handler; the others take it into their
membership within the same spread. Then the handler brings it up to date once more, and from there on it counts: a
result reached without it rests on what some member held before that, so the newcomer holds it too.

Instead of that delay and that spread a *core* may detect failures (`core/failure`), as a third layer of every member's
stack. Its `suspect` takes a rank out of the membership of the member that says so. The first such word puts the
suspect out of the group for good. If it was up, that was a false suspicion: it stops there and then, as if fenced off
(a crash row in the trace), so that nobody calls stable what a member lacks that others still count. The others hear
nothing more of it, and their own detectors find out in their own time.
"""

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.random import uniform
from cubecast.sim.events import CONFIRM, COUNTS, CRASH, EVICT, EXCLUDE, INCLUDE, RECOVER, SPLIT, SUSPECT, schedule
from cubecast.sim.metrics import (
    bring_up_to_date,
    note_down,
    note_evicted,
    note_joined,
    note_suspected,
    note_up,
)
from cubecast.sim.output_buffers import let_rounds_go
from cubecast.sim.record import record_fact
from cubecast.trace import schema as tracing


@linked
def let_fault_happen(world, books, group, faults, what, member, a, now_ns):
    """A crash, a recovery, the end of the detector's delay, a false suspicion, a partition."""
    up = books.members[member].up == 1
    if what == CRASH and up:
        books.members[member].recover_ns = faults.recover_ns[a]
        note_down(world, books, member, now_ns)
        if books.totals[0].detecting == 0:
            schedule(world, now_ns + faults.detect_ns, EVICT, member, 0, 0)
    elif what == RECOVER and not up and books.members[member].evicted == 0:
        note_up(world, books, group, member, now_ns)
    elif what == EVICT and not up:
        _evict(world, books, group, faults, member, now_ns)
    elif what == SUSPECT and up:
        books.members[member].wrongly = 1
        note_down(world, books, member, now_ns)
        _evict(world, books, group, faults, member, now_ns)
    elif what == SPLIT:
        for rank in range(books.members.shape[0]):
            books.members[rank].side = faults.sides[a, rank]


@linked
def _evict(world, books, group, faults, member, now_ns):
    """The failure detectors of the others report it, each in its own time."""
    if books.members[member].evicted == 1:
        return
    note_evicted(books, group, member)
    let_rounds_go(world, books, now_ns)
    tell_all(world, books, faults, EXCLUDE, member, now_ns)


@linked
def suspect(world, books, group, member, rank, now_ns):
    """The detector of `member` gives up on `rank`, which leaves its membership before anything else happens to it."""
    if rank_sets.contains(group.members[member], rank):
        note_suspected(world, books, group, rank, now_ns)
        let_rounds_go(world, books, now_ns)
        schedule(world, now_ns, EXCLUDE, member, rank, 0)


@linked
def tell_all(world, books, faults, what, member, now_ns):
    """Every other member hears of a newcomer or of one that is gone, within the detector's spread."""
    for other in range(books.members.shape[0]):
        if other != member and books.members[other].evicted == 0:
            late_ns = np.int64(uniform(faults.random) * faults.spread_ns)
            schedule(world, now_ns + late_ns, what, other, member, 0)


@linked
def enter_group(world, books, group, faults, member, now_ns):
    """A newcomer begins; the others hear of it, each in its own time, and from then on it counts."""
    guide = np.int64(-1)
    for other in range(books.members.shape[0] - 1, -1, -1):
        if books.members[other].up == 1:
            guide = np.int64(other)
    if guide >= 0:
        rank_sets.copy(group.members[member], group.members[guide])
    rank_sets.add(group.members[member], member)
    note_joined(books, member)
    tell_all(world, books, faults, INCLUDE, member, now_ns)
    if books.totals[0].self_joining == 1:
        record_fact(world, tracing.RECOVER, now_ns, member, -1, -1, -1, 0)
        return
    bring_up_to_date(world, books, group, member, now_ns)
    schedule(world, now_ns + faults.spread_ns, COUNTS, member, 0, 0)


@linked
def count_newcomer(world, books, group, member, now_ns):
    """Everybody has heard of the newcomer: brought up to date once more, it counts."""
    bring_up_to_date(world, books, group, member, now_ns)
    record_fact(world, tracing.RECOVER, now_ns, member, -1, -1, -1, 0)


@linked
def depart(world, books, member, now_ns):
    """A member that was told to leave has gone by itself; the membership service confirms it to everybody."""
    books.members[member].evicted = 1
    note_down(world, books, member, now_ns)
    for other in range(books.members.shape[0]):
        if books.members[other].evicted == 0:
            schedule(world, now_ns, CONFIRM, other, member, 0)


@linked
def postpone(world, books, what, member, a, b):
    """A member that is down wakes late, or never."""
    if books.members[member].evicted == 0 and books.members[member].recover_ns >= 0:
        schedule(world, books.members[member].recover_ns, what, member, a, b)
