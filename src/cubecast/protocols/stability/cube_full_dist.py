"""CubeFullDist: gossip with the hypercube neighbours only, in iterations (cube §3.2, Fig 5).

A round: each member sends (G, M, round, iteration) to its neighbours, waits for a message from all of them, merges
these, and begins the next iteration, until G covers the membership; then M is S. It sends the full G once more, so that
no neighbour waits for a member that has finished.

| field      | shape        | meaning                                                                           |
|------------|--------------|-----------------------------------------------------------------------------------|
| neighbours | links        | the logical neighbours of each row, `offsets[row]` … `offsets[row + 1] − 1`       |
| reached    | links        | the newest iteration of this round heard from that neighbour                      |
| round      | rows         | r: the current round                                                              |
| done       | rows         | the newest round whose S this member knows                                        |
| iteration  | rows         | k: the current iteration                                                          |
| minimum    | rows × m     | M: the minimum over the members in `heard`                                        |
| heard      | rows × words | G: the members whose R is in `minimum`                                            |

Invariants: `minimum ≤ R_k` for every k in `heard`, so a covering G is never premature; `done ≤ round ≤ done + 1`
unless rounds were skipped.

`reached` replaces the paper's counter, so that duplicates, loss and a neighbour that is one iteration ahead do no harm:
an iteration is complete when every live neighbour has reached it. A member that receives a message of a later round
joins that round at once (possible during Δ, or after loss). Lossy form (`repeat_ns > 0`): an unfinished member repeats
its state; a finished one answers a neighbour that lags behind with the full G and S.

Two readings of a message's size (`format`): *bitmap* counts everything that Fig 5 sends, 36 + 4m + ⌈n/8⌉ bytes, 474 at
n = 1900; *stated* counts what cube §4.1 states, a 32-byte header and an array of "at most 200 bytes".
"""

import math
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import (
    GroupState,
    copy_numbers,
    fold,
    learn_stable,
)
from cubecast.protocol.mail import (
    begin_round,
    draft,
    end_round,
    rest,
    send,
    set_timer,
)
from cubecast.protocol.messages import Size, constant, member_set, message, message_sizes, per_sender, where_lossy
from cubecast.protocol.overlays import BUSIEST_LINK_SHARE, hypercube, of_ranks
from cubecast.protocol.parameters import parameter
from cubecast.protocol.traffic import over_links

STABILITY, RESULT = range(2)
NEXT_ROUND, REPEAT = range(2)


@dataclass(frozen=True, kw_only=True)
class CubeFullDistParameters:
    """Parameters of CubeFullDist."""

    format: Literal["bitmap", "stated"] = parameter(
        "bitmap", "The size of a message: array, bitmap and round, or as cube §4.1 states, only 4 B per sender."
    )


def _unless_stated(size: Size) -> Size:
    """The size of a field that counts 0 in the format *stated* (cube §4.1)."""
    return Size(
        f"{size.text}; 0 as stated",
        lambda context, parameters: 0 if parameters.format == "stated" else size.of(context, parameters),
        size.is_set,
    )


_ROUND = _unless_stated(constant(4))
_HEARD = _unless_stated(member_set())
MESSAGES = (
    message("STABILITY", round=_ROUND, iteration=where_lossy(4), minimum=per_sender(4), heard=_HEARD),
    message("RESULT", round=_ROUND, iteration=where_lossy(4), stable=per_sender(4), heard=_HEARD),
)


class CubeFullDistState(NamedTuple):
    """CubeFullDist, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    sizes: np.ndarray
    offsets: np.ndarray
    neighbours: np.ndarray
    reached: np.ndarray
    round: np.ndarray
    done: np.ndarray
    iteration: np.ndarray
    minimum: np.ndarray
    heard: np.ndarray


def build(group: GroupState, context: Context, parameters: CubeFullDistParameters) -> CubeFullDistState:
    """CubeFullDist before its first round."""
    rows = len(group.rank)
    overlay = of_ranks(hypercube(context.members), group.rank)
    return CubeFullDistState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        sizes=message_sizes(MESSAGES, context, parameters),
        offsets=overlay.offsets,
        neighbours=overlay.neighbours,
        reached=np.zeros(len(overlay.neighbours), np.int32),
        round=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        iteration=np.zeros(rows, np.int64),
        minimum=np.zeros_like(group.received),
        heard=rank_sets.empty(len(group.rank), context.members),
    )


@linked
def start(state, row, now_ns, mail):
    """Open the first round; every member does so."""
    if state.round[row] == 0:
        _enter_round(state, row, mail, 1)
        _send_state(state, row, mail)
        _advance(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Fig 5, lines 2–20."""
    number = mail.heads[slot].round_number
    if number <= state.done[row]:
        # A result is not answered: two members with different views would answer each other for ever.
        asks = mail.heads[slot].kind == STABILITY and not rank_sets.covers(mail.bits[slot], state.group.members[row])
        if state.repeat_ns > 0 and asks:
            _send_result(state, row, mail, mail.heads[slot].source)
        return
    if number < state.round[row]:
        return
    joins = number > state.round[row]
    if joins:
        _enter_round(state, row, mail, number)
    _merge(state, row, mail, slot)
    if joins:
        _send_state(state, row, mail)
    _advance(state, row, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Begin the next round when Δ is over, or repeat the state."""
    if timer == NEXT_ROUND:
        if state.round[row] == tag and state.done[row] == tag:
            _enter_round(state, row, mail, tag + 1)
            _send_state(state, row, mail)
            _advance(state, row, mail)
    elif state.done[row] < tag:
        # Also when a later round has begun: rounds that follow faster than repeats must not leave anyone behind.
        _send_state(state, row, mail)
        if state.round[row] == tag:
            set_timer(mail, REPEAT, tag, state.repeat_ns)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Stop waiting for the bit and the message of a member that left."""
    if state.done[row] < state.round[row]:
        _advance(state, row, mail)


@linked
def _enter_round(state, row, mail, number):
    state.round[row] = number
    state.iteration[row] = 1
    copy_numbers(state.minimum[row], state.group.received[row])
    rank_sets.only(state.heard[row], state.group.rank[row])
    for link in range(state.offsets[row], state.offsets[row + 1]):
        state.reached[link] = 0
    begin_round(mail, number)
    if state.repeat_ns > 0:
        set_timer(mail, REPEAT, number, state.repeat_ns)


@linked
def _merge(state, row, mail, slot):
    rank_sets.merge(state.heard[row], mail.bits[slot])
    fold(state.group, state.minimum[row], mail.numbers[slot])
    for link in range(state.offsets[row], state.offsets[row + 1]):
        if state.neighbours[link] == mail.heads[slot].source:
            state.reached[link] = max(state.reached[link], _iteration_of(mail, slot))


@linked
def _advance(state, row, mail):
    """Run the iterations for which all neighbours have sent, and finish the round if G covers the membership."""
    while not rank_sets.covers(state.heard[row], state.group.members[row]):
        if not _iteration_complete(state, row):
            return
        state.iteration[row] += 1
        _send_state(state, row, mail)
    _finish_round(state, row, mail)


@linked
def _iteration_complete(state, row):
    """Has every live neighbour reached this iteration? (Never, without a live neighbour.)"""
    alive = False
    for link in range(state.offsets[row], state.offsets[row + 1]):
        if rank_sets.contains(state.group.members[row], state.neighbours[link]):
            alive = True
            if state.reached[link] < state.iteration[row]:
                return False
    return alive


@linked
def _finish_round(state, row, mail):
    _send_state(state, row, mail)
    learn_stable(state.group, row, state.minimum[row])
    state.done[row] = state.round[row]
    end_round(mail, state.round[row])
    rest(mail, NEXT_ROUND, state.round[row], state.delta_ns)


@linked
def _iteration_of(mail, slot):
    return mail.heads[slot].field_1


@linked
def _set_iteration(mail, slot, iteration):
    mail.heads[slot].field_1 = iteration


@linked
def _send_state(state, row, mail):
    slot = draft(mail, STABILITY, state.round[row], state.sizes[STABILITY])
    _set_iteration(mail, slot, state.iteration[row])
    copy_numbers(mail.numbers[slot, : state.minimum.shape[1]], state.minimum[row])
    rank_sets.copy(mail.bits[slot], state.heard[row])
    for link in range(state.offsets[row], state.offsets[row + 1]):
        if rank_sets.contains(state.group.members[row], state.neighbours[link]):
            send(mail, slot, np.int64(state.neighbours[link]))


@linked
def _send_result(state, row, mail, rank):
    """Send S and a full G: all that a neighbour in that round, or an earlier one, needs."""
    slot = draft(mail, RESULT, state.done[row], state.sizes[RESULT])
    _set_iteration(mail, slot, state.iteration[row])
    copy_numbers(mail.numbers[slot, : state.minimum.shape[1]], state.group.stable[row])
    rank_sets.copy(mail.bits[slot], state.group.members[row])
    send(mail, slot, rank)


def _round_messages(context: Context) -> float:
    """Messages per round: every member sends to ⌈log2 n⌉ neighbours, ⌈log2 n⌉ times."""
    return context.members * BUSIEST_LINK_SHARE * math.log2(2 * context.members) ** 2


PROTOCOL = Protocol(
    name="cube_full_dist",
    title="CubeFullDist",
    family="stability",
    paper="cube §3.2",
    summary="minima spread between hypercube neighbours, iteration by iteration",
    state=CubeFullDistState,
    messages=MESSAGES,
    parameters=CubeFullDistParameters,
    build=build,
    by_neighbour=("neighbours", "reached"),
    round_messages=_round_messages,
    sends_per_member=lambda members, _parameters: math.log2(members) ** 2,
    traffic=lambda context, _parameters: over_links(hypercube(context.members), math.log2(2 * context.members)),
    auto_from=2,
    colour="#CC79A7",
)
