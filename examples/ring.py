"""Ring: a custom data protocol in one file, which carries the messages of the application in causal order.

    python examples/ring.py
    cubecast simulate ring --protocol-file examples/ring.py --members 12 --messages 5 --crash 3@5ms --check

The live members form a ring in the order of their ranks. A member that receives a message for the first time
delivers it and forwards it to its successor. With `both_ways` messages travel in both directions until they meet:
they reach everybody in half the time. Links are FIFO and lose nothing. Each link carries whatever the member at its
beginning delivers, in that order, so all causes of a message come before it: first receipts are in causal order, and
nothing ever waits. No message carries any control data.

A member that lost its predecessor sends OPEN, with its R, to the next live member before it. The other side first
sends, in the order of its own deliveries, everything it delivered beyond that R, and forwards to it from then on. Every
cause of a message on the new link is then in R, or before it on the link. Messages that the crashed members had
received and not forwarded come from the members before them; messages that only they had are lost with them.

| field   | shape        | meaning                                                                               |
|---------|--------------|---------------------------------------------------------------------------------------|
| forward | rows × words | the ranks to which this member forwards                                               |
| asked   | rows × words | the ranks that forward to this member, or were asked to                               |
| log     | rows × room  | deliveries in order, sender << 32 | sequence; a ring buffer of `room` entries         |
| logged  | rows         | deliveries ever logged                                                                |

Invariants: every live member has asked the live member before it (with `both_ways`, also the one after it), and none
is asked twice; a member that asked is in `forward` until its crash is reported. Two members may ask the same one, while
a crash is not known everywhere yet: both are served, so the order of their requests does not matter.
"""

import importlib
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

import cubecast
from cubecast.protocol import (
    Context,
    GroupState,
    LiveData,
    copy_numbers,
    deliver,
    draft,
    linked,
    message,
    message_sizes,
    overlays,
    parameter,
    payload,
    per_sender,
    raise_numbers,
    rank_sets,
    send,
)
from cubecast.protocol.mail import BUFFER_FULL, OVERFLOW

DATA, OPEN = range(2)  # kinds of messages; 0 is always the one that carries a message of the application
MESSAGES = (message("DATA", payload=payload()), message("OPEN", received=per_sender(4)))


@dataclass(frozen=True, kw_only=True)
class Parameters:
    """Parameters of Ring."""

    both_ways: bool = parameter(False, "Messages travel in both directions until they meet: half the time.")


class RingState(NamedTuple):
    """Ring, one row per local member."""

    group: GroupState
    members: int
    both_ways: int
    sizes: np.ndarray
    forward: np.ndarray
    asked: np.ndarray
    log: np.ndarray
    logged: np.ndarray


def build(group: GroupState, context: Context, parameters: Parameters) -> RingState:
    """Nothing sent; everybody forwards to the next rank."""
    rows = len(group.rank)
    state = RingState(
        group=group,
        members=context.members,
        both_ways=int(parameters.both_ways),
        sizes=message_sizes(MESSAGES, context),
        forward=rank_sets.empty(len(group.rank), context.members),
        asked=rank_sets.empty(len(group.rank), context.members),
        log=np.zeros((rows, context.room), np.int64),
        logged=np.zeros(rows, np.int64),
    )
    for row, rank in enumerate(group.rank.tolist()):
        after, before = (rank + 1) % context.members, (rank - 1) % context.members
        _put(state.forward[row], after, before if parameters.both_ways else after)
        _put(state.asked[row], before, after if parameters.both_ways else before)
    return state


def _put(words: np.ndarray, *ranks: int) -> None:
    for rank in ranks:
        words[rank >> 6] |= np.uint64(1) << np.uint64(rank & 63)


@linked
def publish(state, row, now_ns, mail):
    """The application multicasts: the next message of this member."""
    me = state.group.rank[row]
    _deliver_and_forward(state, row, mail, me, np.int64(state.group.received[row, me]) + 1, me)


@linked
def receive(state, row, now_ns, mail, slot):
    """Handle a message of the application, or OPEN."""
    source = mail.heads[slot].source
    if mail.heads[slot].kind == OPEN:
        if rank_sets.contains(state.group.members[row], source):
            _send_log_beyond(state, row, mail, slot, source)
            rank_sets.add(state.forward[row], source)
        return
    sender = mail.heads[slot].sender
    sequence = mail.heads[slot].sequence
    if sequence > state.group.received[row, sender]:
        _deliver_and_forward(state, row, mail, sender, sequence, source)


@linked
def on_leave(state, row, now_ns, mail, rank):
    """Stop forwarding to the crashed member; ask the new neighbour for what it did not forward."""
    rank_sets.discard(state.forward[row], rank)
    _ask(state, row, mail, _preceding(state, row))
    if state.both_ways != 0:
        _ask(state, row, mail, rank_sets.following(state.group.members[row], state.group.rank[row]))


@linked
def _deliver_and_forward(state, row, mail, sender, sequence, source):
    """Neither the member it came from nor its sender needs it; forwarding comes first in the outbox."""
    state.group.received[row, sender] = sequence
    room = state.log.shape[1]
    state.log[row, state.logged[row] % room] = sender << 32 | sequence
    state.logged[row] += 1
    slot = _draft_data(state, mail, sender, sequence)
    for rank in range(state.members):
        if rank != source and rank != sender and rank_sets.contains(state.forward[row], rank):
            send(mail, slot, rank)
    deliver(mail, sender, sequence)


@linked
def _draft_data(state, mail, sender, sequence):
    slot = draft(mail, DATA, -1, state.sizes[DATA])
    mail.heads[slot].sender = sender
    mail.heads[slot].sequence = sequence
    return slot


@linked
def _ask(state, row, mail, rank):
    """OPEN(R), once: forward to me, from what I hold on."""
    if rank == state.group.rank[row] or rank_sets.contains(state.asked[row], rank):
        return
    rank_sets.add(state.asked[row], rank)
    senders = state.group.received.shape[1]
    slot = draft(mail, OPEN, -1, state.sizes[OPEN])
    copy_numbers(mail.numbers[slot, :senders], state.group.received[row])
    send(mail, slot, rank)


@linked
def _send_log_beyond(state, row, mail, slot, source):
    """Send what the other side lacks, in the order delivered here. A stable message reached it after it asked."""
    known = mail.numbers[slot, : state.group.stable.shape[1]]
    raise_numbers(known, state.group.stable[row])
    lacking = np.int64(0)
    for sender in range(known.shape[0]):
        lacking += max(np.int64(state.group.received[row, sender]) - known[sender], 0)
    room = state.log.shape[1]
    for place in range(max(state.logged[row] - room, 0), state.logged[row]):
        sender = state.log[row, place % room] >> 32
        sequence = state.log[row, place % room] & 0xFFFFFFFF
        if sequence > known[sender]:
            send(mail, _draft_data(state, mail, sender, sequence), source)
            lacking -= 1
    if lacking > 0:
        mail.counts[OVERFLOW] = BUFFER_FULL  # the log was too short: the run ends with an error


@linked
def _preceding(state, row):
    """The live rank before this one on the ring; this rank itself when no other is left."""
    rank = state.group.rank[row]
    for _ in range(state.members):
        rank = rank - 1 if rank > 0 else state.members - 1
        if rank_sets.contains(state.group.members[row], rank):
            return rank
    return rank


def _linked_ranks(state: RingState) -> list[int]:
    return [rank for rank in range(state.members) if rank_sets.contains(state.forward[0], rank)]


PROTOCOL = cubecast.Protocol(
    name="ring",
    title="Ring",
    family="causal",
    paper="own",
    summary="causal order by forwarding everything round a ring of FIFO links",
    state=RingState,
    messages=MESSAGES,
    parameters=Parameters,
    build=build,
    links="fifo",
    sends_per_member=lambda _members, _parameters: 1.0,
    live=LiveData(linked=_linked_ranks, overlay=overlays.ring),
)


def main() -> None:
    """Check the guarantees of Ring while members crash, then compare it with the other data protocols."""
    cubecast.add_protocol(PROTOCOL)
    trace = Path("results") / "ring.parquet"
    trace.parent.mkdir(exist_ok=True)
    crashes = tuple(cubecast.parse_fault(text, what="crash") for text in ("3@4ms", "4+9@7ms"))
    cubecast.simulate("ring", members=12, network="random:degree=4", messages=10, crashes=crashes, trace=trace)
    print("\n".join(cubecast.check_all(cubecast.read_trace(trace)).lines()))
    for both_ways in (False, True):
        result = cubecast.simulate("ring", members=32, network="random:degree=5", messages=10, both_ways=both_ways)
        print(f"both_ways={both_ways}: {result.data_messages:,} copies, {result.delay_mean_ms:.2f} ms to deliver")


if __name__ == "__main__":
    # Compiled code is cached under the name of its module; see examples/doubling.py.
    importlib.import_module(Path(__file__).stem).main()
