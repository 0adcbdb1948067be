"""Calls of one live member into its cores: one message, timer or event at a time, or a batch of data messages.

The simulator's kernel carries out actions in compiled code. A live member carries them out in Python, so little may
cross the boundary: `call` leaves the actions of one event in the outbox of `mail`; the other functions run a data core
over many messages and leave only what Python must do, sorted:

| field      | shape    | meaning                                                                                |
|------------|----------|----------------------------------------------------------------------------------------|
| deliveries | room × 3 | messages for the application in order: sender << 32 | sequence, START, END             |
| kept       | room × 3 | messages that the core holds back, in the same form                                    |
| sends      | room × 4 | destination (−1: every other member), kind, sender << 32 | sequence, numbers row or −1 |
| timers     | room × 3 | timer, tag, delay in nanoseconds                                                       |
| numbers    | room × m | the arrays that some sends carry                                                       |
| counts     | 6        | deliveries, kept, sends, timers, rows of `numbers`, error code                         |

START … END−1 is the position of the record in the batch. A message that was held back and is delivered now has
START = −1; for a message that this member publishes, START is the row of the numbers it carries, or −1.

All take a `BoundCore` by its handle (`hold`). Its core is bound by `bind`, alone and with its one member in row 0.
`stamp_numbers` is how many numbers a message of the application carries (a vector stamp; they are in the first draft of
a publication), and `changes_numbers` whether they change when it is forwarded. The message being received is in the
slot `INCOMING` of the pool, which is never handed out.

Invariants: the caller makes `room` so large that the actions of one message always fit; a batch stops before a message
for which that is not certain, and returns how many it took.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import entry_point, linked
from cubecast.jit.tables import held_at
from cubecast.protocol import mail
from cubecast.protocol.bound import call_bound
from cubecast.protocol.handlers import PUBLISH, RECEIVE
from cubecast.protocol.mail import Mail, clear_outbox
from cubecast.wire.data import END, KIND, NUMBERS, PAYLOAD, SENDER, SEQUENCE, START

INCOMING = 1
DELIVERIES, KEPT, SENDS, TIMERS, ROWS, ERROR = range(6)
EVERYONE = -1
UNEXPECTED = 9
"""Error code: the data core requested an action that a live member does not support for data (a round, say)."""
NO_RECORD = -1


class Sorted(NamedTuple):
    """What a data core requested; see the module."""

    deliveries: np.ndarray
    kept: np.ndarray
    sends: np.ndarray
    timers: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray


class BoundCore(NamedTuple):
    """The operands of a call: a bound core, its mail, and its sorted actions (empty for a control core)."""

    cores: np.ndarray
    mail: Mail
    sorted_actions: Sorted
    stamp_numbers: int = 0
    changes_numbers: int = 0


def new_member_mail(*, width: int, words: int, room: int, empty: Callable[..., np.ndarray] = np.empty) -> Mail:
    """A pool for one live member; the slot of the incoming message is reserved."""
    made = mail.new_mail(slots=room + 2, width=width, words=words, room=room, empty=empty)
    made.counts[mail.USED] = INCOMING + 1
    return made


def new_sorted(*, width: int, room: int, empty: Callable[..., np.ndarray] = np.empty) -> Sorted:
    """Room for the actions of several messages. `counts` says how much is written; only that much is read."""
    return Sorted(
        deliveries=empty((room, 3), np.int64),
        kept=empty((room, 3), np.int64),
        sends=empty((room, 4), np.int64),
        timers=empty((room, 3), np.int64),
        numbers=empty((room, max(width, 1)), np.int32),
        counts=np.zeros(6, np.int64),
    )


@entry_point
def call(handle, now_ns, what, a, b):
    """Call a core for one event; its actions are then in the outbox, which held those of the last call."""
    bound = held_at(handle, BoundCore)
    clear_outbox(bound.mail)
    call_bound(bound.cores, 0, 0, now_ns, what, a, b)


@entry_point
def receive_batch(handle, now_ns, source, body, table, first, last):
    """Receive the records first … last−1 of a batch; returns one past the last that was taken."""
    bound = held_at(handle, BoundCore)
    _reset(bound.sorted_actions)
    k = first
    while k < last and _has_room(bound):
        _put_incoming(bound.mail, body, table, source, k)
        call_bound(bound.cores, 0, 0, now_ns, RECEIVE, INCOMING, 0)
        _sort_actions(bound, table[k, START], table[k, END])
        k += 1
    return k


@entry_point
def publish_batch(handle, now_ns, count):
    """Publish up to `count` messages of this member; returns how many were taken."""
    bound = held_at(handle, BoundCore)
    _reset(bound.sorted_actions)
    k = 0
    while k < count and _has_room(bound):
        call_bound(bound.cores, 0, 0, now_ns, PUBLISH, 0, 0)
        row = NO_RECORD
        if bound.stamp_numbers > 0:
            row = _copy_numbers(bound, bound.mail.drafts[0])
        bound.mail.heads[INCOMING].sequence = 0  # nothing is being received
        _sort_actions(bound, row, NO_RECORD)
        k += 1
    return k


@entry_point
def call_data(handle, now_ns, what, a, b):
    """Call a data core for an event that is not a message: start, a timer, a rank that left the membership."""
    bound = held_at(handle, BoundCore)
    _reset(bound.sorted_actions)
    call_bound(bound.cores, 0, 0, now_ns, what, a, b)
    bound.mail.heads[INCOMING].sequence = 0
    _sort_actions(bound, NO_RECORD, NO_RECORD)


@linked
def _has_room(bound):
    """Is there room for the actions of one more message?"""
    counts = bound.sorted_actions.counts
    room = bound.sorted_actions.deliveries.shape[0] - bound.mail.actions.shape[0]
    return max(counts[DELIVERIES], counts[KEPT], counts[SENDS], counts[TIMERS], counts[ROWS]) < room


@linked
def _reset(sorted_actions):
    for place in range(sorted_actions.counts.shape[0]):
        sorted_actions.counts[place] = 0


@linked
def _put_incoming(mail, body, table, source, k):
    """Copy record k of the batch into the slot of the incoming message."""
    mail.heads[INCOMING].kind = table[k, KIND]
    mail.heads[INCOMING].round_number = -1
    mail.heads[INCOMING].field_1 = 0
    mail.heads[INCOMING].field_2 = 0
    mail.heads[INCOMING].source = source
    mail.heads[INCOMING].sender = table[k, SENDER]
    mail.heads[INCOMING].sequence = table[k, SEQUENCE]
    at = table[k, PAYLOAD] - 4 * table[k, NUMBERS]
    for j in range(table[k, NUMBERS]):
        mail.numbers[INCOMING, j] = (
            np.int64(body[at])
            | np.int64(body[at + 1]) << 8
            | np.int64(body[at + 2]) << 16
            | np.int64(body[at + 3]) << 24
        )
        at += 4


@linked
def _sort_actions(bound, start, end):
    """Take the actions out of the outbox, in order. The record of the message being handled stands at start … end−1."""
    mail_ = bound.mail
    sorted_actions = bound.sorted_actions
    counts = sorted_actions.counts
    for place in range(mail_.counts[mail.WAITING]):
        action = mail_.actions[place]
        if action.what == mail.DELIVER:
            _sort_delivery(mail_, sorted_actions, action.a, action.b, start, end)
        elif action.what == mail.SEND:
            _sort_send(bound, action.slot, action.a)
        elif action.what == mail.MULTICAST:
            _sort_send(bound, action.slot, EVERYONE)
        elif action.what == mail.TIMER:
            _put(sorted_actions.timers, counts, TIMERS, action.a, action.b, action.delay_ns)
        elif action.what == mail.HELD_BACK:
            if action.b != 0:
                head = mail_.heads[INCOMING]
                _put(sorted_actions.kept, counts, KEPT, head.sender << 32 | head.sequence, start, end)
        else:
            counts[ERROR] = UNEXPECTED
    if mail_.counts[mail.OVERFLOW] != 0:
        counts[ERROR] = mail_.counts[mail.OVERFLOW]
    clear_outbox(mail_)


@linked
def _put(table, counts, which, a, b, c):
    place = counts[which]
    table[place, 0] = a
    table[place, 1] = b
    table[place, 2] = c
    counts[which] += 1


@linked
def _sort_delivery(mail_, sorted_actions, sender, sequence, start, end):
    """The record of a message being received or published is at hand; any other message was held back."""
    head = mail_.heads[INCOMING]
    if head.sequence != 0 and (head.sender != sender or head.sequence != sequence):
        start = NO_RECORD
        end = NO_RECORD
    _put(sorted_actions.deliveries, sorted_actions.counts, DELIVERIES, sender << 32 | sequence, start, end)


@linked
def _sort_send(bound, slot, rank):
    mail_ = bound.mail
    sorted_actions = bound.sorted_actions
    counts = sorted_actions.counts
    send = counts[SENDS]
    sorted_actions.sends[send, 0] = rank
    sorted_actions.sends[send, 1] = mail_.heads[slot].kind
    sorted_actions.sends[send, 2] = mail_.heads[slot].sender << 32 | mail_.heads[slot].sequence
    sorted_actions.sends[send, 3] = -1
    counts[SENDS] += 1
    # A message of the application already has its bytes; only a control message of the core is encoded from its
    # numbers, or a message whose numbers change at each hop.
    if mail_.heads[slot].sequence == 0 or bound.changes_numbers != 0:
        sorted_actions.sends[send, 3] = _copy_numbers(bound, slot)


@linked
def _copy_numbers(bound, slot):
    """Store the numbers of a message; returns their row."""
    sorted_actions = bound.sorted_actions
    row = sorted_actions.counts[ROWS]
    for j in range(sorted_actions.numbers.shape[1]):
        sorted_actions.numbers[row, j] = bound.mail.numbers[slot, j]
    sorted_actions.counts[ROWS] += 1
    return row
