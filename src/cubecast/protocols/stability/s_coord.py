"""S_Coord: Coord over a tree (cube §2.3, Fig 3; guo §4.3.1, S_CoordP).

A round: the root multicasts START; leaves send ACK(R) to their parent; an inner member that has every child's ACK sends
the minimum of these and its own R to its parent; the root multicasts INFO(S). Ranks fill the tree breadth first, or in
the order and shape that `parents` gives.

Two readings of *multicast*: the network carries START and INFO from the root to all members; or members relay both down
the logical tree, each to its children (`relayed`), so that "each node sends and receives only log(n) messages" (cube
§4.2.2). If the network has no multicast, the first takes n−1 messages from the root alone, so the second is the default
there.

| field    | shape        | meaning                                                                          |
|----------|--------------|----------------------------------------------------------------------------------|
| parents  | n            | the initial tree: the parent of every rank                                       |
| round    | rows         | the newest round this member knows of                                            |
| reported | rows         | the newest round in which it sent its ACK (the root: knew S)                     |
| done     | rows         | the newest round whose S it knows                                                |
| view_seen | rows        | a number that identifies the membership as this member sees it                   |
| parent   | rows         | the member it reports to; −1 at the root                                         |
| children | rows         | the members that report to it (`protocol.rank_lists`, like the next two)         |
| minimum  | rows × m     | M: the minimum of its own R and its children's ACKs in this round                |
| acked    | rows         | the children whose ACK of this round and view has arrived                        |
| informed | rows         | the children whose ACK_INFO of this round has arrived (lossy form)               |

Invariants: `done ≤ round`, `reported ≤ round`; `minimum` is at most R of every live member below a child in `acked`.

The tree of cube does not survive a crash. Here a member knows its ancestors (guo §4.3.1): it reports to the nearest
live one or, if none is alive, to the lowest live rank, which is then the root; `parent` and `children` follow the
membership. An ACK covers the members below its sender in the membership as the sender sees it, so it carries that view
(a number in its header) and counts only for a member with the same view. Whenever the membership changes in an
unfinished round, every member collects ACKs again: it asks its children (ASK), and reports again. Of a child and its
parent one learns of the change last: if it is the child, it then sends its ACK without a request; if it is the parent,
its ASK is answered. A member that already knows S answers with INFO. A new root runs the unfinished round again. A
newcomer is asked like every other child. Lossy form (`repeat_ns > 0`), per edge: a parent repeats START to children
whose ACK is missing and INFO to those whose ACK_INFO is missing; a child that has reported answers a repeated START
with its ACK. ACK_INFO climbs the tree like ACK, so the root knows when all know S. In the relayed form a member that
takes over the children of one that left sends them the result, which that member may not have relayed, and a member
that has reported answers a second START.
"""

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol import rank_lists, rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import (
    GroupState,
    copy_numbers,
    fold,
    is_lowest,
    learn_stable,
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
from cubecast.protocol.parameters import parameter
from cubecast.protocol.rank_lists import RankLists
from cubecast.protocol.traffic import Traffic, to_all, together, up_tree
from cubecast.protocols.stability.logical_tree import (
    LogicalTreeParameters,
    children_of,
    first_tree,
    live_parent,
    logical_order,
    logical_parents,
    resolve_tree,
)

START, ACK, INFO, ACK_INFO, ASK = range(5)
NEXT_ROUND, REPEAT = range(2)
MESSAGES = (  # the view is in the header
    message("START", round=where_lossy(4)),
    message("ACK", round=where_lossy(4), minimum=per_sender(4)),
    message("INFO", round=where_lossy(4), stable=per_sender(4)),
    message("ACK_INFO", round=where_lossy(4)),
    message("ASK", round=where_lossy(4)),
)


@dataclass(frozen=True, kw_only=True)
class SCoordParameters(LogicalTreeParameters):
    """Parameters of S_Coord."""

    relayed: bool | None = parameter(
        None,
        "START and INFO go down the logical tree, from parent to child (cube §4.2.2).",
        otherwise="if the network has no multicast",
    )


class SCoordState(NamedTuple):
    """S_Coord, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    relayed: int
    sizes: np.ndarray
    parents: np.ndarray
    round: np.ndarray
    reported: np.ndarray
    done: np.ndarray
    view_seen: np.ndarray
    parent: np.ndarray
    children: RankLists
    minimum: np.ndarray
    acked: RankLists
    informed: RankLists


def build(group: GroupState, context: Context, parameters: SCoordParameters) -> SCoordState:
    """S_Coord before its first round. `repeat_ns = 0` is the reliable FIFO form."""
    rows = len(group.rank)
    parents = logical_parents(logical_order(context, shuffled=bool(parameters.shuffled)), parameters)
    return SCoordState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        relayed=int(bool(parameters.relayed)),
        sizes=message_sizes(MESSAGES, context),
        parents=parents,
        round=np.zeros(rows, np.int64),
        reported=np.zeros(rows, np.int64),
        done=np.zeros(rows, np.int64),
        view_seen=np.full(rows, rank_sets.fingerprint(group.members[0]), np.int64),
        parent=first_tree(group, parents)[0][group.rank],
        children=children_of(group, parents),
        minimum=np.zeros_like(group.received),
        acked=rank_lists.new_rank_lists(rows, context.members),
        informed=rank_lists.new_rank_lists(rows, context.members),
    )


@linked
def start(state, row, now_ns, mail):
    """As the root, open the first round; as a newcomer, find the place in the tree."""
    if now_ns > 0:
        _rebuild_edges(state, row, mail)
    if is_lowest(state.group, row):
        _open_round(state, row, mail, 1)


@linked
def receive(state, row, now_ns, mail, slot):
    """Fig 3, lines 2–4, 5–20 and 21–25."""
    kind = mail.heads[slot].kind
    if kind == START:
        _on_start(state, row, mail, slot)
    elif kind == ACK:
        _on_ack(state, row, mail, slot)
    elif kind == INFO:
        _on_info(state, row, mail, slot)
    elif kind == ASK:
        _on_ask(state, row, mail, slot)
    else:
        _on_ack_info(state, row, mail, slot)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Open the next round when Δ is over, or repeat what was not answered."""
    if timer == NEXT_ROUND:
        if is_lowest(state.group, row) and state.done[row] == tag and state.round[row] == tag:
            _open_round(state, row, mail, tag + 1)
    elif state.round[row] == tag:
        _repeat(state, row, mail)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Follow the new tree and collect again; lead if this member is the root now."""
    before = state.parent[row]
    was_informed = rank_lists.covers(state.informed, state.children, row)
    _rebuild_edges(state, row, mail)
    unfinished = state.done[row] < state.round[row]
    if unfinished:
        _collect_again(state, row, mail)
    if state.parent[row] == -1:
        _lead(state, row, mail, before, unfinished, was_informed)
    elif not unfinished and not was_informed:
        _acknowledge_if_informed(state, row, mail)
    elif not unfinished:
        _inform_orphans(state, row, mail)
    _report_if_collected(state, row, mail)


@linked
def _lead(state, row, mail, before, unfinished, was_informed):
    """Continue as the root: as before, or in place of a root that left."""
    if before != -1:
        if unfinished:
            _open_round(state, row, mail, state.round[row])
        else:
            _succeed(state, row, mail)
    elif not unfinished and state.repeat_ns > 0 and not was_informed:
        _wait_if_informed(state, row, mail)
    elif not unfinished:
        _inform_orphans(state, row, mail)


@linked
def _inform_orphans(state, row, mail):
    """Repeat INFO for children taken over, which may lack S; repeats had stopped once all own children knew S."""
    if state.repeat_ns > 0 and not rank_lists.covers(state.informed, state.children, row):
        set_timer(mail, REPEAT, state.round[row], state.repeat_ns)


@linked
def on_join(state, row, now_ns, mail, rank):
    """Give a newcomer its place; its parent asks it in the round in progress."""
    was_informed = rank_lists.covers(state.informed, state.children, row)
    _rebuild_edges(state, row, mail)
    if state.done[row] == state.round[row]:
        if not was_informed:  # it may have waited for a member that now reports to the newcomer
            _finish_if_informed(state, row, mail)
        return
    _collect_again(state, row, mail)
    _report_if_collected(state, row, mail)


@linked
def _finish_if_informed(state, row, mail):
    """If all members below know S, report that or, at the root, rest."""
    if state.parent[row] >= 0:
        _acknowledge_if_informed(state, row, mail)
    elif state.repeat_ns > 0:
        _wait_if_informed(state, row, mail)


@linked
def _rebuild_edges(state, row, mail):
    """Follow the membership; in the relayed form send new children what their last parent may not have relayed."""
    me = state.group.rank[row]
    members = state.group.members[row]
    state.view_seen[row] = rank_sets.fingerprint(members)
    state.parent[row] = live_parent(state.parents, members, me)
    for rank in range(state.parents.shape[0]):
        if not rank_sets.contains(members, rank) or live_parent(state.parents, members, rank) != me:
            rank_lists.discard(state.children, row, rank)
        elif not rank_lists.contains(state.children, row, rank):
            rank_lists.add(state.children, row, rank, mail)
            if state.relayed != 0 and 0 < state.round[row] == state.done[row]:
                send(mail, _draft_array(state, mail, INFO, state.done[row], state.group.stable[row]), rank)


@linked
def _collect_again(state, row, mail):
    """Collect again in a new view: ACKs sent and received so far cover other members than the present tree."""
    rank_lists.clear(state.acked, row)
    state.reported[row] = state.round[row] - 1
    ask = _draft_bare(state, mail, ASK, state.round[row])
    _set_view(mail, ask, state.view_seen[row])
    _send_to_missing(state, row, mail, ask, state.acked)


@linked
def _open_round(state, row, mail, number):
    """At the root: multicast that the round began."""
    _enter_round(state, row, mail, number)
    _spread(state, row, mail, _draft_bare(state, mail, START, number))
    _report_if_collected(state, row, mail)


@linked
def _spread(state, row, mail, slot):
    """Send START or INFO from the root to all members, or to the children, which relay it."""
    if state.relayed == 0:
        multicast(mail, slot)
        return
    entry = state.children.first[row]
    while entry != 0:
        send(mail, slot, state.children.rank[entry])
        entry = state.children.after[entry]


@linked
def _enter_round(state, row, mail, number):
    if number <= state.round[row]:
        return
    state.round[row] = number
    copy_numbers(state.minimum[row], state.group.received[row])
    rank_lists.clear(state.acked, row)
    rank_lists.clear(state.informed, row)
    begin_round(mail, number)
    if state.repeat_ns > 0:
        set_timer(mail, REPEAT, number, state.repeat_ns)


@linked
def _catch_up(state, row, mail, number):
    """Enter a round that others are in already; a root that was behind opens it for all, a relay forwards it."""
    if number > state.round[row]:
        _enter_round(state, row, mail, number)
        if state.parent[row] == -1 or state.relayed != 0:
            _spread(state, row, mail, _draft_bare(state, mail, START, number))


@linked
def _enter_or_answer(state, row, mail, slot):
    """Enter the round of a START or ASK; send the round in progress to a sender that is behind, such as a new root."""
    number = mail.heads[slot].round_number
    if number < state.round[row]:
        send(mail, _draft_bare(state, mail, START, state.round[row]), mail.heads[slot].source)
        return False
    _catch_up(state, row, mail, number)
    return True


@linked
def _on_start(state, row, mail, slot):
    number = mail.heads[slot].round_number
    if not _enter_or_answer(state, row, mail, slot):
        return
    if state.reported[row] < number:
        _report_if_collected(state, row, mail)
    elif state.repeat_ns > 0 or state.relayed != 0:  # a repeated START; otherwise the children's ACKs overtook it
        _report(state, row, mail)


@linked
def _on_ack(state, row, mail, slot):
    number = mail.heads[slot].round_number
    _catch_up(state, row, mail, number)
    if number == state.round[row]:
        fold(state.group, state.minimum[row], mail.numbers[slot])
        if _view_of(mail, slot) != state.view_seen[row]:
            return  # it will be sent again: see the module
        rank_lists.add(state.acked, row, mail.heads[slot].source, mail)
        _report_if_collected(state, row, mail)


@linked
def _on_ask(state, row, mail, slot):
    """Answer a parent's request for the ACK in its view; without an ACK in that view yet, send it later."""
    number = mail.heads[slot].round_number
    if not _enter_or_answer(state, row, mail, slot):
        return
    if state.done[row] == number:
        send(mail, _draft_array(state, mail, INFO, number, state.group.stable[row]), mail.heads[slot].source)
    elif state.reported[row] < number:
        _report_if_collected(state, row, mail)
    elif _view_of(mail, slot) == state.view_seen[row]:
        _report(state, row, mail)


@linked
def _view_of(mail, slot):
    return mail.heads[slot].field_1


@linked
def _set_view(mail, slot, view):
    mail.heads[slot].field_1 = view


@linked
def _report_if_collected(state, row, mail):
    if state.reported[row] == state.round[row] or not rank_lists.covers(state.acked, state.children, row):
        return
    state.reported[row] = state.round[row]
    if state.parent[row] == -1:
        _conclude(state, row, mail)
    else:
        _report(state, row, mail)


@linked
def _report(state, row, mail):
    if state.parent[row] >= 0:
        slot = _draft_array(state, mail, ACK, state.round[row], state.minimum[row])
        _set_view(mail, slot, state.view_seen[row])
        send(mail, slot, state.parent[row])


@linked
def _conclude(state, row, mail):
    """At the root, which has every child's ACK and so knows S: end the round."""
    number = state.round[row]
    learn_stable(state.group, row, state.minimum[row])
    if number > state.done[row]:
        state.done[row] = number
        end_round(mail, number)
    _spread(state, row, mail, _draft_array(state, mail, INFO, number, state.group.stable[row]))
    if state.repeat_ns > 0:
        _wait_if_informed(state, row, mail)
    else:
        rest(mail, NEXT_ROUND, number, state.delta_ns)


@linked
def _succeed(state, row, mail):
    """Continue after the last round of a root that left, perhaps before all members knew its result."""
    if state.repeat_ns > 0 and state.done[row] > 0:
        rank_lists.clear(state.informed, row)
        _spread(state, row, mail, _draft_array(state, mail, INFO, state.done[row], state.group.stable[row]))
        set_timer(mail, REPEAT, state.round[row], state.repeat_ns)
        _wait_if_informed(state, row, mail)
    else:
        rest(mail, NEXT_ROUND, state.done[row], state.delta_ns)


@linked
def _wait_if_informed(state, row, mail):
    if rank_lists.covers(state.informed, state.children, row):
        rest(mail, NEXT_ROUND, state.done[row], state.delta_ns)


@linked
def _on_info(state, row, mail, slot):
    number = mail.heads[slot].round_number
    learn_stable(state.group, row, mail.numbers[slot])
    _enter_round(state, row, mail, number)
    if number > state.done[row]:
        state.done[row] = number
        end_round(mail, number)
        if state.relayed != 0:
            _spread(state, row, mail, _draft_array(state, mail, INFO, number, state.group.stable[row]))
        if state.parent[row] == -1:  # the last word of one that has left
            state.reported[row] = number
            _succeed(state, row, mail)
    _acknowledge_if_informed(state, row, mail)


@linked
def _acknowledge_if_informed(state, row, mail):
    """Report to the parent that S is known here and below."""
    if state.repeat_ns > 0 and state.parent[row] >= 0 and rank_lists.covers(state.informed, state.children, row):
        send(mail, _draft_bare(state, mail, ACK_INFO, state.done[row]), state.parent[row])


@linked
def _on_ack_info(state, row, mail, slot):
    source = mail.heads[slot].source
    number = mail.heads[slot].round_number
    if number != state.round[row] or rank_lists.contains(state.informed, row, source):
        return
    rank_lists.add(state.informed, row, source, mail)
    if number == state.done[row]:
        _finish_if_informed(state, row, mail)


@linked
def _repeat(state, row, mail):
    """Repeat the message to the children that have not answered."""
    number = state.round[row]
    if state.done[row] < number:
        _send_to_missing(state, row, mail, _draft_bare(state, mail, START, number), state.acked)
    elif not rank_lists.covers(state.informed, state.children, row):
        info = _draft_array(state, mail, INFO, number, state.group.stable[row])
        _send_to_missing(state, row, mail, info, state.informed)
    else:
        return
    set_timer(mail, REPEAT, number, state.repeat_ns)


@linked
def _send_to_missing(state, row, mail, slot, answered):
    entry = state.children.first[row]
    while entry != 0:
        rank = state.children.rank[entry]
        if not rank_lists.contains(answered, row, rank):
            send(mail, slot, rank)
        entry = state.children.after[entry]


@linked
def _draft_bare(state, mail, kind, number):
    return draft(mail, kind, number, state.sizes[kind])


@linked
def _draft_array(state, mail, kind, number, numbers):
    width = numbers.shape[0]
    slot = draft(mail, kind, number, state.sizes[kind])
    copy_numbers(mail.numbers[slot, :width], numbers)
    return slot


def _resolve(parameters: SCoordParameters, context: Context) -> SCoordParameters:
    relayed = not context.network.has_multicast if parameters.relayed is None else parameters.relayed
    return replace(resolve_tree(parameters, context), relayed=relayed)


def _traffic(context: Context, parameters: SCoordParameters) -> Traffic:
    """ACK up the tree; START and INFO down the same links, or from the root to all members."""
    parents = logical_parents(logical_order(context, shuffled=bool(parameters.shuffled)), parameters)
    if parameters.relayed:
        return up_tree(parents, 3.0)
    return together(to_all(0, context.members, 2.0), up_tree(parents))


PROTOCOL = Protocol(
    name="s_coord",
    title="S_Coord",
    family="stability",
    paper="cube §2.3, guo §4.3.1 (S_CoordP)",
    summary="minima climb a tree, the root multicasts the result",
    state=SCoordState,
    messages=MESSAGES,
    parameters=SCoordParameters,
    build=build,
    resolve=_resolve,
    traffic=_traffic,
    colour="#009E73",
)
