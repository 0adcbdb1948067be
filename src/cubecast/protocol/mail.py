"""The input and output of a core: a pool of messages, and an outbox of actions.

A core never touches a socket or a clock. It reads a message from a slot of the pool, drafts new messages in other
slots, and leaves *actions* in the outbox: send this slot to that rank, multicast it, set a timer, I began a round, I
know its result, deliver this to the application. The driver of the core (the simulator's kernel, a live member) carries
the actions out after each call and then empties the outbox.

`Mail` fields:

| field   | shape           | meaning                                                                          |
|---------|-----------------|----------------------------------------------------------------------------------|
| heads   | slots           | kind, round, fields, source, size …, one record per message                      |
| layers  | slots           | CONTROL, DATA or FAILURE: whose message it is                                    |
| numbers | slots × width   | the arrays a message carries (R, M or S), sequence numbers                       |
| bits    | slots × words   | the heard-from bitmap a message carries                                          |
| actions | room            | the outbox                                                                       |
| drafts  | room            | the slots drafted since the outbox was last emptied                              |
| free    | slots           | stack of slots given back                                                        |
| counts  | 5               | actions waiting, drafts, free slots on the stack, slots ever used, overflow      |

`field_1` and `field_2` of a head hold further data of a protocol's messages: the responder of a NAK, the step of a
message. Only named accessors (`released_of(mail, slot)`) use them, defined in the file of the protocol or of the part
that several protocols share; no other code reads the columns. A draft has 0 in both. Live members carry values of
0 … 2^31 − 1.

A slot stays in use while `heads[slot].copies` > 0. A draft counts as one copy until `clear_outbox`, so that it outlives
copies that are lost while others of it are still being sent. Slot 0 is never handed out: it takes the writes of a full
pool, and `counts[OVERFLOW]` then ends the run with a clear error. Nothing is dropped silently.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked

HEADER_BYTES = 32
NUMBER_BYTES = 4
ROUND_BYTES = 4

# Every field is a 64-bit integer, so that compiled code has one kind of integer and is compiled once. Names that NumPy
# gives to methods (round, size) would hide the field from plain Python.
HEAD = np.dtype(
    [
        (name, np.int64)
        for name in (
            "kind",
            "round_number",
            "field_1",
            "field_2",
            "source",
            "sender",
            "sequence",
            "size_bytes",
            "copies",
        )
    ]
)
ACTION = np.dtype([(name, np.int64) for name in ("what", "slot", "a", "b", "delay_ns", "peer")])

# Kinds of actions.
SEND, MULTICAST, TIMER, ROUND_BEGUN, ROUND_DONE, DELIVER, NEXT_ROUND, HELD_BACK, SUSPECT, RELEASED = range(10)
ADOPT, DEPART = range(10, 12)

# Places in `counts`.
WAITING, DRAFTED, FREE, USED, OVERFLOW = range(5)

# Values of `counts[OVERFLOW]`: the pool or the outbox is full, or a core's own bounded buffer is.
POOL_FULL, BUFFER_FULL = 1, 2

# Layers of a member's stack: whose message or timer it is.
CONTROL, DATA, FAILURE = 0, 1, 2

PAYLOAD = 0  # the kind of a message of a data layer that carries a message of the application


class Mail(NamedTuple):
    """Messages and actions, as arrays."""

    heads: np.recarray
    layers: np.ndarray
    numbers: np.ndarray
    bits: np.ndarray
    actions: np.recarray
    drafts: np.ndarray
    free: np.ndarray
    counts: np.ndarray


def new_mail(*, slots: int, width: int, words: int, room: int, empty: Callable[..., np.ndarray] = np.empty) -> Mail:
    """An empty pool of `slots` messages of `width` numbers and `words` bitmap words; an outbox of `room` actions.

    `empty` gives the arrays, as `numpy.empty` does.
    """
    # A slot is always written before it is read: it comes back as its last message left it.
    counts = np.zeros(5, np.int64)
    counts[USED] = 1
    return Mail(
        heads=empty(slots, HEAD).view(np.recarray),
        layers=empty(slots, np.int64),
        numbers=empty((slots, max(width, 1)), np.int32),
        bits=empty((slots, max(words, 1)), np.uint64),
        actions=empty(room, ACTION).view(np.recarray),
        drafts=empty(room, np.int64),
        free=empty(slots, np.int64),
        counts=counts,
    )


@linked
def draft(mail, kind, round_number, size_bytes):
    """A fresh message: fill its numbers and bits, then send it."""
    counts = mail.counts
    slot = 0
    if counts[FREE] > 0:
        counts[FREE] -= 1
        slot = mail.free[counts[FREE]]
    elif counts[USED] < mail.heads.shape[0]:
        slot = counts[USED]
        counts[USED] += 1
    else:
        counts[OVERFLOW] = POOL_FULL
    mail.heads[slot].kind = kind
    mail.heads[slot].round_number = round_number
    mail.heads[slot].field_1 = 0
    mail.heads[slot].field_2 = 0
    mail.heads[slot].sender = -1
    mail.heads[slot].sequence = 0
    mail.heads[slot].size_bytes = size_bytes
    mail.heads[slot].copies = 1
    if counts[DRAFTED] < mail.drafts.shape[0]:
        mail.drafts[counts[DRAFTED]] = slot
        counts[DRAFTED] += 1
    else:
        counts[OVERFLOW] = POOL_FULL
    return slot


@linked
def release(mail, slot):
    """Return a slot to the pool once its message is no longer needed."""
    if slot > 0:
        mail.free[mail.counts[FREE]] = slot
        mail.counts[FREE] += 1


@linked
def clear_outbox(mail):
    """Drop the actions, which were all carried out, and free the drafts without remaining copies."""
    for k in range(mail.counts[DRAFTED]):
        slot = mail.drafts[k]
        mail.heads[slot].copies -= 1
        if mail.heads[slot].copies == 0:
            release(mail, slot)
    mail.counts[DRAFTED] = 0
    mail.counts[WAITING] = 0


@linked
def act(mail, what, slot, a, b, delay_ns, peer):
    """Add an action to the outbox; `peer` is another member that it concerns, or −1."""
    place = mail.counts[WAITING]
    if place >= mail.actions.shape[0]:
        mail.counts[OVERFLOW] = POOL_FULL
        return
    mail.counts[WAITING] = place + 1
    mail.actions[place].what = what
    mail.actions[place].slot = slot
    mail.actions[place].a = a
    mail.actions[place].b = b
    mail.actions[place].delay_ns = delay_ns
    mail.actions[place].peer = peer


@linked
def send(mail, slot, rank):
    """Send a drafted message to one member."""
    act(mail, SEND, slot, rank, 0, 0, -1)


@linked
def multicast(mail, slot):
    """Send a drafted message to every other member."""
    act(mail, MULTICAST, slot, 0, 0, 0, -1)


@linked
def set_timer(mail, timer, tag, delay_ns):
    """Set a timer (timer, tag). A timer is never cancelled: the core ignores one whose tag is stale."""
    act(mail, TIMER, 0, timer, tag, delay_ns, -1)


@linked
def rest(mail, timer, number, delay_ns):
    """Round `number` is over here: request to be woken with (timer, number) for the next one.

    The driver decides when: after `delay_ns` (Δ), when buffers fill up, or never.
    """
    act(mail, NEXT_ROUND, 0, timer, number, delay_ns, -1)


@linked
def begin_round(mail, round_number):
    """Report that this member began, or joined, a round."""
    act(mail, ROUND_BEGUN, 0, round_number, 0, 0, -1)


@linked
def end_round(mail, round_number):
    """Report that this member knows the result of a round; `group.stable` holds it."""
    act(mail, ROUND_DONE, 0, round_number, 0, 0, -1)


@linked
def deliver(mail, sender, sequence):
    """Hand a data message to the application: everything of the sender up to `sequence` is now held."""
    act(mail, DELIVER, 0, sender, sequence, 0, -1)


@linked
def hold_back(mail, count, waits):
    """Report how many messages this member has received and not yet delivered, its delivery queue (MODELS §9).

    Is the message just received one of them? The driver of the core then keeps its payload.
    """
    act(mail, HELD_BACK, 0, count, 1 if waits else 0, 0, -1)


@linked
def suspect(mail, rank):
    """Report that a member has failed: this member no longer relies on it."""
    act(mail, SUSPECT, 0, rank, 0, 0, -1)


@linked
def released(mail):
    """Report that a data layer found more messages to be stable; `group.stable` holds what is known."""
    act(mail, RELEASED, 0, 0, 0, 0, -1)


@linked
def adopt(mail, sender, sequence, rank):
    """Report that this member, which joins, holds what `rank` holds: everything of the sender up to `sequence`."""
    act(mail, ADOPT, 0, sender, sequence, 0, rank)


@linked
def depart(mail):
    """Report that this member, which is leaving, is no longer needed."""
    act(mail, DEPART, 0, 0, 0, 0, -1)
