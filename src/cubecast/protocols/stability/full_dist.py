"""FullDist: every member multicasts its R to every other (cube §2.2, Fig 2; guo §4.2.2).

A round: the leader (lowest rank alive) multicasts INFO(R); on the first INFO of a round each member multicasts its
own, at once or, *scattered* (guo §5.4.3), after an offset drawn from `scatter_ns`. A member keeps the newest row it
heard from each member. It has finished a round when it holds a row of that round, or of a later one, from every
member; S is then the column minimum.

| field   | shape        | meaning                                                                             |
|---------|--------------|-------------------------------------------------------------------------------------|
| matrix  | rows × n × m | E: the newest R heard from each member                                              |
| latest  | rows × n     | the round of each of these rows                                                     |
| joined  | rows         | the newest round this member knows of                                               |
| sent    | rows         | the newest round in which this member multicast its own row                         |
| done    | rows         | the newest round whose S this member knows                                          |
| missing | rows         | how many members have not yet sent a row of a round later than `done`               |
| minimum | rows × m     | the column minimum of the last finished round                                       |

Invariants: `matrix[row, k] ≤ R_k` now, so a column minimum is never premature; `done ≤ sent ≤ joined`.

A row of round r+1 counts for round r too, by the paper's own rule (cube §3.5): a newer row is at least as large. Lossy
form (`repeat_ns > 0`): an unfinished member sends its row again, as a request, to the members whose row it lacks, and
they answer with theirs. The paper multicasts again to all instead; the request reaches fewer members, and a finished
member, which is silent in the paper, still answers. An older row never replaces a newer one, so order does not matter.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import (
    GroupState,
    copy_numbers,
    fold,
    is_lowest,
    learn_stable,
    raise_numbers,
)
from cubecast.protocol.mail import (
    begin_round,
    draft,
    end_round,
    multicast,
    rest,
    send,
    set_timer,
)
from cubecast.protocol.messages import message, message_sizes, per_sender, where_lossy
from cubecast.protocol.overlays import BUSIEST_LINK_SHARE
from cubecast.protocol.parameters import parameter
from cubecast.protocol.random import new_streams, uniform

INFO, REQUEST = range(2)
NEXT_ROUND, REPEAT, SCATTERED = range(3)
MESSAGES = (
    message("INFO", round=where_lossy(4), received=per_sender(4)),
    message("REQUEST", round=where_lossy(4), received=per_sender(4)),
)

SCATTER_GAP_NS = 400_000  # per member: 0.02 s at n = 50, 0.20 s at n = 500 (guo §5.4.3)


@dataclass(frozen=True, kw_only=True)
class FullDistParameters:
    """Parameters of FullDist."""

    scatter: bool = parameter(False, "Multicast rows at random offsets, 0.4 ms · n apart on average (guo §5.4.3).")


class FullDistState(NamedTuple):
    """FullDist, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    scatter_ns: int
    sizes: np.ndarray
    stream: np.ndarray
    matrix: np.ndarray
    latest: np.ndarray
    joined: np.ndarray
    sent: np.ndarray
    done: np.ndarray
    missing: np.ndarray
    minimum: np.ndarray


def build(group: GroupState, context: Context, parameters: FullDistParameters) -> FullDistState:
    """FullDist before its first round. `repeat_ns = 0` is the reliable FIFO form; `scatter_ns > 0` scatters."""
    rows, senders = group.received.shape
    return FullDistState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        scatter_ns=SCATTER_GAP_NS * context.members**2 if parameters.scatter else 0,
        sizes=message_sizes(MESSAGES, context),
        stream=new_streams(context.seed, "scatter", group.rank),
        matrix=np.zeros((rows, context.members, senders), np.int32),
        latest=np.zeros((rows, context.members), np.int32),
        joined=np.zeros(rows, np.int64),
        sent=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        missing=np.bitwise_count(np.asarray(group.members)).sum(axis=1).astype(np.int64),
        minimum=np.zeros_like(group.received),
    )


@linked
def start(state, row, now_ns, mail):
    """As the leader, open the first round; as a newcomer, count the missing rows."""
    if now_ns > 0:
        _count_missing(state, row)
    if is_lowest(state.group, row):
        _open_round(state, row, mail, 1)


@linked
def receive(state, row, now_ns, mail, slot):
    """Fig 2, lines 3–15."""
    source = mail.heads[slot].source
    number = mail.heads[slot].round_number
    if number >= state.latest[row, source]:
        _keep_row(state, row, source, number, mail.numbers[slot])
    if number > state.joined[row]:
        _join_round(state, row, mail, number)
    if mail.heads[slot].kind == REQUEST:
        _answer(state, row, mail, source)
    _finish_if_complete(state, row, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Open the next round when Δ is over, or request the missing rows."""
    if timer == NEXT_ROUND:
        if is_lowest(state.group, row) and state.joined[row] == tag and state.done[row] == tag:
            _open_round(state, row, mail, tag + 1)
    elif timer == SCATTERED:
        if state.sent[row] < tag and state.joined[row] == tag:
            _send_row(state, row, mail)
            _finish_if_complete(state, row, mail)
    elif state.done[row] < tag:
        # Also when a later round has begun: rounds that follow faster than repeats must not leave anyone behind.
        _request_missing(state, row, mail)
        if state.sent[row] == tag:
            set_timer(mail, REPEAT, tag, state.repeat_ns)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Stop waiting for the row of a member that left; the lowest live rank leads."""
    _count_missing(state, row)
    if state.joined[row] > 0 and state.joined[row] == state.done[row]:
        _schedule_next_round(state, row, mail)
    elif state.joined[row] == 0 and is_lowest(state.group, row):
        _open_round(state, row, mail, 1)
    _finish_if_complete(state, row, mail)


@linked
def on_join(state, row, now_ns, mail, rank):
    """Wait for a row of the newcomer too."""
    _count_missing(state, row)


@linked
def _open_round(state, row, mail, number):
    """Open a round as the leader, whose row is never scattered."""
    state.joined[row] = number
    begin_round(mail, number)
    _send_row(state, row, mail)
    _finish_if_complete(state, row, mail)


@linked
def _join_round(state, row, mail, number):
    state.joined[row] = number
    begin_round(mail, number)
    if state.scatter_ns > 0:
        set_timer(mail, SCATTERED, number, np.int64(uniform(state.stream[row]) * state.scatter_ns))
    else:
        _send_row(state, row, mail)


@linked
def _send_row(state, row, mail):
    number = state.joined[row]
    state.sent[row] = number
    _keep_row(state, row, state.group.rank[row], number, state.group.received[row])
    multicast(mail, _draft_row(state, row, mail, INFO))
    if state.repeat_ns > 0:
        # A scattered row is not missing before its time.
        set_timer(mail, REPEAT, number, state.repeat_ns + state.scatter_ns)


@linked
def _answer(state, row, mail, source):
    """Send this member's newest row to a member that lacks it, unless it is about to be multicast."""
    if state.sent[row] == state.joined[row]:
        send(mail, _draft_row(state, row, mail, INFO), source)


@linked
def _keep_row(state, row, rank, number, numbers):
    if state.latest[row, rank] <= state.done[row] < number and rank_sets.contains(state.group.members[row], rank):
        state.missing[row] -= 1
    state.latest[row, rank] = number
    # R never decreases; entries that a message leaves out (`sim.changed_entries`) stay as they are.
    raise_numbers(state.matrix[row, rank], numbers)


@linked
def _count_missing(state, row):
    missing = 0
    for rank in range(state.latest.shape[1]):
        if rank_sets.contains(state.group.members[row], rank) and state.latest[row, rank] <= state.done[row]:
            missing += 1
    state.missing[row] = missing


@linked
def _finish_if_complete(state, row, mail):
    if state.missing[row] > 0:
        return
    number = state.joined[row]
    minimum = state.minimum[row]
    copy_numbers(minimum, state.matrix[row, state.group.rank[row]])
    for rank in range(state.latest.shape[1]):
        if rank_sets.contains(state.group.members[row], rank):
            number = min(number, state.latest[row, rank])
            fold(state.group, minimum, state.matrix[row, rank])
    learn_stable(state.group, row, minimum)
    state.done[row] = number
    end_round(mail, number)
    _count_missing(state, row)
    if state.joined[row] == number:
        _schedule_next_round(state, row, mail)


@linked
def _schedule_next_round(state, row, mail):
    if is_lowest(state.group, row):
        rest(mail, NEXT_ROUND, state.done[row], state.delta_ns)


@linked
def _request_missing(state, row, mail):
    slot = _draft_row(state, row, mail, REQUEST)
    for rank in range(state.latest.shape[1]):
        if rank_sets.contains(state.group.members[row], rank) and state.latest[row, rank] < state.sent[row]:
            send(mail, slot, rank)


@linked
def _draft_row(state, row, mail, kind):
    senders = state.matrix.shape[2]
    slot = draft(mail, kind, state.sent[row], state.sizes[kind])
    copy_numbers(mail.numbers[slot, :senders], state.group.received[row])
    return slot


def _round_messages(context: Context) -> float:
    """Messages per round: every missing row is requested and sent again."""
    n = context.members
    missing: float = 1 - (1 - context.network.loss) ** math.log2(2 * n)
    return n + 2 * n**2 * missing * BUSIEST_LINK_SHARE


PROTOCOL = Protocol(
    name="full_dist",
    title="FullDist",
    family="stability",
    paper="cube §2.2, guo §4.2.2",
    summary="every member multicasts its R to every member",
    state=FullDistState,
    messages=MESSAGES,
    parameters=FullDistParameters,
    build=build,
    state_per_member="quadratic",
    round_messages=_round_messages,
    sends_per_member=lambda members, _parameters: members,
    colour="#D55E00",
)
