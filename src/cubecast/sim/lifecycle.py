"""Members crash, recover, are excluded, join and leave; each other member learns of it at a different time.

A member that crashes stops sending, receiving and waking; its node continues to route. A timer of a member that is down
waits until it is up again. If the member is still down when the failure detector's delay is over, it is evicted: it
never recovers, and every other member removes it from its membership within the detector's spread.

A newcomer (guo §3.2) begins with everything that any member holds, from a late-join handler; the others add it to their
membership within the same spread. Then the handler brings it up to date once more, and from then on it counts: a result
reached without it is based on what some member held before that, so the newcomer holds it too. Both steps take no time,
unless the transport sends the missing messages (`protocol.transport_abilities`): then the newcomer begins with nothing
and counts when it reports that it has caught up.

Instead of that delay and spread a protocol may detect failures (`protocols/failure`), as a third layer of every
member's stack. Its `suspect` removes a rank from the membership of the member that reports it. The first suspicion
excludes the suspect from the group for good. If it was up, the suspicion was false: the member stops at once, as if it
were fenced (a crash row in the trace), so that no message is called stable that a member of the group lacks. The others
get no report; their own detectors suspect it at different times.
"""

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets, shared_sets
from cubecast.protocol.random import uniform
from cubecast.sim.events import CONFIRM, COUNTS, CRASH, EVICT, EXCLUDE, INCLUDE, RECOVER, SPLIT, SUSPECT, schedule
from cubecast.sim.metrics import (
    adopt_rounds,
    bring_up_to_date,
    note_down,
    note_evicted,
    note_joined,
    note_suspected,
    note_up,
)
from cubecast.sim.output_buffers import release_rounds
from cubecast.sim.record import record_fact
from cubecast.sim.world import VIEWS_FULL
from cubecast.trace import schema as tracing


@linked
def apply_fault(world, metrics, group, faults, what, member, a, now_ns):
    """Apply a crash, a recovery, the end of the detector's delay, a false suspicion or a partition."""
    up = metrics.members[member].up == 1
    if what == CRASH and up:
        metrics.members[member].recover_ns = faults.recover_ns[a]
        note_down(world, metrics, member, now_ns)
        if metrics.totals[0].detecting == 0:
            schedule(world, now_ns + faults.detect_ns, EVICT, member, 0, 0)
    elif what == RECOVER and not up and metrics.members[member].evicted == 0:
        note_up(world, metrics, group, member, now_ns)
    elif what == EVICT and not up:
        _evict(world, metrics, group, faults, member, now_ns)
    elif what == SUSPECT and up:
        metrics.members[member].wrongly = 1
        note_down(world, metrics, member, now_ns)
        _evict(world, metrics, group, faults, member, now_ns)
    elif what == SPLIT:
        for rank in range(metrics.members.shape[0]):
            metrics.members[rank].side = faults.sides[a, rank]


@linked
def _evict(world, metrics, group, faults, member, now_ns):
    """Evict a member; the failure detectors of the others report it at different times."""
    if metrics.members[member].evicted == 1:
        return
    note_evicted(metrics, group, member)
    release_rounds(world, metrics, now_ns)
    notify_all(world, metrics, faults, EXCLUDE, member, now_ns)


@linked
def suspect(world, metrics, group, member, rank, now_ns):
    """The detector of `member` suspects `rank`: schedule its removal from the membership before any other event."""
    if rank_sets.contains(group.members[member], rank):
        note_suspected(world, metrics, group, rank, now_ns)
        release_rounds(world, metrics, now_ns)
        schedule(world, now_ns, EXCLUDE, member, rank, 0)


@linked
def notify_all(world, metrics, faults, what, member, now_ns):
    """Schedule the report of a join or an exclusion to every other member, within the detector's spread."""
    for other in range(metrics.members.shape[0]):
        if other != member and metrics.members[other].evicted == 0:
            late_ns = np.int64(uniform(faults.random) * faults.spread_ns)
            schedule(world, now_ns + late_ns, what, other, member, 0)


@linked
def enter_group(world, metrics, group, faults, member, now_ns):
    """A newcomer begins; it counts once each of the others has learned of it."""
    guide = np.int64(-1)
    for other in range(metrics.members.shape[0] - 1, -1, -1):
        if metrics.members[other].up == 1:
            guide = np.int64(other)
    if guide >= 0:
        shared_sets.share(group.members, member, guide)
    if not shared_sets.add(group.members, member, member):
        world.scalars[0].error = VIEWS_FULL
    note_joined(metrics, member)
    notify_all(world, metrics, faults, INCLUDE, member, now_ns)
    if metrics.totals[0].self_joining == 1:
        record_fact(world, tracing.RECOVER, now_ns, member, -1, -1, -1, 0)
        return
    metrics.members[member].joining = 1
    if metrics.totals[0].handing == 0:
        bring_up_to_date(world, metrics, group, member, now_ns)
    schedule(world, now_ns + faults.spread_ns, COUNTS, member, 0, 0)


@linked
def count_newcomer(world, metrics, group, member, now_ns):
    """Every member knows the newcomer: bring it up to date once more; from now on it counts."""
    metrics.members[member].joining = 0
    if metrics.totals[0].handing == 0:
        bring_up_to_date(world, metrics, group, member, now_ns)
    else:
        adopt_rounds(world, metrics, group, member, now_ns)
    record_fact(world, tracing.RECOVER, now_ns, member, -1, -1, -1, 0)


@linked
def depart(world, metrics, member, now_ns):
    """A member that was asked to leave has left; the membership service confirms this to every member."""
    metrics.members[member].evicted = 1
    note_down(world, metrics, member, now_ns)
    for other in range(metrics.members.shape[0]):
        if metrics.members[other].evicted == 0:
            schedule(world, now_ns, CONFIRM, other, member, 0)


@linked
def postpone(world, metrics, what, member, a, b):
    """Postpone an event of a member that is down until it recovers; drop it if that never happens."""
    if metrics.members[member].evicted == 0 and metrics.members[member].recover_ns >= 0:
        schedule(world, metrics.members[member].recover_ns, what, member, a, b)
