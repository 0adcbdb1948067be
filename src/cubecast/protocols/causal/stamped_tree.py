"""Causal broadcast along the trees of Plumtree or RASM over the hypercube, crash-proof (rasm §3; causal §3.1).

A message carries a vector stamp and travels along its sender's tree, which grows over the links of the hypercube by
eager push and PRUNE (`protocols.broadcast.plumtree`, `protocols.broadcast.rasm`): one copy per delivery once it has
grown. A message that arrives waits for its causes (`protocols.causal.hold_back`). When a member on the path of a
message crashes, members that miss the message request it from a neighbour that announces it
(`protocols.causal.announcements`), and its tree grows again over that link; this needs no report of the crash.

**Crashes.** When a neighbour in the hypercube is reported dead, a member links to the replacement that Overlay would
choose (`protocols.causal.overlay`), so the survivors stay connected whichever members crashed. LINK(have) opens the
link at the other side, if there is none, and is answered by HAVE; it goes to every neighbour, since a message requested
from a crashed member never comes. Neighbours end with the same messages, and the survivors are connected: a message
that one survivor has reaches all.

| field     | shape | meaning                                                                       |
|-----------|-------|-------------------------------------------------------------------------------|
| members   | –     | ranks 0 … members−1                                                           |
| dimension | –     | of the hypercube                                                              |
| order     | –     | arrived and waiting messages: `protocols.causal.hold_back`                    |
| news      | –     | announcements and requests: `protocols.causal.announcements`                  |
| tree      | –     | the state of Plumtree or RASM; its neighbours have spare places for new links |

A stamp is m numbers, which a message carries unchanged from hop to hop; the cost of RASM's path comes after them. R,
`group.received`, is what was delivered. A message of a crashed sender that causally follows one that no survivor has is
never delivered: it stays in the buffer.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from cubecast.jit.decorators import chosen_by_state, linked
from cubecast.protocol import rank_sets
from cubecast.protocol.context import Context
from cubecast.protocol.definition import LiveData, Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    deliver,
    draft,
    hold_back,
    send,
)
from cubecast.protocol.messages import message, message_sizes, payload, per_member, per_sender
from cubecast.protocol.overlays import (
    Overlay,
    hypercube,
    hypercube_dimension,
    of_ranks,
)
from cubecast.protocol.parameters import parameter
from cubecast.protocol.traffic import over_links
from cubecast.protocols.broadcast import plumtree, rasm
from cubecast.protocols.broadcast.peers import (
    NEW,
    add_link,
    drop_link,
    link_to,
    note_seen,
    set_eager,
    want,
    with_spare_links,
)
from cubecast.protocols.broadcast.plumtree import GOSSIP, PlumtreeState
from cubecast.protocols.broadcast.rasm import RasmState
from cubecast.protocols.causal.announcements import (
    ANNOUNCE,
    ASK,
    HAVE,
    LINK,
    OVERDUE,
    Announcements,
    announce,
    announce_later,
    announce_to_all,
    forget_announcements,
    new_announcements,
    note_announcement,
    request_overdue,
)
from cubecast.protocols.causal.eager_tree import first_live
from cubecast.protocols.causal.hold_back import (
    NOTHING_MORE,
    WAITS,
    HoldBack,
    accept,
    draft_have,
    new_hold_back,
    stamp_again,
    stamp_next,
)

BETTER, WORSE = range(2, 4)  # timers that only a driver sets: the link to the rank in the tag got better or worse
_NEWS = (
    message("HAVE", HAVE, have=per_sender(4)),
    message("LINK", LINK, have=per_sender(4)),
    message("ASK", ASK, have=per_sender(4)),
)
PLUMTREE_MESSAGES = (
    message("GOSSIP", stamp=per_member(4), payload=payload()),
    message("PRUNE", sequence=4),
    message("IHAVE", sequence=4),
    message("GRAFT", sequence=4),
    *_NEWS,
)
RASM_MESSAGES = (
    message("GOSSIP", cost=4, stamp=per_member(4), payload=payload()),
    message("PRUNE"),
    message("REPAIR"),
    *_NEWS,
)
LINKS_MAX = 64  # of one member, if there are many rows; a cube has log2 n links per member, and crashes may add some


@dataclass(frozen=True, kw_only=True)
class StampedTreeParameters:
    """Parameters of stamped trees."""

    announce_ms: float | None = parameter(
        None,
        "How long a member batches arrivals before it announces them to its neighbours.",
        at_least=0.001,
        otherwise="20 ms; live 100 ms",
    )


class CausalPlumtreeState(NamedTuple):
    """Stamped messages along Plumtree's trees, one row per local member."""

    group: GroupState
    members: int
    dimension: int
    order: HoldBack
    news: Announcements
    tree: PlumtreeState


class CausalRasmState(NamedTuple):
    """Stamped messages along RASM's trees, one row per local member."""

    group: GroupState
    members: int
    dimension: int
    order: HoldBack
    news: Announcements
    tree: RasmState


def _new_state(
    kind: Callable[..., Any],
    new_tree: Callable[..., Any],
    group: GroupState,
    *,
    members: int,
    sizes: np.ndarray,
    room: int,
    window: int,
    announce_ns: int,
    keeps_stamps: bool = True,
) -> Any:
    """No tree yet: the first message of a sender floods. A delivery buffer holds up to `room` messages."""
    links = _links(group, members)
    return kind(
        group=group,
        members=members,
        dimension=hypercube_dimension(members),
        order=new_hold_back(group, sizes=sizes, room=room, window=window, keeps_stamps=keeps_stamps),
        news=new_announcements(group, announce_ns=announce_ns),
        tree=new_tree(
            *(group, links, np.zeros(len(links.neighbours))),
            sizes=sizes,
            quota=False,
            carried=group.received.shape[1],
            window=window,
        ),
    )


def _links(group: GroupState, members: int) -> Overlay:
    links = members - 1 if len(group.rank) == 1 else min(members - 1, LINKS_MAX)
    return with_spare_links(of_ranks(hypercube(members), group.rank), links)


new_plumtree = partial(_new_state, CausalPlumtreeState, partial(plumtree.new_state, graft_ns=0))
new_rasm = partial(_new_state, CausalRasmState, partial(rasm.new_state, reliable=True))
"""All links are as good as each other until `rasm.set_link_failure` says otherwise."""


@chosen_by_state({PlumtreeState: plumtree.push_own, RasmState: rasm.push_own})
def _push_own(state, row, mail, slot):
    """Push a new message of this member from its draft."""


@chosen_by_state({PlumtreeState: plumtree.push_on, RasmState: rasm.push_on})
def _push_on(state, row, now_ns, mail, slot):
    """Forward a message that is new here."""


@chosen_by_state({PlumtreeState: plumtree.refuse, RasmState: rasm.refuse})
def _refuse(state, row, now_ns, mail, slot, status):
    """Handle a duplicate."""


@chosen_by_state({PlumtreeState: plumtree.receive_control, RasmState: rasm.receive_control})
def _receive_control(state, row, now_ns, mail, slot):
    """Handle a control message about the tree of a sender."""


@chosen_by_state({PlumtreeState: plumtree.put_path, RasmState: rasm.put_path})
def _put_path(state, row, mail, slot, link):
    """Write the data about its path into a draft."""


@chosen_by_state({PlumtreeState: plumtree.forget_link, RasmState: rasm.forget_link})
def _forget_link(state, link):
    """Clear the tree's state for a removed link."""


@linked
def publish(state, row, now_ns, mail):
    """Stamp the next message of this member and push it."""
    slot = draft(mail, GOSSIP, -1, state.tree.sizes[GOSSIP])
    sequence = stamp_next(state.order, state.group, row, mail, slot)
    _push_own(state.tree, row, mail, slot)
    deliver(mail, state.group.rank[row], sequence)
    announce_later(state.news, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle a message, an announcement, a request or a tree control message."""
    source = mail.heads[slot].source
    if not rank_sets.contains(state.group.members[row], source):
        return
    kind = mail.heads[slot].kind
    if kind == GOSSIP:
        _accept_message(state, row, now_ns, mail, slot)
    elif kind == HAVE:
        note_announcement(state.news, state.order, row, mail, slot)
    elif kind == LINK:
        _open_link(state, row, mail, source)
        send(mail, draft_have(state.order, row, mail, HAVE), source)
        note_announcement(state.news, state.order, row, mail, slot)
    elif kind == ASK:
        _send_again(state, row, now_ns, mail, slot, source)
    else:
        _receive_control(state.tree, row, now_ns, mail, slot)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Announce, request missing messages, or react to a link that got better or worse."""
    if timer == ANNOUNCE:
        announce(state.news, state.order, state.tree.peers, row, mail)
    elif timer == OVERDUE:
        request_overdue(state.news, state.order, state.tree.peers, row, mail)
    else:
        _compare_again(state, row, mail, tag, timer == BETTER)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Drop the links to the crashed member, link to the next live rank in its place, and announce to all neighbours."""
    peers = state.tree.peers
    link = link_to(peers, row, rank)
    if link >= 0:
        _forget_link(state.tree, link)
    drop_link(peers, row, rank)
    me = state.group.rank[row]
    for place in range(state.dimension):
        partner = me ^ (np.int64(1) << place)
        if partner < state.members and not rank_sets.contains(state.group.members[row], partner):
            stand_in = first_live(state.group.members[row], state.members, partner, place)
            if stand_in >= 0:
                _open_link(state, row, mail, stand_in)
    forget_announcements(state.news, row)
    announce_to_all(state.news, state.order, peers, row, mail, LINK)


@linked
def _accept_message(state, row, now_ns, mail, slot):
    status = note_seen(state.tree.peers, row, mail.heads[slot].sender, mail.heads[slot].sequence)
    if status != NEW:
        _refuse(state.tree, row, now_ns, mail, slot, status)
        return
    _push_on(state.tree, row, now_ns, mail, slot)
    arrival = accept(state.order, state.group, row, mail, slot)
    hold_back(mail, state.order.waiting[row], arrival == WAITS)
    announce_later(state.news, row, mail)


@linked
def _open_link(state, row, mail, rank):
    if link_to(state.tree.peers, row, rank) < 0:
        add_link(state.tree.peers, row, mail, rank)


@linked
def _send_again(state, row, now_ns, mail, slot, source):
    """Send what the other side lacks, and push those senders' messages to it from now on.

    The other side has received every stable message since its request, and stable messages are no longer stored.
    """
    link = link_to(state.tree.peers, row, source)
    for sender in range(state.order.have.shape[1]):
        if mail.numbers[slot, sender] == NOTHING_MORE:
            continue
        set_eager(state.tree.peers, row, sender, source, 1, now_ns)
        has = max(np.int64(mail.numbers[slot, sender]), np.int64(state.group.stable[row, sender]))
        for sequence in range(has + 1, np.int64(state.order.have[row, sender]) + 1):
            again = draft(mail, GOSSIP, -1, state.tree.sizes[GOSSIP])
            stamp_again(state.order, mail, again, sender, sequence)
            _put_path(state.tree, row, mail, again, link)
            send(mail, again, source)


@linked
def _compare_again(state, row, mail, rank, better):
    """Make several neighbours push, so that the best path wins (rasm §3.3).

    For a link that got better, request from that neighbour what others provide; for one that got worse, request from
    the others what that neighbour provides.
    """
    peers = state.tree.peers
    for link in range(peers.offsets[row], peers.offsets[row + 1]):
        if peers.neighbours[link] < 0 or (peers.neighbours[link] == rank) != better:
            continue
        wish = draft_have(state.order, row, mail, ASK)
        for sender in range(state.order.have.shape[1]):
            if (peers.provider[row, sender] == rank) != better:
                want(peers, link, sender, 1)
            else:
                mail.numbers[wish, sender] = NOTHING_MORE
        send(mail, wish, np.int64(peers.neighbours[link]))


def _resolve(parameters: StampedTreeParameters, context: Context) -> StampedTreeParameters:
    if parameters.announce_ms is not None:
        return parameters
    return replace(parameters, announce_ms=100.0 if context.is_live else 20.0)


def _settings(context: Context, parameters: StampedTreeParameters) -> dict[str, Any]:
    return {
        "members": context.members,
        "room": context.room,
        "window": context.window,
        "announce_ns": round((parameters.announce_ms or 0) * 1e6),
        "keeps_stamps": not context.is_live,
    }


def _build_plumtree(group: GroupState, context: Context, parameters: StampedTreeParameters) -> CausalPlumtreeState:
    sizes = message_sizes(PLUMTREE_MESSAGES, context)
    made: CausalPlumtreeState = new_plumtree(group, sizes=sizes, **_settings(context, parameters))
    return made


def _build_rasm(group: GroupState, context: Context, parameters: StampedTreeParameters) -> CausalRasmState:
    sizes = message_sizes(RASM_MESSAGES, context)
    made: CausalRasmState = new_rasm(group, sizes=sizes, **_settings(context, parameters))
    return made


def _linked(state: CausalPlumtreeState | CausalRasmState) -> list[int]:
    return [rank for rank in state.tree.peers.neighbours.tolist() if rank >= 0]


def _believe(state: CausalRasmState, rank: int, failure: float) -> None:
    rasm.set_link_failure(state.tree, 0, rank, failure)


PROTOCOLS = (
    Protocol(
        name="causal_plumtree",
        title="Causal Plumtree",
        family="causal",
        paper="causal §3.1 along the trees of rasm §3.2",
        summary="causal order by vector clocks along the fastest paths, one copy per delivery",
        state=CausalPlumtreeState,
        messages=PLUMTREE_MESSAGES,
        parameters=StampedTreeParameters,
        build=_build_plumtree,
        resolve=_resolve,
        links="fifo",
        state_per_member="quadratic",
        traffic=lambda context, _parameters: over_links(hypercube(context.members)),
        sends_per_member=lambda _members, _parameters: 1.0,
        live=LiveData(linked=_linked, overlay=hypercube, stamp_numbers=lambda members: members),
        colour="#56B4E9",
    ),
    Protocol(
        name="causal_rasm",
        title="Causal RASM",
        family="causal",
        paper="causal §3.1 along the trees of rasm §3",
        summary="causal order by vector clocks along the most reliable paths, one copy per delivery",
        state=CausalRasmState,
        messages=RASM_MESSAGES,
        parameters=StampedTreeParameters,
        build=_build_rasm,
        resolve=_resolve,
        numbers=lambda context, _parameters: context.senders + 1,
        links="fifo",
        state_per_member="quadratic",
        traffic=lambda context, _parameters: over_links(hypercube(context.members)),
        sends_per_member=lambda _members, _parameters: 1.0,
        live=LiveData(
            linked=_linked,
            overlay=hypercube,
            stamp_numbers=lambda members: members + 1,
            changes_numbers=True,
            believe=_believe,
            compare_paths=(BETTER, WORSE),
        ),
        colour="#E69F00",
    ),
)
