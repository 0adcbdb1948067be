"""S_Train: a train in every sub-group of a tree (guo §4.3.2, Fig 4.12).

A round: the root multicasts START. Each sibling sends the running minimum to the next (ACK1); the last one sends it to
the parent (ACK2). A member sends once it has the ACK2 of its last child and the ACK1 of its elder sibling, if it has
these relatives. With its last child's ACK2 the root knows S and multicasts INFO(S).

| field      | shape    | meaning                                                                                |
|------------|----------|----------------------------------------------------------------------------------------|
| parents    | n        | the initial tree: the parent of every rank                                             |
| place      | n        | the position of each rank in the tree, which orders siblings                           |
| round      | rows     | the newest round this member knows of                                                  |
| done       | rows     | the newest round whose S it knows                                                      |
| view_seen  | rows     | a number that identifies the membership as this member sees it                         |
| sent_round | rows     | the newest round in which it sent its ACK (the root: knew S) …                         |
| sent_view  | rows     | … and its view then                                                                    |
| parent, elder, younger, last_child | rows | its live relatives, −1 for none                                    |
| elder_in   | rows     | has the elder sibling's ACK1 of this round and view arrived?                           |
| child_in   | rows     | has the last child's ACK2 of this round and view arrived?                              |
| minimum    | rows × m | M: the minimum of its own R and of the ACKs it received in this round                  |

Invariant: once `elder_in` and `child_in` hold, `minimum` is at most R of every live member that in this view is below
it, or is an elder sibling or below one.

Faults. Relatives follow the membership: a sub-group that lost its parent reports to its grandparent and joins the
grandparent's children; the train skips a sibling that has left. A member's position decides which members its ACK
covers, so an ACK carries the sender's view (in its header) and counts only for a member with the same view: whenever
the membership changes, the members send again in the new view, and ask their relatives to do so. A new root gives up an
unfinished round and opens the next one. Lossy form (`repeat_ns > 0`): the root repeats START; every member repeats its
ACK, or asks for those it waits for, until it knows S; a member that knows S answers with INFO. A member that
receives an ACK or a request of a later round enters that round, even if no START arrives.
"""

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
from cubecast.protocol.traffic import Traffic, pairs, to_all, together
from cubecast.protocols.stability.logical_tree import (
    LogicalTreeParameters,
    first_tree,
    live_parent,
    logical_order,
    logical_parents,
    resolve_tree,
)

START, ACK1, ACK2, INFO, ASK = range(5)
NEXT_ROUND, REPEAT = range(2)
MESSAGES = (  # the view is in the header
    message("START", round=where_lossy(4)),
    message("ACK1", round=where_lossy(4), minimum=per_sender(4)),
    message("ACK2", round=where_lossy(4), minimum=per_sender(4)),
    message("INFO", round=where_lossy(4), stable=per_sender(4)),
    message("ASK", round=where_lossy(4)),
)


class STrainState(NamedTuple):
    """S_Train, one row per local member."""

    group: GroupState
    delta_ns: int
    repeat_ns: int
    sizes: np.ndarray
    parents: np.ndarray
    place: np.ndarray
    round: np.ndarray
    done: np.ndarray
    view_seen: np.ndarray
    sent_round: np.ndarray
    sent_view: np.ndarray
    parent: np.ndarray
    elder: np.ndarray
    younger: np.ndarray
    last_child: np.ndarray
    elder_in: np.ndarray
    child_in: np.ndarray
    minimum: np.ndarray


def build(group: GroupState, context: Context, parameters: LogicalTreeParameters) -> STrainState:
    """S_Train before its first round. `repeat_ns = 0` is the reliable FIFO form."""
    rows = len(group.rank)
    order = logical_order(context, shuffled=bool(parameters.shuffled))
    parents, place = logical_parents(order, parameters), np.argsort(order)
    view = rank_sets.fingerprint(group.members[0])
    return STrainState(
        group=group,
        delta_ns=context.delta_ns,
        repeat_ns=context.repeat_ns,
        sizes=message_sizes(MESSAGES, context),
        parents=parents,
        place=place,
        minimum=np.zeros_like(group.received),
        view_seen=np.full(rows, view, np.int64),
        **{name: np.zeros(rows, np.int64) for name in ("round", "done", "sent_round", "sent_view")},
        **_first_relatives(group, parents, place),
        **{name: np.zeros(rows, np.int64) for name in ("elder_in", "child_in")},
    )


def _first_relatives(group: GroupState, parents: np.ndarray, place: np.ndarray) -> dict[str, np.ndarray]:
    """The relatives that `_see_membership` would find at the start, for all members at once."""
    above, present = first_tree(group, parents)
    children = np.flatnonzero(present & (above >= 0))
    children = children[np.lexsort((place[children], above[children]))]  # siblings together, the eldest first
    same = above[children[1:]] == above[children[:-1]]
    found = {name: np.full(len(parents), -1, np.int64) for name in ("elder", "younger", "last_child")}
    found["elder"][children[1:][same]] = children[:-1][same]
    found["younger"][children[:-1][same]] = children[1:][same]
    found["last_child"][above[children]] = children  # of several, the last is kept
    return {"parent": above[group.rank]} | {name: values[group.rank] for name, values in found.items()}


@linked
def start(state, row, now_ns, mail):
    """As the root, open the first round; as a newcomer, find the relatives and ask for the round in progress."""
    if now_ns > 0:
        _see_membership(state, row)
    if is_lowest(state.group, row):
        _open_round(state, row, mail, 1)
    elif now_ns > 0:
        _ask(state, row, mail)
        if state.repeat_ns > 0:
            set_timer(mail, REPEAT, 0, state.repeat_ns)


@linked
def receive(state, row, now_ns, mail, slot):
    """Fig 4.12."""
    kind = mail.heads[slot].kind
    number = mail.heads[slot].round_number
    if kind == INFO:
        _on_info(state, row, mail, slot)
    elif kind == ASK:
        _on_ask(state, row, mail, slot)
    elif number <= state.done[row]:
        if state.repeat_ns > 0 and kind != START:
            send(mail, _draft_array(state, mail, INFO, state.done[row], state.group.stable[row]), _source(mail, slot))
    elif number >= state.round[row]:
        _catch_up(state, row, mail, number)
        if kind != START:
            _merge_ack(state, row, mail, slot, kind)
        _send_on_if_ready(state, row, mail)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Open the next round when Δ is over, or repeat."""
    if timer == NEXT_ROUND:
        if is_lowest(state.group, row) and state.done[row] == tag and state.round[row] == tag:
            _open_round(state, row, mail, tag + 1)
    elif state.round[row] == tag and (state.done[row] < tag or tag == 0):
        if state.parent[row] == -1:
            multicast(mail, _draft_bare(state, row, mail, START))
        elif state.sent_round[row] == tag and tag > 0:
            _send_ack(state, row, mail)
        else:
            _ask(state, row, mail)
        set_timer(mail, REPEAT, tag, state.repeat_ns)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """The train takes another route; a new root takes over."""
    before = state.parent[row]
    _see_membership(state, row)
    if state.parent[row] == -1 and before != -1:
        if state.done[row] < state.round[row] or state.round[row] == 0:
            _open_round(state, row, mail, state.round[row] + 1)
        else:
            rest(mail, NEXT_ROUND, state.done[row], state.delta_ns)
        return
    _start_over(state, row, mail)


@linked
def on_join(state, row, now_ns, mail, rank):
    """Give the newcomer its place in a train, and let it know of the round in progress."""
    _see_membership(state, row)
    if state.parent[row] == -1 and state.done[row] < state.round[row]:
        send(mail, _draft_bare(state, row, mail, START), rank)
    _start_over(state, row, mail)


@linked
def _start_over(state, row, mail):
    """Start over in a new view: the ACKs received so far cover other members than the present tree."""
    if state.done[row] == state.round[row]:
        return
    _send_on_if_ready(state, row, mail)
    _ask(state, row, mail)


@linked
def _ask(state, row, mail):
    """Ask for the ACKs that this member waits for; as a newcomer, for any news."""
    slot = _draft_bare(state, row, mail, ASK)
    if state.elder[row] >= 0:
        send(mail, slot, state.elder[row])
    if state.last_child[row] >= 0:
        send(mail, slot, state.last_child[row])
    if state.round[row] == 0 and state.parent[row] >= 0:
        send(mail, slot, state.parent[row])


@linked
def _see_membership(state, row):
    """Find the live relatives in the present membership; no ACK has arrived in this view yet."""
    me = state.group.rank[row]
    members = state.group.members[row]
    parent = live_parent(state.parents, members, me)
    state.parent[row] = parent
    state.elder[row] = -1
    state.younger[row] = -1
    state.last_child[row] = -1
    for rank in range(state.parents.shape[0]):
        if rank == me or not rank_sets.contains(members, rank):
            continue
        above = live_parent(state.parents, members, rank)
        if above == me:
            state.last_child[row] = _later(state, state.last_child[row], rank)
        elif above == parent and state.place[rank] < state.place[me]:
            state.elder[row] = _later(state, state.elder[row], rank)
        elif above == parent:
            state.younger[row] = _earlier(state, state.younger[row], rank)
    state.elder_in[row] = 0
    state.child_in[row] = 0
    state.view_seen[row] = rank_sets.fingerprint(members)


@linked
def _later(state, known, rank):
    return rank if known < 0 or state.place[rank] > state.place[known] else known


@linked
def _earlier(state, known, rank):
    return rank if known < 0 or state.place[rank] < state.place[known] else known


@linked
def _view_of(mail, slot):
    """The number of the membership that the sender of a message sees."""
    return mail.heads[slot].field_1


@linked
def _set_view(mail, slot, view):
    mail.heads[slot].field_1 = view


@linked
def _source(mail, slot):
    return mail.heads[slot].source


@linked
def _open_round(state, row, mail, number):
    _enter_round(state, row, mail, number)
    multicast(mail, _draft_bare(state, row, mail, START))
    _send_on_if_ready(state, row, mail)


@linked
def _enter_round(state, row, mail, number):
    state.round[row] = number
    state.elder_in[row] = 0
    state.child_in[row] = 0
    copy_numbers(state.minimum[row], state.group.received[row])
    begin_round(mail, number)
    if state.repeat_ns > 0:
        set_timer(mail, REPEAT, number, state.repeat_ns)


@linked
def _catch_up(state, row, mail, number):
    """Enter a round that others are in already; a root that was behind opens it for all members."""
    if number > state.round[row]:
        _enter_round(state, row, mail, number)
        if state.parent[row] == -1:
            multicast(mail, _draft_bare(state, row, mail, START))


@linked
def _merge_ack(state, row, mail, slot, kind):
    """Merge an ACK of this round: its numbers always count; it counts as the relative's ACK only in the same view."""
    fold(state.group, state.minimum[row], mail.numbers[slot])
    if _view_of(mail, slot) != state.view_seen[row]:
        return
    if kind == ACK1 and mail.heads[slot].source == state.elder[row]:
        state.elder_in[row] = 1
    elif kind == ACK2 and mail.heads[slot].source == state.last_child[row]:
        state.child_in[row] = 1


@linked
def _send_on_if_ready(state, row, mail):
    number = state.round[row]
    if number == 0 or number == state.done[row]:
        return
    if state.sent_round[row] == number and state.sent_view[row] == state.view_seen[row]:
        return
    if state.elder[row] >= 0 and state.elder_in[row] == 0:
        return
    if state.last_child[row] >= 0 and state.child_in[row] == 0:
        return
    state.sent_round[row] = number
    state.sent_view[row] = state.view_seen[row]
    if state.parent[row] == -1:
        _conclude(state, row, mail)
    else:
        _send_ack(state, row, mail)


@linked
def _send_ack(state, row, mail):
    """ACK1 to the younger sibling, or ACK2 to the parent."""
    kind = ACK1 if state.younger[row] >= 0 else ACK2
    slot = _draft_array(state, mail, kind, state.round[row], state.minimum[row])
    _set_view(mail, slot, state.sent_view[row])
    send(mail, slot, state.younger[row] if kind == ACK1 else state.parent[row])


@linked
def _conclude(state, row, mail):
    number = state.round[row]
    learn_stable(state.group, row, state.minimum[row])
    state.done[row] = number
    end_round(mail, number)
    multicast(mail, _draft_array(state, mail, INFO, number, state.group.stable[row]))
    rest(mail, NEXT_ROUND, number, state.delta_ns)


@linked
def _on_info(state, row, mail, slot):
    number = mail.heads[slot].round_number
    learn_stable(state.group, row, mail.numbers[slot])
    if number > state.done[row]:
        state.done[row] = number
        end_round(mail, number)
    if number > state.round[row]:
        state.round[row] = number
    if state.parent[row] == -1 and state.done[row] == state.round[row]:
        rest(mail, NEXT_ROUND, number, state.delta_ns)


@linked
def _on_ask(state, row, mail, slot):
    """Answer a relative's request for the ACK in its view; without an ACK in that view yet, send it later."""
    number = mail.heads[slot].round_number
    if number > state.round[row]:  # no START has arrived
        _catch_up(state, row, mail, number)
        _send_on_if_ready(state, row, mail)
        return
    if state.done[row] > 0 and number <= state.done[row]:
        send(mail, _draft_array(state, mail, INFO, state.done[row], state.group.stable[row]), _source(mail, slot))
    if state.done[row] == state.round[row] or state.sent_round[row] != state.round[row]:
        return
    if _view_of(mail, slot) == state.view_seen[row] and state.view_seen[row] == state.sent_view[row]:
        _send_ack(state, row, mail)


@linked
def _draft_bare(state, row, mail, kind):
    slot = draft(mail, kind, state.round[row], state.sizes[kind])
    _set_view(mail, slot, state.view_seen[row])
    return slot


@linked
def _draft_array(state, mail, kind, number, numbers):
    width = numbers.shape[0]
    slot = draft(mail, kind, number, state.sizes[kind])
    copy_numbers(mail.numbers[slot, :width], numbers)
    return slot


def _traffic(context: Context, parameters: LogicalTreeParameters) -> Traffic:
    """START and INFO to all members; a minimum from sibling to sibling, and from the last sibling to the parent."""
    order = logical_order(context, shuffled=bool(parameters.shuffled))
    parents = logical_parents(order, parameters)
    siblings = order[1:][np.argsort(parents[order[1:]], kind="stable")]  # elder before younger
    is_last = np.append(parents[siblings[1:]] != parents[siblings[:-1]], True)
    following = np.append(siblings[1:], -1)
    train = pairs(siblings, np.where(is_last, parents[siblings], following))
    return together(to_all(0, context.members, 2.0), train)


PROTOCOL = Protocol(
    name="s_train",
    title="S_Train",
    family="stability",
    paper="guo §4.3.2",
    summary="a train in every sub-group of a tree, the root multicasts the result",
    state=STrainState,
    messages=MESSAGES,
    parameters=LogicalTreeParameters,
    build=build,
    resolve=resolve_tree,
    traffic=_traffic,
    colour="#8C8C8C",
)
