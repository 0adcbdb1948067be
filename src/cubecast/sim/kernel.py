"""The event loop: compiled once for every protocol, by the class of its state.

`step` does all that no protocol needs to know: it carries out what the last core called left in the mail, moves
packets, lets faults happen, and stops at the next thing that concerns a core. `run` then calls that core. Only `run`
is compiled anew for every protocol. It can be left and entered again at any point (progress, Ctrl-C, a full trace
buffer), since all state is in the arrays.

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

from collections.abc import Callable
from functools import cache

import numpy as np

from cubecast import trace as tracing
from cubecast.core import bits
from cubecast.core import mail as mailbox
from cubecast.core.compiled import compiled_for, internal
from cubecast.core.dispatch import HEARD, JOIN, LEAVE, PUBLISH, RECEIVE, START, TIMER, call_core
from cubecast.core.mail import clear_outbox
from cubecast.core.random import uniform
from cubecast.sim.books import (
    bring_up_to_date,
    finish_if_all_complete,
    note_delivered,
    note_down,
    note_evicted,
    note_excluded,
    note_held_back,
    note_joined,
    note_released,
    note_round_begun,
    note_round_done,
    note_suspected,
    note_up,
)
from cubecast.sim.events import remove_first_event, schedule
from cubecast.sim.links import PACKET_ARRIVES, advance, enter_processor, free_packet, lose, pass_node, sample_load
from cubecast.sim.output_buffers import (
    has_no_room,
    holds_round_back,
    is_full_enough,
    may_go_on,
    note_blocked,
    note_input,
)
from cubecast.sim.record import record, record_fact
from cubecast.sim.savings import (
    drop_riders,
    fill_in_unchanged,
    leave_out_unchanged,
    let_go,
    next_pending,
    next_rider_for,
    take_riders,
    waits_for_data,
)
from cubecast.sim.transmit import transmit, transmit_to_all
from cubecast.sim.world import CORE_FULL, MAIL_FULL

# Events besides PACKET_ARRIVES.
BEGIN, WAKE, WAKE_DATA, CRASH, RECOVER, EVICT, SUSPECT, EXCLUDE, SEND_DATA, SPLIT = range(1, 11)
ENTER, INCLUDE, COUNTS = range(11, 14)
WAKE_FAILURE, LASTED, SAMPLE = range(14, 17)
GOODBYE, CONFIRM = range(17, 19)
FLUSH = 19

# What `call` says: which core to call, and with what.
LAYER, WHAT, MEMBER, A, B, NOW_NS, PACKET = range(7)

# How `step` and `run` end.
PAUSED, FINISHED, STUCK, OUT_OF_TIME, FAILED, CALL = range(6)

_FOREVER = np.int64(1) << 62


def run(world, books, mail, group, control, data, failure, faults, call, until_ns, budget):
    """Go on for at most `budget` calls of a core. Plain here: `run_for` compiles it for given states."""
    for _ in range(budget):
        status = step(world, books, mail, group, faults, call, until_ns, budget)
        if status != CALL:
            return status
        if call[LAYER] == mailbox.CONTROL:
            call_core(control, call[MEMBER], call[NOW_NS], mail, call[WHAT], call[A], call[B])
        elif call[LAYER] == mailbox.DATA:
            call_core(data, call[MEMBER], call[NOW_NS], mail, call[WHAT], call[A], call[B])
        else:
            call_core(failure, call[MEMBER], call[NOW_NS], mail, call[WHAT], call[A], call[B])
    return PAUSED


@cache
def run_for(*states: type) -> Callable[..., int]:
    """`run`, compiled for these classes of states and cached with their protocols."""
    return compiled_for(run, states)


@internal
def step(world, books, mail, group, faults, call, until_ns, budget):
    """Finish the last call and go on to the next one, or to the end."""
    scalars = world.scalars
    if call[WHAT] >= 0 and _finish_call(world, books, mail, group, call):
        return CALL
    for _ in range(budget):
        if scalars[0].error != 0:
            return FAILED
        if scalars[0].tracing != 0 and scalars[0].trace_size * 2 > world.trace.shape[0]:
            return PAUSED
        if books.totals[0].finished == 1 and scalars[0].next_sample_ns != _FOREVER:
            sample_load(scalars, scalars[0].now_ns)
            scalars[0].next_sample_ns = _FOREVER  # what still drains is no part of the run
        last_ns = _FOREVER if books.totals[0].finished == 1 else until_ns
        packet = advance(world, mail, min(_next_event_ns(world), last_ns), budget)
        if packet >= 0:
            if _arrive(world, books, mail, group, call, packet):
                return CALL
        elif packet == -2:
            return FAILED if scalars[0].error != 0 else PAUSED
        elif scalars[0].events_size == 0 and scalars[0].due_size == 0:
            return FINISHED if books.totals[0].finished == 1 else STUCK
        elif _next_event_ns(world) > last_ns:
            return OUT_OF_TIME
        elif _next_event(world, books, mail, group, faults, call):
            return CALL
    return PAUSED


@internal
def _next_event_ns(world):
    return world.events[0].time_ns if world.scalars[0].events_size > 0 else _FOREVER


@internal
def _set_call(call, layer, what, member, a, b, now_ns):
    call[LAYER] = layer
    call[WHAT] = what
    call[MEMBER] = member
    call[A] = a
    call[B] = b
    call[NOW_NS] = now_ns


@internal
def _finish_call(world, books, mail, group, call):
    """Do what the core asked for; returns whether the same event concerns another layer too."""
    _carry_out(world, books, mail, group, call[MEMBER], call[LAYER], call[NOW_NS])
    detecting = books.totals[0].detecting == 1
    if call[WHAT] == RECEIVE:
        if world.riders.shape[0] > 1:
            rider = next_rider_for(world, call[A], call[MEMBER])
            if rider > 0:
                _let_receive(world, mail, group, call, call[MEMBER], rider, call[NOW_NS])
                return True
        source = mail.heads[call[A]].source
        heard = detecting and mail.layers[world.packets[call[PACKET]].message] == mailbox.DATA
        free_packet(world, mail, call[PACKET])
        if heard:
            _set_call(call, mailbox.FAILURE, HEARD, call[MEMBER], source, 0, call[NOW_NS])
            return True
    elif (call[WHAT] == START or call[WHAT] == LEAVE or call[WHAT] == JOIN) and call[LAYER] == mailbox.DATA:
        call[LAYER] = mailbox.CONTROL
        return True
    elif detecting and (call[WHAT] == START or call[WHAT] == LEAVE) and call[LAYER] == mailbox.CONTROL:
        call[LAYER] = mailbox.FAILURE
        return True
    call[WHAT] = -1
    return False


@internal
def _next_event(world, books, mail, group, faults, call):
    """Take the next event; returns whether it concerns a core."""
    event = world.events[0]
    now_ns = event.time_ns
    what, member, a, b = event.what, event.member, event.a, event.b
    remove_first_event(world)
    if books.totals[0].finished == 1 and what != PACKET_ARRIVES:
        return False
    world.scalars[0].now_ns = now_ns
    if now_ns >= world.scalars[0].next_sample_ns:
        sample_load(world.scalars, now_ns - 1)
    if what == PACKET_ARRIVES:
        return _arrive_late(world, books, mail, group, call, member, a, now_ns)
    if what == COUNTS and books.members[member].up == 1:
        bring_up_to_date(world, books, group, member, now_ns)
        record_fact(world, tracing.RECOVER, now_ns, member, -1, -1, -1, 0)
        return False
    if what == CRASH or what == RECOVER or what == EVICT or what == SUSPECT or what == SPLIT:
        _fault(world, books, group, faults, what, member, a, now_ns)
        return False
    if what == ENTER:
        _enter_group(world, books, group, faults, member, now_ns)
        _set_call(call, mailbox.DATA, START, member, a, b, now_ns)
        return True
    if what == LASTED:
        books.totals[0].lasting = 0
        finish_if_all_complete(books)
        return False
    if what == SAMPLE:
        _sample_buffers(world, books, a, now_ns)
        return False
    if books.members[member].up == 0:
        _postpone(world, books, what, member, a, b)
        return False
    if what == SEND_DATA and has_no_room(books, group, member):
        note_blocked(books, member, now_ns)
        return False
    if what == EXCLUDE and not bits.contains(group.members[member], a) and books.totals[0].self_joining == 0:
        return False
    if what == INCLUDE and books.members[a].evicted == 1:
        return False
    if what == FLUSH:
        _flush(world, books, mail, member, a, now_ns)
        return False
    if what == GOODBYE:
        _tell_all(world, books, faults, EXCLUDE, member, now_ns)
        _set_call(call, mailbox.DATA, LEAVE, member, member, 0, now_ns)
        return True
    _wake(world, books, group, call, what, member, a, b, now_ns)
    return True


@internal
def _wake(world, books, group, call, what, member, a, b, now_ns):
    """Something is due at a member that is up."""
    if what == WAKE:
        _set_call(call, mailbox.CONTROL, TIMER, member, a, b, now_ns)
    elif what == WAKE_DATA:
        _set_call(call, mailbox.DATA, TIMER, member, a, b, now_ns)
    elif what == WAKE_FAILURE:
        _set_call(call, mailbox.FAILURE, TIMER, member, a, b, now_ns)
    elif what == BEGIN:
        _set_call(call, mailbox.DATA, START, member, a, b, now_ns)
    elif what == EXCLUDE:
        bits.discard(group.members[member], a)
        record_fact(world, tracing.EXCLUDE, now_ns, member, a, -1, -1, 0)
        note_excluded(books, a, now_ns)
        _set_call(call, mailbox.DATA, LEAVE, member, a, b, now_ns)
    elif what == CONFIRM:
        _set_call(call, mailbox.DATA, TIMER, member, np.int64(-1), a, now_ns)
    elif what == INCLUDE:
        bits.add(group.members[member], a)
        _set_call(call, mailbox.DATA, JOIN, member, a, b, now_ns)
    else:
        _note_published(world, books, member, now_ns)
        _set_call(call, mailbox.DATA, PUBLISH, member, a, b, now_ns)


@internal
def _note_published(world, books, member, now_ns):
    """The application of a sender multicasts its next data message, and says when the one after is due."""
    sequence = books.published[member] + 1
    books.published[member] = sequence
    books.sent_ns[member, sequence] = now_ns
    if sequence < books.totals[0].data_wanted:
        schedule(world, now_ns + books.totals[0].data_interval_ns, SEND_DATA, member, 0, 0)
        return
    books.totals[0].senders_left -= 1
    _let_rounds_go(world, books, now_ns)


@internal
def _postpone(world, books, what, member, a, b):
    """A member that is down wakes late, or never."""
    if books.members[member].evicted == 0 and books.members[member].recover_ns >= 0:
        schedule(world, books.members[member].recover_ns, what, member, a, b)


@internal
def _fault(world, books, group, faults, what, member, a, now_ns):
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


@internal
def _evict(world, books, group, faults, member, now_ns):
    """The failure detectors of the others report it, each in its own time."""
    if books.members[member].evicted == 1:
        return
    note_evicted(books, group, member)
    _let_rounds_go(world, books, now_ns)
    _tell_all(world, books, faults, EXCLUDE, member, now_ns)


@internal
def _tell_all(world, books, faults, what, member, now_ns):
    """Every other member hears of a newcomer or of one that is gone, within the detector's spread."""
    for other in range(books.members.shape[0]):
        if other != member and books.members[other].evicted == 0:
            late_ns = np.int64(uniform(faults.random) * faults.spread_ns)
            schedule(world, now_ns + late_ns, what, other, member, 0)


@internal
def _enter_group(world, books, group, faults, member, now_ns):
    """A newcomer begins; the others hear of it, each in its own time, and from then on it counts."""
    guide = np.int64(-1)
    for other in range(books.members.shape[0] - 1, -1, -1):
        if books.members[other].up == 1:
            guide = np.int64(other)
    if guide >= 0:
        bits.copy(group.members[member], group.members[guide])
    bits.add(group.members[member], member)
    note_joined(books, member)
    _tell_all(world, books, faults, INCLUDE, member, now_ns)
    if books.totals[0].self_joining == 1:
        record_fact(world, tracing.RECOVER, now_ns, member, -1, -1, -1, 0)
        return
    bring_up_to_date(world, books, group, member, now_ns)
    schedule(world, now_ns + faults.spread_ns, COUNTS, member, 0, 0)


@internal
def _arrive_late(world, books, mail, group, call, node, packet, now_ns):
    """A packet that travelled on its own reaches a node."""
    if world.scalars[0].processors != 0:
        enter_processor(world, mail, node, packet, now_ns)
        return False
    arrived = pass_node(world, mail, node, packet, now_ns)
    return arrived >= 0 and _arrive(world, books, mail, group, call, arrived)


@internal
def _arrive(world, books, mail, group, call, packet):
    """A message copy reached its member's node; returns whether the member takes it."""
    now_ns = world.scalars[0].now_ns
    slot = np.int64(world.packets[packet].message)
    member = np.int64(world.member_at[world.packets[packet].to])
    source = mail.heads[slot].source
    cut = books.members[member].side != books.members[source].side
    if books.members[member].up == 0 or cut:
        lose(world, mail, packet, -1, now_ns)
        return False
    world.scalars[0].in_network -= 1
    if books.totals[0].finished == 1:
        free_packet(world, mail, packet)
        return False
    record(world, mail, tracing.RECEIVE, now_ns, packet, member, source, -1)
    _let_receive(world, mail, group, call, member, slot, now_ns)
    call[PACKET] = packet
    return True


@internal
def _let_receive(world, mail, group, call, member, slot, now_ns):
    """Hand a message to the layer it is for."""
    if world.left_out.shape[0] > 1 and mail.layers[slot] == mailbox.CONTROL:
        fill_in_unchanged(world, group, mail, slot, member)
    _set_call(call, mail.layers[slot], RECEIVE, member, slot, 0, now_ns)


@internal
def _depart(world, books, member, now_ns):
    """A member that was told to leave has gone by itself; the membership service confirms it to everybody."""
    books.members[member].evicted = 1
    note_down(world, books, member, now_ns)
    for other in range(books.members.shape[0]):
        if books.members[other].evicted == 0:
            schedule(world, now_ns, CONFIRM, other, member, 0)


@internal
def _carry_out(world, books, mail, group, member, layer, now_ns):
    """Do what the core asked for, in order."""
    riding = world.riders.shape[0] > 1
    if world.left_out.shape[0] > 1 and layer == mailbox.CONTROL:
        leave_out_unchanged(world, books, mail, member)
    for place in range(mail.counts[mailbox.WAITING]):
        action = mail.actions[place]
        a = action.a
        if action.what == mailbox.SEND or action.what == mailbox.MULTICAST:
            to = a if action.what == mailbox.SEND else np.int64(-1)
            if riding and _rides(world, books, mail, action.slot, member, to, layer, now_ns):
                continue
            _transmit(world, books, mail, action.slot, member, to, layer, now_ns)
        elif action.what == mailbox.TIMER:
            _schedule_wake(world, layer, member, a, action.b, now_ns + action.delay_ns)
        elif action.what == mailbox.NEXT_ROUND:
            if action.b < books.totals[0].rounds_wanted or books.totals[0].data_wanted > 0:
                _wait_for_round(world, books, group, member, a, action.b, action.delay_ns)
        elif action.what == mailbox.ROUND_BEGUN:
            note_round_begun(world, books, member, a, now_ns)
        elif action.what == mailbox.ROUND_DONE:
            note_round_done(world, books, group, member, a, now_ns)
            _go_on_sending(world, books, group, member, now_ns)
        elif action.what == mailbox.RELEASED:
            note_released(world, books, group, member, now_ns)
            _go_on_sending(world, books, group, member, now_ns)
        elif action.what == mailbox.SUSPECT:
            _suspect(world, books, group, member, a, now_ns)
        elif action.what == mailbox.DELIVER:
            note_delivered(world, books, member, a, action.b, now_ns)
            note_input(books, group, member, a)
            if books.members[member].parked == 1 and is_full_enough(books, group, member, a):
                _let_round_begin(world, books, member, now_ns)
        elif action.what == mailbox.HELD_BACK:
            note_held_back(books, a)
        elif action.what == mailbox.ADOPT:
            record_fact(world, tracing.DELIVER, now_ns, member, action.delay_ns, -1, a, action.b)
        else:
            _depart(world, books, member, now_ns)
    if riding:
        _drop_lost_riders(world, mail)
    clear_outbox(mail)
    if mail.counts[mailbox.OVERFLOW] != 0:
        world.scalars[0].error = MAIL_FULL if mail.counts[mailbox.OVERFLOW] == mailbox.POOL_FULL else CORE_FULL


@internal
def _transmit(world, books, mail, slot, member, to, layer, now_ns):
    """Send to one member, or to everyone (−1)."""
    if to >= 0:
        transmit(world, books, mail, slot, member, to, layer, now_ns)
    else:
        transmit_to_all(world, books, mail, slot, member, layer, now_ns)


@internal
def _rides(world, books, mail, slot, member, to, layer, now_ns):
    """Does a control message wait for data? A data message takes along those that wait."""
    if layer == mailbox.DATA and to < 0:
        take_riders(world, books, mail, slot, member)
    return layer == mailbox.CONTROL and waits_for_data(world, books, mail, slot, member, to, FLUSH, now_ns)


@internal
def _flush(world, books, mail, member, tag, now_ns):
    """No data came by in time: the control messages travel alone."""
    if books.members[member].pending_tag != tag:
        return
    slot = next_pending(world, books, member)
    while slot > 0:
        _transmit_alone(world, books, mail, slot, member, now_ns)
        let_go(mail, slot)
        slot = next_pending(world, books, member)


@internal
def _transmit_alone(world, books, mail, slot, member, now_ns):
    """Bits of all members stand for a multicast."""
    layer = np.int64(mailbox.CONTROL)
    members = books.members.shape[0]
    if bits.count(world.rides_to[slot]) == members:
        transmit_to_all(world, books, mail, slot, member, layer, now_ns)
        return
    for rank in range(members):
        if bits.contains(world.rides_to[slot], rank):
            transmit(world, books, mail, slot, member, np.int64(rank), layer, now_ns)


@internal
def _drop_lost_riders(world, mail):
    """A data message lost in the act of sending takes its riders with it."""
    for k in range(mail.counts[mailbox.DRAFTED]):
        slot = mail.drafts[k]
        if mail.heads[slot].copies == 1 and mail.layers[slot] == mailbox.DATA:
            drop_riders(world, mail, slot)


@internal
def _schedule_wake(world, layer, member, timer, tag, time_ns):
    """A timer of one of the three layers."""
    what = WAKE
    if layer == mailbox.DATA:
        what = WAKE_DATA
    elif layer == mailbox.FAILURE:
        what = WAKE_FAILURE
    schedule(world, time_ns, what, member, timer, tag)


@internal
def _suspect(world, books, group, member, rank, now_ns):
    """The detector of `member` gives up on `rank`, which leaves its membership before anything else happens to it."""
    if bits.contains(group.members[member], rank):
        note_suspected(world, books, group, rank, now_ns)
        _let_rounds_go(world, books, now_ns)
        schedule(world, now_ns, EXCLUDE, member, rank, 0)


@internal
def _wait_for_round(world, books, group, member, timer, tag, delay_ns):
    """Δ after the last round, or when the buffers are full enough: at once when they are already."""
    now_ns = world.scalars[0].now_ns
    if books.totals[0].triggered == 0 or books.totals[0].senders_left == 0:
        schedule(world, now_ns + delay_ns, WAKE, member, timer, tag)
    elif not holds_round_back(books, group, member, timer, tag, delay_ns):
        schedule(world, now_ns, WAKE, member, timer, tag)


@internal
def _let_round_begin(world, books, member, time_ns):
    books.members[member].parked = 0
    schedule(world, time_ns, WAKE, member, books.members[member].parked_timer, books.members[member].parked_tag)


@internal
def _let_rounds_go(world, books, now_ns):
    """Nobody will send any more: rounds that wait for a fuller buffer begin Δ from now."""
    if books.totals[0].senders_left == 0:
        for member in range(books.members.shape[0]):
            if books.members[member].parked == 1:
                _let_round_begin(world, books, member, now_ns + books.members[member].parked_ns)


@internal
def _go_on_sending(world, books, group, member, now_ns):
    """A sender that was held back has room again."""
    if may_go_on(books, group, member, now_ns):
        schedule(world, now_ns, SEND_DATA, member, 0, 0)


@internal
def _sample_buffers(world, books, interval_ns, now_ns):
    """One more point of the time series of what the buffers hold."""
    place = books.totals[0].samples
    if place < books.held_series.shape[0]:
        books.held_series[place] = world.scalars[0].held
        books.totals[0].samples = place + 1
        schedule(world, now_ns + interval_ns, SAMPLE, 0, interval_ns, 0)
