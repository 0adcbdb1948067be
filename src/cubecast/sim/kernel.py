"""The event loop: compiled once, for all protocols.

`step` does everything that does not involve a protocol: it carries out the actions that the last core left in the mail,
moves packets, applies faults, and stops at the next event for a core. `run` then calls that core, by its address
(`cubecast.protocol.bound`). It can be left and entered again at any point (progress, Ctrl-C, a full trace buffer),
since all state is in the arrays.
"""

import numpy as np

from cubecast.jit.decorators import entry_point, linked
from cubecast.protocol import mail as mailbox
from cubecast.protocol import rank_sets, shared_sets
from cubecast.protocol.bound import call_bound
from cubecast.protocol.handlers import (
    HEARD,
    JOIN,
    LEAVE,
    PUBLISH,
    RECEIVE,
    START,
    TIMER,
)
from cubecast.protocol.mail import clear_outbox
from cubecast.protocol.transport_abilities import CAUGHT_UP
from cubecast.sim.causal_stability import contribute, is_wanted, keep_result, share_result
from cubecast.sim.changed_entries import fill_in_unchanged, leave_out_unchanged
from cubecast.sim.delivery_samples import note_held_back
from cubecast.sim.due import IDLE, WINNER
from cubecast.sim.events import (
    BEGIN,
    CONFIRM,
    COUNTS,
    CRASH,
    ENTER,
    EVICT,
    EXCLUDE,
    FLUSH,
    GOODBYE,
    INCLUDE,
    LASTED,
    PACKET_ARRIVES,
    RECOVER,
    SAMPLE,
    SEND_DATA,
    SPLIT,
    SUSPECT,
    WAKE,
    WAKE_DATA,
    WAKE_FAILURE,
    remove_first_event,
    schedule,
)
from cubecast.sim.lifecycle import (
    apply_fault,
    count_newcomer,
    depart,
    enter_group,
    notify_all,
    postpone,
    suspect,
)
from cubecast.sim.links import advance, enter_processor, free_packet, lose, pass_node, sample_load
from cubecast.sim.metrics import (
    finish_if_all_complete,
    note_causally_stable,
    note_delivered,
    note_excluded,
    note_numbered,
    note_published,
    note_released,
    note_round_begun,
    note_round_done,
)
from cubecast.sim.output_buffers import (
    is_buffer_full,
    is_full_enough,
    note_blocked,
    note_input,
    release_round,
    release_rounds,
    resume_sender,
    sample_buffers,
    wait_for_round,
)
from cubecast.sim.piggyback import drop_lost_piggyback, next_piggybacked_for, try_piggyback
from cubecast.sim.record import record, record_fact
from cubecast.sim.transmit import transmit_pending, transmit_to
from cubecast.sim.world import CORE_FULL, MAIL_FULL, VIEWS_FULL
from cubecast.trace import schema as tracing

# Fields of `call`: which core to call, and with what.
LAYER, WHAT, MEMBER, A, B, NOW_NS, PACKET = range(7)

# Results of `step` and `run`.
PAUSED, FINISHED, STUCK, OUT_OF_TIME, FAILED, CALL = range(6)

_FOREVER = np.int64(1) << 62


@entry_point
def run(world, metrics, mail, group, fold, cores, faults, call, until_ns, budget):
    """Run for at most `budget` calls of a core."""
    for _ in range(budget):
        status = step(world, metrics, mail, group, fold, faults, call, until_ns, budget)
        if status != CALL:
            return status
        if is_wanted(fold) and call[LAYER] == mailbox.CONTROL:
            member = call[MEMBER]
            contribute(fold, group, member, metrics.published[member] if member < len(metrics.published) else 0)
        call_bound(cores, call[LAYER], call[MEMBER], call[NOW_NS], call[WHAT], call[A], call[B])
    return PAUSED


@linked
def step(world, metrics, mail, group, fold, faults, call, until_ns, budget):
    """Finish the last call and continue to the next one, or to the end."""
    scalars = world.scalars
    if call[WHAT] >= 0 and _finish_call(world, metrics, mail, group, fold, call):
        return CALL
    for _ in range(budget):
        if scalars[0].error != 0:
            return FAILED
        if scalars[0].tracing != 0 and scalars[0].trace_size * 2 > world.trace.shape[0]:
            return PAUSED
        if metrics.totals[0].finished == 1 and scalars[0].next_sample_ns != _FOREVER:
            sample_load(scalars, scalars[0].now_ns)
            scalars[0].next_sample_ns = _FOREVER  # packets still in transit are not part of the run
        last_ns = _FOREVER if metrics.totals[0].finished == 1 else until_ns
        packet = advance(world, mail, min(_next_event_ns(world), last_ns), budget)
        if packet >= 0:
            if _arrive(world, metrics, mail, group, call, packet):
                return CALL
        elif packet == -2:
            return FAILED if scalars[0].error != 0 else PAUSED
        elif scalars[0].events_size == 0 and world.due[WINNER] >= IDLE:
            return FINISHED if metrics.totals[0].finished == 1 else STUCK
        elif _next_event_ns(world) > last_ns:
            return OUT_OF_TIME
        elif _next_event(world, metrics, mail, group, faults, call):
            return CALL
    return PAUSED


@linked
def _next_event_ns(world):
    return world.events[0].time_ns if world.scalars[0].events_size > 0 else _FOREVER


@linked
def _set_call(call, layer, what, member, a, b, now_ns):
    call[LAYER] = layer
    call[WHAT] = what
    call[MEMBER] = member
    call[A] = a
    call[B] = b
    call[NOW_NS] = now_ns


@linked
def _finish_call(world, metrics, mail, group, fold, call):
    """Carry out the core's actions; return whether the same event concerns another layer too."""
    _carry_out(world, metrics, mail, group, fold, call[MEMBER], call[LAYER], call[NOW_NS])
    detecting = metrics.totals[0].detecting == 1
    if call[WHAT] == RECEIVE:
        if world.piggyback.shape[0] > 1:
            piggybacked = next_piggybacked_for(world, call[A], call[MEMBER])
            if piggybacked > 0:
                _receive_at(world, mail, group, call, call[MEMBER], piggybacked, call[NOW_NS])
                return True
        source = mail.heads[call[A]].source
        heard = detecting and mail.layers[world.packets[call[PACKET]].message] == mailbox.DATA
        free_packet(world, mail, call[PACKET])
        if heard:
            _set_call(call, mailbox.FAILURE, HEARD, call[MEMBER], source, 0, call[NOW_NS])
            return True
    elif call[WHAT] == JOIN and call[A] == call[MEMBER]:
        pass  # a newcomer may ask for what it lacks; no other layer is concerned
    elif (call[WHAT] == START or call[WHAT] == LEAVE or call[WHAT] == JOIN) and call[LAYER] == mailbox.DATA:
        call[LAYER] = mailbox.CONTROL
        return True
    elif detecting and (call[WHAT] == START or call[WHAT] == LEAVE) and call[LAYER] == mailbox.CONTROL:
        call[LAYER] = mailbox.FAILURE
        return True
    call[WHAT] = -1
    return False


@linked
def _next_event(world, metrics, mail, group, faults, call):
    """Take the next event; return whether it concerns a core."""
    event = world.events[0]
    now_ns = event.time_ns
    what, member, a, b = event.what, event.member, event.a, event.b
    remove_first_event(world)
    if metrics.totals[0].finished == 1 and what != PACKET_ARRIVES:
        return False
    world.scalars[0].now_ns = now_ns
    if now_ns >= world.scalars[0].next_sample_ns:
        sample_load(world.scalars, now_ns - 1)
    if what == PACKET_ARRIVES:
        return _arrive_late(world, metrics, mail, group, call, member, a, now_ns)
    if what == COUNTS and metrics.members[member].up == 1:
        if metrics.totals[0].handing == 1:
            _set_call(call, mailbox.DATA, JOIN, member, member, 0, now_ns)
            return True
        count_newcomer(world, metrics, group, member, now_ns)
        return False
    if what == CRASH or what == RECOVER or what == EVICT or what == SUSPECT or what == SPLIT:
        apply_fault(world, metrics, group, faults, what, member, a, now_ns)
        return False
    if what == ENTER:
        enter_group(world, metrics, group, faults, member, now_ns)
        _set_call(call, mailbox.DATA, START, member, a, b, now_ns)
        return True
    if what == LASTED:
        metrics.totals[0].lasting = 0
        finish_if_all_complete(metrics)
        return False
    if what == SAMPLE:
        sample_buffers(world, metrics, a, now_ns)
        return False
    if metrics.members[member].up == 0:
        postpone(world, metrics, what, member, a, b)
        return False
    if what == SEND_DATA and is_buffer_full(metrics, group, member):
        note_blocked(metrics, member, now_ns)
        return False
    if what == EXCLUDE and not rank_sets.contains(group.members[member], a) and metrics.totals[0].self_joining == 0:
        return False
    if what == INCLUDE and metrics.members[a].evicted == 1:
        return False
    if what == FLUSH:
        transmit_pending(world, metrics, mail, member, a, now_ns)
        return False
    if what == GOODBYE:
        notify_all(world, metrics, faults, EXCLUDE, member, now_ns)
        _set_call(call, mailbox.DATA, LEAVE, member, member, 0, now_ns)
        return True
    _wake(world, metrics, group, call, what, member, a, b, now_ns)
    return True


@linked
def _wake(world, metrics, group, call, what, member, a, b, now_ns):
    """Handle an event that is due at a member that is up."""
    if what == WAKE:
        _set_call(call, mailbox.CONTROL, TIMER, member, a, b, now_ns)
    elif what == WAKE_DATA:
        _set_call(call, mailbox.DATA, TIMER, member, a, b, now_ns)
    elif what == WAKE_FAILURE:
        _set_call(call, mailbox.FAILURE, TIMER, member, a, b, now_ns)
    elif what == BEGIN:
        _set_call(call, mailbox.DATA, START, member, a, b, now_ns)
    elif what == EXCLUDE:
        if not shared_sets.discard(group.members, member, a):
            world.scalars[0].error = VIEWS_FULL
        record_fact(world, tracing.EXCLUDE, now_ns, member, a, -1, -1, 0)
        note_excluded(metrics, a, now_ns)
        _set_call(call, mailbox.DATA, LEAVE, member, a, b, now_ns)
    elif what == CONFIRM:
        _set_call(call, mailbox.DATA, TIMER, member, np.int64(-1), a, now_ns)
    elif what == INCLUDE:
        if not shared_sets.add(group.members, member, a):
            world.scalars[0].error = VIEWS_FULL
        _set_call(call, mailbox.DATA, JOIN, member, a, b, now_ns)
    else:
        _publish_next(world, metrics, member, now_ns)
        _set_call(call, mailbox.DATA, PUBLISH, member, a, b, now_ns)


@linked
def _publish_next(world, metrics, member, now_ns):
    """Multicast the next data message of a sender's application, and schedule the one after it."""
    sequence = metrics.published[member] + 1
    note_published(metrics, member, sequence, now_ns)
    if sequence < metrics.totals[0].data_wanted:
        schedule(world, now_ns + metrics.totals[0].data_interval_ns, SEND_DATA, member, 0, 0)
        return
    metrics.totals[0].senders_left -= 1
    release_rounds(world, metrics, now_ns)


@linked
def _arrive_late(world, metrics, mail, group, call, node, packet, now_ns):
    """Handle a packet that travelled outside the links and reaches a node."""
    if world.scalars[0].processors != 0:
        enter_processor(world, mail, node, packet, now_ns)
        return False
    arrived = pass_node(world, mail, node, packet, now_ns)
    return arrived >= 0 and _arrive(world, metrics, mail, group, call, arrived)


@linked
def _arrive(world, metrics, mail, group, call, packet):
    """Handle a message copy at its member's node; return whether the member takes it."""
    now_ns = world.scalars[0].now_ns
    slot = np.int64(world.packets[packet].message)
    member = np.int64(world.member_at[world.packets[packet].to])
    source = mail.heads[slot].source
    cut = metrics.members[member].side != metrics.members[source].side
    if metrics.members[member].up == 0 or cut:
        lose(world, mail, packet, -1, now_ns)
        return False
    world.scalars[0].in_network -= 1
    if metrics.totals[0].finished == 1:
        free_packet(world, mail, packet)
        return False
    record(world, mail, tracing.RECEIVE, now_ns, packet, member, source, -1)
    _receive_at(world, mail, group, call, member, slot, now_ns)
    call[PACKET] = packet
    return True


@linked
def _receive_at(world, mail, group, call, member, slot, now_ns):
    """Hand a message to the layer it is for."""
    if world.left_out.shape[0] > 1 and mail.layers[slot] == mailbox.CONTROL:
        fill_in_unchanged(world, group, mail, slot, member)
    _set_call(call, mail.layers[slot], RECEIVE, member, slot, 0, now_ns)


@linked
def _carry_out(world, metrics, mail, group, fold, member, layer, now_ns):
    """Carry out the core's actions, in order."""
    piggybacks = world.piggyback.shape[0] > 1
    if world.left_out.shape[0] > 1 and layer == mailbox.CONTROL:
        leave_out_unchanged(world, metrics, mail, member)
    if is_wanted(fold) and layer == mailbox.CONTROL:
        share_result(fold, group, member)
    for place in range(mail.counts[mailbox.WAITING]):
        action = mail.actions[place]
        a = action.a
        if action.what == mailbox.SEND or action.what == mailbox.MULTICAST:
            to = a if action.what == mailbox.SEND else np.int64(-1)
            if piggybacks and try_piggyback(world, metrics, mail, action.slot, member, to, layer, now_ns):
                continue
            transmit_to(world, metrics, mail, action.slot, member, to, layer, now_ns)
        elif action.what == mailbox.TIMER:
            _schedule_wake(world, layer, member, a, action.b, now_ns + action.delay_ns)
        elif action.what == mailbox.NEXT_ROUND:
            if action.b < metrics.totals[0].rounds_wanted or metrics.totals[0].data_wanted > 0:
                wait_for_round(world, metrics, group, member, a, action.b, action.delay_ns)
        elif action.what == mailbox.ROUND_BEGUN:
            note_round_begun(world, metrics, member, a, now_ns)
        elif action.what == mailbox.ROUND_DONE:
            note_round_done(world, metrics, group, member, a, now_ns)
            if is_wanted(fold):
                keep_result(fold, metrics.seen_causal, member)
            resume_sender(world, metrics, group, member, now_ns)
        elif action.what == mailbox.RELEASED:
            note_released(world, metrics, group, member, now_ns)
            resume_sender(world, metrics, group, member, now_ns)
        elif action.what == mailbox.SUSPECT:
            suspect(world, metrics, group, member, a, now_ns)
        elif action.what == mailbox.DELIVER:
            if action.peer >= 0:
                note_numbered(metrics, a, action.b, action.peer, action.delay_ns)
            note_delivered(world, metrics, member, a, action.b, now_ns)
            note_input(metrics, group, member, a)
            if metrics.members[member].parked == 1 and is_full_enough(metrics, group, member, a):
                release_round(world, metrics, member, now_ns)
        elif action.what == mailbox.HELD_BACK:
            note_held_back(metrics.totals, a)
        elif action.what == CAUGHT_UP:
            count_newcomer(world, metrics, group, member, now_ns)
        elif action.what == mailbox.ADOPT:
            record_fact(world, tracing.DELIVER, now_ns, member, action.peer, -1, a, action.b)
        else:
            depart(world, metrics, member, now_ns)
    if is_wanted(fold):  # of a call that delivers several messages, all are delivered now
        note_causally_stable(world, metrics, fold, group, member, now_ns)
    if piggybacks:
        drop_lost_piggyback(world, mail)
    clear_outbox(mail)
    if mail.counts[mailbox.OVERFLOW] != 0:
        world.scalars[0].error = MAIL_FULL if mail.counts[mailbox.OVERFLOW] == mailbox.POOL_FULL else CORE_FULL


@linked
def _schedule_wake(world, layer, member, timer, tag, time_ns):
    """Schedule a timer of one of the three layers."""
    what = WAKE
    if layer == mailbox.DATA:
        what = WAKE_DATA
    elif layer == mailbox.FAILURE:
        what = WAKE_FAILURE
    schedule(world, time_ns, what, member, timer, tag)
