"""The event loop of a group with views: packets, timers and multicasts, until something concerns Python.

As in `sim.kernel`, `step` does everything that no protocol needs to know and stops at the next event for a core, which
`run` calls by its address: `cores` has three rows for each place of a view, one for each layer. `run` returns to Python
for a membership message, and when a failure detector finds a suspect.

A core knows ranks of its view; the tables turn them into processes. A message of a view is handled by members that have
installed it and are not frozen, or waits for those that have not installed it yet. Failure detection continues while a
member is frozen.
"""

import numpy as np

from cubecast.jit.decorators import entry_point, linked
from cubecast.jit.tables import held_at
from cubecast.protocol import mail as mailbox
from cubecast.protocol.bound import call_bound
from cubecast.protocol.handlers import (
    HEARD,
    PUBLISH,
    RECEIVE,
    START,
    TIMER,
)
from cubecast.protocol.mail import clear_outbox
from cubecast.sim.causal_stability import contribute, is_wanted, keep_result, next_reached, share_result
from cubecast.sim.delivery_samples import note_delay, note_held_back
from cubecast.sim.events import BEGIN, PACKET_ARRIVES, RESEND, SEND_DATA, remove_first_event, schedule
from cubecast.sim.links import advance, enter_processor, free_packet, pass_node, sample_load
from cubecast.sim.record import record_fact
from cubecast.sim.views.tables import ViewTables
from cubecast.sim.views.transport import (
    arrives_in_order,
    keep_early,
    next_replayed,
    replay_early,
    send_again,
    send_copy,
    token_of,
)
from cubecast.sim.world import CORE_FULL, MAIL_FULL, NO_PACKET, TIME_FULL
from cubecast.trace import schema as tracing

# Fields of `call`: which core to call, with what, and for which process in which place.
CORE, WHAT, RANK, A, B, NOW_NS, PACKET, PROCESS, PLACE = range(9)

# Results of `step` and `run`.
GO_ON, CALL, MESSAGE, ALERT, DUE, PAUSED, FAILED = range(7)

LAYERS = 3
_FOREVER = np.int64(1) << 62
_PROCESS_BITS = 32

# Kinds of events beside those of `sim.events`.
_PUBLISH_WAITING = 50
_WAKE_LAYER = 100  # + the layer of the timer


@entry_point
def run(world, mail, cores, tables, call, until_ns, budget):
    """Run until Python is needed, or for at most `budget` calls of a core."""
    for _ in range(budget):
        status = step(world, mail, tables, call, until_ns, budget)
        if status != CALL:
            return status
        if tables.totals[0].causal == 1 and call[CORE] == LAYERS * call[PLACE] + mailbox.CONTROL:
            _contribute(tables, call)
        call_bound(cores, call[CORE], call[RANK], call[NOW_NS], call[WHAT], call[A], call[B])
    return PAUSED


@linked
def _contribute(tables, call):
    """What the stability protocol folds: messages that wait for the window or the next view count as multicast."""
    view = held_at(tables.views[call[PLACE]], ViewTables)
    rank = call[RANK]
    contribute(view.fold, view.group, rank, tables.processes[call[PROCESS]].called - view.sent[rank])


@linked
def step(world, mail, tables, call, until_ns, budget):
    """Finish the last call and continue to the next one, or to an event for Python."""
    scalars = world.scalars
    if call[WHAT] >= 0 and _finish_call(world, mail, tables, call):
        return CALL
    for _ in range(budget):
        if scalars[0].error != 0:
            return FAILED
        if scalars[0].tracing != 0 and scalars[0].trace_size * 2 > world.trace.shape[0]:
            return PAUSED
        if tables.totals[0].alerted >= 0:
            call[PROCESS] = tables.totals[0].alerted
            tables.totals[0].alerted = -1
            return ALERT
        status = _next(world, mail, tables, call, until_ns, budget)
        if status != GO_ON:
            return status
    return PAUSED


@linked
def _next(world, mail, tables, call, until_ns, budget):
    """The next event: a packet that waited, one that arrives, or an event of the queue."""
    packet = next_replayed(world, tables)
    if packet != NO_PACKET:
        return _handle(world, mail, tables, call, packet, world.scalars[0].now_ns)
    packet = advance(world, mail, min(_next_event_ns(world), until_ns), budget)
    if packet >= 0:
        return _arrive(world, mail, tables, call, packet)
    if packet == -2:
        return FAILED if world.scalars[0].error != 0 else PAUSED
    if _next_event_ns(world) > until_ns:
        return DUE
    return _next_event(world, mail, tables, call)


@linked
def _next_event_ns(world):
    return world.events[0].time_ns if world.scalars[0].events_size > 0 else _FOREVER


@linked
def _arrive(world, mail, tables, call, packet):
    now_ns = world.scalars[0].now_ns
    if arrives_in_order(world, mail, tables, packet, now_ns):
        return _handle(world, mail, tables, call, packet, now_ns)
    return GO_ON


@linked
def _handle(world, mail, tables, call, packet, now_ns):
    """Hand a packet to its layer or to Python, or keep it for a later view."""
    slot = np.int64(world.packets[packet].message)
    process = np.int64(tables.target[packet])
    one = tables.processes[process]
    if tables.place[slot] < 0:
        call[A] = token_of(mail, slot)
        call[B] = tables.source[slot]
        call[PROCESS] = process
        free_packet(world, mail, packet)
        return MESSAGE
    layer = mail.layers[slot]
    is_present = tables.stamp[slot] == one.stamp
    if (is_present and one.begun == 0) or tables.stamp[slot] > one.stamp:
        if layer != mailbox.FAILURE:
            keep_early(world, tables, process, packet)
            return GO_ON
    elif is_present and (one.frozen == 0 or layer == mailbox.FAILURE):
        _set_call(tables, call, process, layer, RECEIVE, slot, 0, now_ns)
        call[PACKET] = packet
        return CALL
    free_packet(world, mail, packet)
    return GO_ON


@linked
def _set_call(tables, call, process, layer, what, a, b, now_ns):
    place = tables.processes[process].place
    call[CORE] = LAYERS * place + layer
    call[WHAT] = what
    call[RANK] = tables.processes[process].rank
    call[A] = a
    call[B] = b
    call[NOW_NS] = now_ns
    call[PROCESS] = process
    call[PLACE] = place


@linked
def _finish_call(world, mail, tables, call):
    """Carry out the core's actions; returns whether another core must be called for the same event."""
    process = call[PROCESS]
    place = call[PLACE]
    now_ns = call[NOW_NS]
    what = call[WHAT]
    layer = call[CORE] - LAYERS * place
    view = held_at(tables.views[place], ViewTables)
    _carry_out(world, mail, tables, view, process, layer, now_ns)
    call[WHAT] = -1
    if what == RECEIVE:
        source = mail.heads[call[A]].source
        free_packet(world, mail, call[PACKET])
        if tables.totals[0].detecting == 1 and layer == mailbox.DATA:
            _set_call(tables, call, process, mailbox.FAILURE, HEARD, source, 0, now_ns)
            return True
    elif what == START:
        following = _layer_after(layer, tables.totals[0].detecting)
        if following >= 0:
            _set_call(tables, call, process, following, START, 0, 0, now_ns)
            return True
        tables.processes[process].begun = 1
        replay_early(world, tables, process)
        return _publish(world, tables, view, call, process, now_ns)
    elif what == PUBLISH:
        return _publish(world, tables, view, call, process, now_ns)
    return False


@linked
def _layer_after(layer, detecting):
    if layer == mailbox.DATA:
        return mailbox.CONTROL
    return mailbox.FAILURE if layer == mailbox.CONTROL and detecting == 1 else -1


@linked
def _next_event(world, mail, tables, call):
    event = world.events[0]
    now_ns = event.time_ns
    what, member, a, b = event.what, event.member, event.a, event.b
    remove_first_event(world)
    world.scalars[0].now_ns = now_ns
    if now_ns >= world.scalars[0].next_sample_ns:
        sample_load(world.scalars, now_ns - 1)
    if what == PACKET_ARRIVES:
        return _arrive_late(world, mail, tables, call, member, a, now_ns)
    if what == RESEND:
        send_again(world, mail, tables, a, now_ns)
        return GO_ON
    process = member & ((np.int64(1) << _PROCESS_BITS) - 1)
    one = tables.processes[process]
    if one.up == 0:
        return GO_ON
    if what == SEND_DATA:
        _multicast(world, tables, process, now_ns)
    if what == SEND_DATA or what == _PUBLISH_WAITING:
        return _try_to_publish(world, tables, call, process, now_ns)
    if member >> _PROCESS_BITS != one.stamp:
        return GO_ON  # of a view that is over here
    if what == BEGIN:
        _set_call(tables, call, process, mailbox.DATA, START, 0, 0, now_ns)
        return CALL
    layer = what - _WAKE_LAYER
    if one.frozen == 1 and layer != mailbox.FAILURE:
        return GO_ON
    _set_call(tables, call, process, layer, TIMER, a, b, now_ns)
    return CALL


@linked
def _arrive_late(world, mail, tables, call, node, packet, now_ns):
    """Handle a packet that was transmitted hop by hop and reaches a node."""
    if world.scalars[0].processors != 0:
        enter_processor(world, mail, node, packet, now_ns)
        return GO_ON
    arrived = pass_node(world, mail, node, packet, now_ns)
    return _arrive(world, mail, tables, call, arrived) if arrived >= 0 else GO_ON


@linked
def _multicast(world, tables, process, now_ns):
    """The application multicasts; the message is sent as soon as the view allows."""
    one = tables.processes[process]
    if now_ns >= tables.totals[0].stop_ns or one.leaving == 1:
        return
    if one.first_ns < 0:
        one.first_ns = now_ns
    record_fact(world, tracing.MULTICAST, now_ns, process, -1, -1, -1, 0)
    _set_message(world, one.called)
    one.called += 1
    schedule(world, now_ns + tables.totals[0].interval_ns, SEND_DATA, process, 0, 0)


@linked
def _set_message(world, serial):
    """Write the serial of a multicast into the message column of the last row."""
    if world.scalars[0].tracing != 0:
        world.trace[world.scalars[0].trace_size - 1].message = serial


@linked
def _try_to_publish(world, tables, call, process, now_ns):
    one = tables.processes[process]
    if one.place < 0 or one.begun == 0:
        return GO_ON
    view = held_at(tables.views[one.place], ViewTables)
    return CALL if _publish(world, tables, view, call, process, now_ns) else GO_ON


@linked
def _publish(world, tables, view, call, process, now_ns):
    """Send the next waiting message, if the view and the window allow; returns whether a core must be called."""
    one = tables.processes[process]
    rank = one.rank
    if one.published >= one.called or one.frozen == 1 or one.blocked == 1 or rank >= view.order.shape[0]:
        return False
    number = one.published + 1 - view.sent[rank]
    if number - view.seen[rank, rank] > tables.totals[0].window:
        return False
    one.published += 1
    tables.totals[0].order += 1
    view.order[rank, number % view.order.shape[1]] = tables.totals[0].order
    record_fact(world, tracing.SENT, now_ns, process, -1, -1, process, one.published)
    _set_message(world, one.published - 1)
    _set_call(tables, call, process, mailbox.DATA, PUBLISH, 0, 0, now_ns)
    return True


@linked
def _carry_out(world, mail, tables, view, process, layer, now_ns):
    """Carry out the core's actions, in order."""
    folds = is_wanted(view.fold)
    if folds and layer == mailbox.CONTROL:
        share_result(view.fold, view.group, tables.processes[process].rank)
    for k in range(mail.counts[mailbox.WAITING]):
        action = mail.actions[k]
        a = action.a
        if action.what == mailbox.SEND or action.what == mailbox.MULTICAST:
            _send(world, mail, tables, view, process, layer, action.slot, a, action.what, now_ns)
        elif action.what == mailbox.TIMER:
            _set_timer(world, tables, process, layer, a, action.b, now_ns + action.delay_ns)
        elif action.what == mailbox.NEXT_ROUND:
            _set_timer(world, tables, process, layer, a, action.b, now_ns + action.delay_ns)
        elif action.what == mailbox.ROUND_DONE or action.what == mailbox.RELEASED:
            _note_stable(world, tables, view, process, now_ns)
            if folds:
                keep_result(view.fold, view.causal, tables.processes[process].rank)
        elif action.what == mailbox.DELIVER:
            note_delivered(world, tables, view, process, a, action.b, now_ns)
        elif action.what == mailbox.HELD_BACK:
            note_held_back(tables.totals, a)
        elif action.what == mailbox.SUSPECT and tables.processes[process].alert == 0:
            tables.processes[process].alert = 1
            tables.totals[0].alerted = process
    if folds:  # of a call that delivers several messages, all are delivered now
        _note_causally_stable(world, tables, view, process, now_ns)
    clear_outbox(mail)
    if mail.counts[mailbox.OVERFLOW] != 0:
        world.scalars[0].error = MAIL_FULL if mail.counts[mailbox.OVERFLOW] == mailbox.POOL_FULL else CORE_FULL


@linked
def _send(world, mail, tables, view, process, layer, slot, rank, what, now_ns):
    """Send to one rank, or to every other rank of the view."""
    one = tables.processes[process]
    mail.heads[slot].source = one.rank
    mail.layers[slot] = layer
    tables.source[slot] = process
    tables.place[slot] = one.place
    tables.stamp[slot] = one.stamp
    if what == mailbox.SEND:
        send_copy(world, mail, tables, slot, process, view.process[rank], now_ns)
        return
    tables.totals[0].multicasts += 1
    for other in range(view.process.shape[0]):
        if other != one.rank:
            send_copy(world, mail, tables, slot, process, view.process[other], now_ns)


@linked
def _set_timer(world, tables, process, layer, timer, tag, time_ns):
    if time_ns >= _FOREVER:
        world.scalars[0].error = TIME_FULL
    member = tables.processes[process].stamp << _PROCESS_BITS | process
    schedule(world, time_ns, _WAKE_LAYER + layer, member, timer, tag)


@linked
def note_delivered(world, tables, view, process, rank, number, now_ns):
    """The application of a process gets message `number` of a rank in this view."""
    sender = view.process[rank]
    sequence = view.sent[rank] + number
    record_fact(world, tracing.DELIVER, now_ns, process, -1, -1, sender, sequence)
    if sender != process:
        one = tables.processes[sender]
        note_delay(tables.totals, now_ns - (one.first_ns + (sequence - 1) * tables.totals[0].interval_ns))


@linked
def _note_stable(world, tables, view, process, now_ns):
    """A process learns that more messages are stable; its own ones make room for others."""
    rank = tables.processes[process].rank
    for sender in range(view.seen.shape[1]):
        before = np.int64(view.seen[rank, sender])
        stable = np.int64(view.group.stable[rank, sender])
        if stable == before:
            continue
        view.seen[rank, sender] = stable
        record_fact(world, tracing.STABLE, now_ns, process, -1, -1, view.process[sender], view.sent[sender] + stable)
        if sender == rank:
            note_own_stable(tables, process, view.sent[rank] + before, view.sent[rank] + stable, now_ns)
            if tables.processes[process].published < tables.processes[process].called:
                schedule(world, now_ns, _PUBLISH_WAITING, process, 0, 0)


@linked
def note_own_stable(tables, process, before, stable, now_ns):
    """A sender learns that its messages from before + 1 to `stable` are stable: record how long they took."""
    one = tables.processes[process]
    for sequence in range(before + 1, stable + 1):
        place = tables.totals[0].stable_count
        if place < tables.stable_ns.shape[0]:
            called_ns = one.first_ns + (sequence - 1) * tables.totals[0].interval_ns
            tables.stable_ns[place] = now_ns - called_ns
        tables.totals[0].stable_count += 1


@linked
def _note_causally_stable(world, tables, view, process, now_ns):
    """Record what is causally stable by results that were reached: at the first, all messages of earlier views."""
    rank = tables.processes[process].rank
    is_first = view.fold.reached[rank] == 0
    place = next_reached(view.fold, view.group, rank)
    if is_first and place >= 0:
        for sender in range(view.before.shape[0]):
            if view.before[sender] > 0:
                _note_causal(world, tables, process, sender, view.before[sender], now_ns)
    while place >= 0:
        for sender in range(view.causal.shape[1]):
            causal = view.fold.minimum[rank, place, sender]
            if causal > view.causal[rank, sender]:
                view.causal[rank, sender] = causal
                _note_causal(world, tables, process, view.process[sender], view.sent[sender] + causal, now_ns)
        place = next_reached(view.fold, view.group, rank)


@linked
def _note_causal(world, tables, process, sender, sequence, now_ns):
    """Messages of a sender up to this one are causally stable at a process: record how long its own ones took."""
    record_fact(world, tracing.CAUSAL, now_ns, process, -1, -1, sender, sequence)
    one = tables.processes[process]
    if sender != process:
        return
    for number in range(one.causal + 1, sequence + 1):
        place = tables.totals[0].causal_count
        if place < tables.causal_ns.shape[0]:
            tables.causal_ns[place] = now_ns - (one.first_ns + (number - 1) * tables.totals[0].interval_ns)
        tables.totals[0].causal_count += 1
    one.causal = max(one.causal, sequence)


@entry_point
def end_view(world, tables, process, senders, numbers, count, cut, now_ns):
    """A process ends its view: it delivers its recovered messages, in this order, and its own messages are stable."""
    one = tables.processes[process]
    view = held_at(tables.views[one.place], ViewTables)
    for k in range(count):
        note_delivered(world, tables, view, process, senders[k], numbers[k], now_ns)
    if one.rank < view.seen.shape[1]:
        before = view.sent[one.rank] + np.int64(view.seen[one.rank, one.rank])
        note_own_stable(tables, process, before, view.sent[one.rank] + cut, now_ns)


@entry_point
def begin_view(world, tables, process, place, stamp, rank, now_ns):
    """A process installs a view: its protocols begin."""
    one = tables.processes[process]
    one.place = place
    one.stamp = stamp
    one.rank = rank
    one.begun = 0
    one.frozen = 0
    one.blocked = 0
    one.alert = 0
    schedule(world, now_ns, BEGIN, stamp << _PROCESS_BITS | process, 0, 0)


@entry_point
def publish_soon(world, process, now_ns):
    """Schedule the next send of a process that may send again."""
    schedule(world, now_ns, _PUBLISH_WAITING, process, 0, 0)


@entry_point
def multicast_from(world, process, time_ns):
    """The application of a process begins to multicast."""
    schedule(world, time_ns, SEND_DATA, process, 0, 0)


@entry_point
def note(world, event, time_ns, member, peer, round_number, sender, sequence, message):
    """Write a row of the trace about membership."""
    record_fact(world, event, time_ns, member, peer, round_number, sender, sequence)
    _set_message(world, message)
