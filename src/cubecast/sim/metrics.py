"""The counters and times of a running simulation (MODELS §9).

| field         | shape        | meaning                                                                           |
|---------------|--------------|-----------------------------------------------------------------------------------|
| rounds        | rounds       | when each round began, when the first and the last member knew its result         |
| members       | n            | up or down, the newest finished round, the contents of the buffer                 |
| seen_stable   | n × m        | S of each member when it was last read                                            |
| seen_causal   | n × m        | what is causally stable at each member; 0 rows if that is not requested           |
| published     | senders      | data messages each sender has multicast                                           |
| wanted        | m            | data messages that each sequence will hold; a sequence is of one sender or shared |
| origin_ns     | senders × messages, or 1 × 1 | when senders that share sequences multicast their messages        |
| sent_ns       | m × messages | when each data message was multicast, by its number in its sequence               |
| first_ns      | m × messages | when the first member knew that it is stable                                      |
| last_ns       | m × messages | when the last member so far knew it                                               |
| known_by      | m × messages | how many members know it                                                          |
| causal_first_ns, causal_last_ns, causal_known_by | the same | for causally stable; 0 rows if not requested     |
| held_series   | samples or 1 | unstable data messages in all buffers, at equal intervals                         |
| totals        | 1            | messages, bytes, members that are up, remaining work                              |

No round beyond the wanted ones begins unless data flows. The run is finished when every member that is up has finished
the wanted rounds and knows that every data message of a live sender is stable (causally stable too, if requested).
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.sim.causal_stability import next_reached
from cubecast.sim.delivery_samples import note_delay
from cubecast.sim.record import record_fact
from cubecast.sim.world import ROUNDS_FULL
from cubecast.trace import schema as tracing

ROUND = np.dtype(
    [
        ("begun_ns", np.int64),
        ("first_ns", np.int64),
        ("last_ns", np.int64),
        ("done", np.int64),  # members that are up and have finished it
        ("open", np.int64),
    ]
)
MEMBER = np.dtype(
    [
        ("recover_ns", np.int64),  # when it will be up again; −1 = never
        ("up", np.int64),
        ("evicted", np.int64),
        ("joining", np.int64),  # a newcomer that does not count yet: not every member knows it
        ("done", np.int64),  # the newest round whose result it knows
        ("complete", np.int64),  # has nothing left to do
        ("held", np.int64),
        ("side", np.int64),  # of a partition
        ("parked", np.int64),  # does a round wait for its buffer (guo ch. 6)? With which timer, and Δ:
        ("parked_timer", np.int64),
        ("parked_tag", np.int64),
        ("parked_ns", np.int64),
        ("pending", np.int64),  # a control message that waits for data, 0 for none
        ("pending_tag", np.int64),
        ("blocked_ns", np.int64),  # since when it cannot send, −1 when it can
        ("down_ns", np.int64),  # when it last went down
        ("wrongly", np.int64),  # did it leave, or was it excluded, while it was up?
        ("excluded_first_ns", np.int64),  # when the first member removed it from its membership, −1 before
        ("excluded_last_ns", np.int64),
    ]
)
TOTALS = np.dtype(
    [
        (name, np.int64)
        for name in (
            "messages",
            "bytes",
            "unicasts",
            "multicasts",
            "data_messages",
            "data_bytes",
            "rounds_wanted",
            "data_wanted",  # data messages each sender will multicast
            "data_interval_ns",
            "newest_round",
            "oldest_open",
            "up",
            "complete",
            "finished",
            "held_max",
            "piggybacked",  # control messages piggybacked on data messages
            "data_fragments",
            "delay_sum_ns",  # from the multicast of a data message to its delivery, over all others' deliveries
            "delay_max_ns",
            "delays",
            "waiting_sum",  # messages held back from delivery, sampled at every receive that reports it
            "waiting_samples",
            "waiting_max",
            "overhead_messages",  # of the data layer that carry no message of the application
            "overhead_bytes",
            "triggered",  # do rounds wait for buffers?
            "trigger_level",  # X
            "buffer_room",  # g, 0 = any number
            "senders_left",  # with messages still to send
            "overflows",
            "blocked_sum_ns",
            "input_overflows",
            "samples",  # of `held_series`
            "failure_messages",
            "failure_bytes",
            "false_suspicions",
            "detecting",  # does a failure detector run?
            "lasting",  # must the run go on although every member is complete?
            "handing",  # do newcomers get the messages of the others by messages (guo §3.2)?
            "shared",  # do senders share sequences?
            "self_joining",  # does the data protocol handle joins and leaves by itself?
        )
    ]
)


class Metrics(NamedTuple):
    """Counters and times, as arrays."""

    rounds: np.recarray
    members: np.recarray
    seen_stable: np.ndarray
    seen_causal: np.ndarray
    published: np.ndarray
    wanted: np.ndarray
    origin_ns: np.ndarray
    sent_ns: np.ndarray
    first_ns: np.ndarray
    last_ns: np.ndarray
    known_by: np.ndarray
    causal_first_ns: np.ndarray
    causal_last_ns: np.ndarray
    causal_known_by: np.ndarray
    held_series: np.ndarray
    totals: np.recarray


def new_metrics(
    *,
    members: int,
    senders: int,
    wanted: np.ndarray,
    rounds_wanted: int,
    rounds_room: int,
    data_wanted: int,
    data_interval_ns: int,
    samples: int,
    causal: bool = False,
) -> Metrics:
    """Empty metrics; every member is up. `wanted` has the number of messages of each sequence."""
    states = np.zeros(members, MEMBER).view(np.recarray)
    states.up = 1
    states.recover_ns = states.blocked_ns = states.excluded_first_ns = states.excluded_last_ns = -1
    totals = np.zeros(1, TOTALS).view(np.recarray)
    totals[0].rounds_wanted = rounds_wanted
    totals[0].data_wanted = data_wanted
    totals[0].data_interval_ns = data_interval_ns
    totals[0].up = members
    totals[0].senders_left = senders
    totals[0].shared = len(wanted) < senders
    totals[0].oldest_open = 1
    rounds = np.zeros(rounds_room, ROUND).view(np.recarray)
    for name in ("begun_ns", "first_ns", "last_ns"):
        rounds[name] = -1
    sequences = len(wanted)
    history = (sequences, int(wanted.max()) + 1)
    causal_history = history if causal else (0, 0)
    origins = (senders, data_wanted + 1) if sequences < senders else (1, 1)
    return Metrics(
        rounds=rounds,
        members=states,
        seen_stable=np.zeros((members, sequences), np.int32),
        seen_causal=np.zeros((members if causal else 0, senders), np.int32),
        published=np.zeros(senders, np.int32),
        wanted=np.asarray(wanted, np.int64),
        origin_ns=np.full(origins, -1, np.int64),
        sent_ns=np.full(history, -1, np.int64),
        first_ns=np.full(history, -1, np.int64),
        last_ns=np.full(history, -1, np.int64),
        known_by=np.zeros(history, np.int32),
        causal_first_ns=np.full(causal_history, -1, np.int64),
        causal_last_ns=np.full(causal_history, -1, np.int64),
        causal_known_by=np.zeros(causal_history, np.int32),
        held_series=np.zeros(max(samples, 1), np.int64),
        totals=totals,
    )


@linked
def note_round_begun(world, metrics, member, number, now_ns):
    """A member began or joined a round."""
    record_fact(world, tracing.ROUND, now_ns, member, -1, number, -1, 0)
    if number >= metrics.rounds.shape[0]:
        world.scalars[0].error = ROUNDS_FULL
        return
    if metrics.rounds[number].begun_ns < 0:
        metrics.rounds[number].begun_ns = now_ns
        metrics.rounds[number].open = 1
        world.scalars[0].sampling += 1
        if number > metrics.totals[0].newest_round:
            metrics.totals[0].newest_round = number


@linked
def note_round_done(world, metrics, group, member, number, now_ns):
    """A member knows S of a round, and so of every earlier round."""
    record_fact(world, tracing.DONE, now_ns, member, -1, number, -1, 0)
    if number >= metrics.rounds.shape[0]:
        world.scalars[0].error = ROUNDS_FULL
        return
    for earlier in range(metrics.members[member].done + 1, number + 1):
        metrics.rounds[earlier].done += 1
        if metrics.rounds[earlier].first_ns < 0:
            metrics.rounds[earlier].first_ns = now_ns
        metrics.rounds[earlier].last_ns = now_ns
        _close_round_if_over(world, metrics, earlier)
    if number > metrics.members[member].done:
        metrics.members[member].done = number
    _note_stable(world, metrics, group, member, number, now_ns)
    update_complete(metrics, group, member)


@linked
def _close_round_if_over(world, metrics, number):
    if metrics.rounds[number].open == 1 and metrics.rounds[number].done >= metrics.totals[0].up:
        metrics.rounds[number].open = 0
        world.scalars[0].sampling -= 1
        while metrics.totals[0].oldest_open <= number and metrics.rounds[metrics.totals[0].oldest_open].open == 0:
            metrics.totals[0].oldest_open += 1


@linked
def _note_stable(world, metrics, group, member, number, now_ns):
    """Record what became stable; free it from the buffer; time it."""
    for sender in range(group.stable.shape[1]):
        before = np.int64(metrics.seen_stable[member, sender])
        now_stable = np.int64(group.stable[member, sender])
        if now_stable == before:
            continue
        metrics.seen_stable[member, sender] = now_stable
        record_fact(world, tracing.STABLE, now_ns, member, -1, number, sender, now_stable)
        if now_stable < before or metrics.totals[0].data_wanted == 0:  # the checkers report an S that shrinks
            continue
        metrics.members[member].held -= now_stable - before
        world.scalars[0].held -= now_stable - before
        for sequence in range(before + 1, now_stable + 1):
            if metrics.known_by[sender, sequence] == 0:
                metrics.first_ns[sender, sequence] = now_ns
            metrics.last_ns[sender, sequence] = now_ns
            metrics.known_by[sender, sequence] += 1


@linked
def note_published(metrics, sender, own_number, now_ns):
    """A sender multicasts its next message; where sequences are shared, its number in one follows later."""
    metrics.published[sender] = own_number
    if metrics.totals[0].shared == 1:
        metrics.origin_ns[sender, own_number] = now_ns
    else:
        metrics.sent_ns[sender, own_number] = now_ns


@linked
def note_numbered(metrics, sequence, number, origin, own_number):
    """A message that was multicast before gets its number in its sequence."""
    if metrics.totals[0].shared == 1:
        metrics.sent_ns[sequence, number] = metrics.origin_ns[origin, own_number]


@linked
def note_causally_stable(world, metrics, fold, group, member, now_ns):
    """Record and time what is causally stable by results whose V this member has delivered."""
    place = next_reached(fold, group, member)
    if place < 0:
        return
    while place >= 0:
        for sender in range(metrics.seen_causal.shape[1]):
            before = np.int64(metrics.seen_causal[member, sender])
            now_causal = np.int64(fold.minimum[member, place, sender])
            if now_causal <= before:
                continue
            metrics.seen_causal[member, sender] = now_causal
            record_fact(world, tracing.CAUSAL, now_ns, member, -1, -1, sender, now_causal)
            for sequence in range(before + 1, now_causal + 1):
                if metrics.causal_known_by[sender, sequence] == 0:
                    metrics.causal_first_ns[sender, sequence] = now_ns
                metrics.causal_last_ns[sender, sequence] = now_ns
                metrics.causal_known_by[sender, sequence] += 1
        place = next_reached(fold, group, member)
    update_complete(metrics, group, member)


@linked
def note_delivered(world, metrics, member, sender, sequence, now_ns):
    """A member holds one more data message, until it is stable."""
    record_fact(world, tracing.DELIVER, now_ns, member, -1, -1, sender, sequence)
    metrics.members[member].held += 1
    world.scalars[0].held += 1
    if metrics.members[member].held > metrics.totals[0].held_max:
        metrics.totals[0].held_max = metrics.members[member].held
    # Without data traffic a newcomer gets messages that were not multicast during the run: they have no delay.
    if member != sender and sequence < metrics.sent_ns.shape[1]:
        note_delay(metrics.totals, now_ns - metrics.sent_ns[sender, sequence])


@linked
def update_complete(metrics, group, member):
    """Mark this member complete if it has nothing left to do; it stays complete unless it goes down."""
    if metrics.members[member].complete == 1 or not _is_complete(metrics, group, member):
        return
    metrics.members[member].complete = 1
    metrics.totals[0].complete += 1
    finish_if_all_complete(metrics)


@linked
def _is_complete(metrics, group, member):
    if metrics.members[member].up == 0 or metrics.members[member].done < metrics.totals[0].rounds_wanted:
        return False
    if metrics.totals[0].data_wanted == 0:
        return True
    for sender in range(metrics.wanted.shape[0]):
        if metrics.members[sender].evicted == 0 and group.stable[member, sender] < metrics.wanted[sender]:
            return False
    return metrics.seen_causal.shape[0] == 0 or _is_all_causal(metrics, member)


@linked
def _is_all_causal(metrics, member):
    """Is everything causally stable that can be? Not after a sender was excluded (`sim.causal_stability`)."""
    is_all = True
    for sender in range(metrics.published.shape[0]):
        if metrics.members[sender].evicted == 1:
            return True
        is_all &= metrics.seen_causal[member, sender] >= metrics.totals[0].data_wanted
    return is_all


@linked
def finish_if_all_complete(metrics):
    """The run is over once every member that is up is complete."""
    if metrics.totals[0].complete >= metrics.totals[0].up and metrics.totals[0].lasting == 0:
        metrics.totals[0].finished = 1


@linked
def note_down(world, metrics, member, now_ns):
    """A member went down: the run stops waiting for it."""
    record_fact(world, tracing.CRASH, now_ns, member, -1, -1, -1, 0)
    metrics.members[member].up = 0
    metrics.members[member].down_ns = now_ns
    metrics.totals[0].up -= 1
    world.scalars[0].held -= metrics.members[member].held
    if metrics.members[member].complete == 1:
        metrics.members[member].complete = 0
        metrics.totals[0].complete -= 1
    for number in range(metrics.totals[0].oldest_open, metrics.totals[0].newest_round + 1):
        if metrics.members[member].done >= number:
            metrics.rounds[number].done -= 1
        _close_round_if_over(world, metrics, number)
    finish_if_all_complete(metrics)


@linked
def note_up(world, metrics, group, member, now_ns):
    """A member is back, with the state it had; a newcomer that did not count yet still does not."""
    if metrics.members[member].joining == 0:
        record_fact(world, tracing.RECOVER, now_ns, member, -1, -1, -1, 0)
    metrics.members[member].up = 1
    metrics.totals[0].up += 1
    world.scalars[0].held += metrics.members[member].held
    for number in range(metrics.totals[0].oldest_open, metrics.totals[0].newest_round + 1):
        if metrics.members[member].done >= number:
            metrics.rounds[number].done += 1
    update_complete(metrics, group, member)


@linked
def note_joined(metrics, member):
    """A newcomer is up; rounds in progress wait for it from now on."""
    metrics.members[member].up = 1
    metrics.totals[0].up += 1


@linked
def bring_up_to_date(world, metrics, group, member, now_ns):
    """The late-join handlers keep everything (guo §3.2): hand the newcomer what any other member holds and knows."""
    for sender in range(group.received.shape[1]):
        held = np.int64(group.received[member, sender])
        highest = held
        stable = group.stable[member, sender]
        for other in range(group.received.shape[0]):
            if metrics.members[other].evicted == 0:
                highest = max(highest, np.int64(group.received[other, sender]))
                stable = max(stable, group.stable[other, sender])
        for sequence in range(held + 1, highest + 1):
            note_delivered(world, metrics, member, sender, sequence, now_ns)
        group.received[member, sender] = highest
        group.stable[member, sender] = stable
    adopt_rounds(world, metrics, group, member, now_ns)


@linked
def adopt_rounds(world, metrics, group, member, now_ns):
    """Do not wait for a newcomer in rounds that others have finished."""
    number = metrics.members[member].done
    for other in range(metrics.members.shape[0]):
        if metrics.members[other].evicted == 0:
            number = max(number, metrics.members[other].done)
    if number > metrics.members[member].done:
        note_round_done(world, metrics, group, member, number, now_ns)


@linked
def note_evicted(metrics, group, member):
    """Stop waiting for a member that will never return."""
    metrics.members[member].evicted = 1
    if member < metrics.published.shape[0] and metrics.published[member] < metrics.totals[0].data_wanted:
        metrics.totals[0].senders_left -= 1
    for other in range(metrics.members.shape[0]):
        update_complete(metrics, group, other)


@linked
def note_suspected(world, metrics, group, member, now_ns):
    """The failure detector of some member suspects a member: it is excluded for good, and if it was up it stops."""
    if metrics.members[member].up == 1:
        metrics.members[member].wrongly = 1
        metrics.totals[0].false_suspicions += 1
        note_down(world, metrics, member, now_ns)
    if metrics.members[member].evicted == 0:
        note_evicted(metrics, group, member)


@linked
def note_excluded(metrics, member, now_ns):
    """Some member removed a member from its membership."""
    if metrics.members[member].excluded_first_ns < 0:
        metrics.members[member].excluded_first_ns = now_ns
    metrics.members[member].excluded_last_ns = now_ns


@linked
def note_released(world, metrics, group, member, now_ns):
    """Note that the data layer of a member found messages to be stable, outside any round."""
    _note_stable(world, metrics, group, member, -1, now_ns)
    update_complete(metrics, group, member)
