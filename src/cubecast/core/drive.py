"""How one live member calls its cores: one message, timer or event at a time, or a whole batch of data messages.

The simulator's kernel carries out actions in compiled code. A live member carries them out in Python, so what crosses
the border must be little: `call` leaves the actions of one event in the outbox of `mail`, and `receive_batch` and
`publish_batch` run a data core over many messages and leave behind only what Python must do, sorted:

| field      | shape    | meaning                                                                              |
|------------|----------|--------------------------------------------------------------------------------------|
| deliveries | room × 3 | messages for the application in order: sender << 32 | sequence, START, END         |
| sends      | room × 4 | destination (−1: every other member), kind, sender << 32 | sequence, numbers row or −1 |
| numbers    | room × m | the arrays that some sends carry                                                    |
| counts     | 4        | deliveries, sends, rows of `numbers`, trouble                                       |

All three take a `Driver` by its handle (`hold`). Its core is given as `bind` makes it, alone and with its one member in
row 0. The message being received stands in the slot `INCOMING` of the pool, which is never handed out.

Invariants: the caller makes `room` so large that the actions of one message always fit; a batch stops before a
message for which that is not sure, and says how many it took. What a core delivers while it receives a record is that
record: a live member keeps no message that its core holds back.
"""

from typing import NamedTuple

import numpy as np

from cubecast.core import dispatch, mail
from cubecast.core.bound import call_bound
from cubecast.core.compiled import held_at, internal, jit
from cubecast.core.dispatch import PUBLISH, RECEIVE
from cubecast.core.mail import Mail, clear_outbox

INCOMING = 1
DELIVERIES, SENDS, ROWS, TROUBLE = range(4)
EVERYONE = -1
UNEXPECTED = 9
"""Trouble: the data core asked for something that a live member does not do for data (a timer, a round, delivering
what came earlier)."""
NO_RECORD = -1

# Columns of a table of records, as the wire decodes them.
KIND, SENDER, SEQUENCE, START, NUMBERS, PAYLOAD, END = range(7)
COLUMNS = 7


class Sorted(NamedTuple):
    """What a data core asked for; see the module."""

    deliveries: np.ndarray
    sends: np.ndarray
    numbers: np.ndarray
    counts: np.ndarray


class Driver(NamedTuple):
    """What a call works on: one core as it is bound, its mail, and its actions sorted (empty for a control core)."""

    cores: np.ndarray
    mail: Mail
    sorted_actions: Sorted


def new_member_mail(*, width: int, words: int, room: int) -> Mail:
    """A pool for one live member; the slot of the incoming message is set apart."""
    made = mail.new_mail(slots=room + 2, width=width, words=words, room=room)
    made.counts[mail.USED] = INCOMING + 1
    return made


def new_sorted(*, width: int, room: int) -> Sorted:
    """Room for the actions of several messages."""
    return Sorted(
        deliveries=np.zeros((room, 3), np.int64),
        sends=np.zeros((room, 4), np.int64),
        numbers=np.zeros((room, max(width, 1)), np.int32),
        counts=np.zeros(4, np.int64),
    )


@jit
def call(handle, now_ns, what, a, b):
    """Call a core for one thing; its actions are then in the outbox, those of the last call are gone."""
    driver = held_at(handle, Driver)
    clear_outbox(driver.mail)
    call_bound(driver.cores, 0, 0, now_ns, what, a, b)


@jit
def receive_batch(handle, now_ns, source, body, table, first, last):
    """Receive the records first … last−1 of a batch; returns one past the last that was taken."""
    driver = held_at(handle, Driver)
    _reset(driver.sorted_actions)
    k = first
    while k < last and _has_room(driver):
        _put_incoming(driver.mail, body, table, source, k)
        call_bound(driver.cores, 0, 0, now_ns, RECEIVE, INCOMING, 0)
        _sort_actions(driver.mail, driver.sorted_actions, table[k, START], table[k, END])
        k += 1
    return k


@jit
def publish_batch(handle, now_ns, count):
    """Publish up to `count` messages of this member; returns how many were taken."""
    driver = held_at(handle, Driver)
    _reset(driver.sorted_actions)
    k = 0
    while k < count and _has_room(driver):
        call_bound(driver.cores, 0, 0, now_ns, PUBLISH, 0, 0)
        _sort_actions(driver.mail, driver.sorted_actions, NO_RECORD, NO_RECORD)
        k += 1
    return k


@jit
def leave_batch(handle, now_ns, rank):
    """Tell a data core that a rank left the membership."""
    driver = held_at(handle, Driver)
    _reset(driver.sorted_actions)
    call_bound(driver.cores, 0, 0, now_ns, dispatch.LEAVE, rank, 0)
    _sort_actions(driver.mail, driver.sorted_actions, NO_RECORD, NO_RECORD)


@internal
def _has_room(driver):
    """Is there room for the actions of one more message?"""
    counts = driver.sorted_actions.counts
    room = driver.sorted_actions.deliveries.shape[0] - driver.mail.actions.shape[0]
    return max(counts[DELIVERIES], counts[SENDS]) <= room


@internal
def _reset(sorted_actions):
    for place in range(sorted_actions.counts.shape[0]):
        sorted_actions.counts[place] = 0


@internal
def _put_incoming(mail, body, table, source, k):
    """Copy record k of the batch into the slot of the incoming message."""
    mail.heads[INCOMING].kind = table[k, KIND]
    mail.heads[INCOMING].round_number = -1
    mail.heads[INCOMING].iteration = 0
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


@internal
def _sort_actions(mail_, sorted_actions, start, end):
    """Take the actions out of the outbox, in order. The record being received stands at start … end−1."""
    counts = sorted_actions.counts
    for place in range(mail_.counts[mail.WAITING]):
        action = mail_.actions[place]
        if action.what == mail.DELIVER:
            _sort_delivery(mail_, sorted_actions, action.a, action.b, start, end)
        elif action.what == mail.SEND:
            _sort_send(mail_, sorted_actions, action.slot, action.a)
        elif action.what == mail.MULTICAST:
            _sort_send(mail_, sorted_actions, action.slot, EVERYONE)
        elif action.what != mail.HELD_BACK:
            counts[TROUBLE] = UNEXPECTED
    if mail_.counts[mail.OVERFLOW] != 0:
        counts[TROUBLE] = mail_.counts[mail.OVERFLOW]
    clear_outbox(mail_)


@internal
def _sort_delivery(mail_, sorted_actions, sender, sequence, start, end):
    counts = sorted_actions.counts
    head = mail_.heads[INCOMING]
    if start != NO_RECORD and (head.sender != sender or head.sequence != sequence):
        counts[TROUBLE] = UNEXPECTED
    delivery = counts[DELIVERIES]
    sorted_actions.deliveries[delivery, 0] = sender << 32 | sequence
    sorted_actions.deliveries[delivery, 1] = start
    sorted_actions.deliveries[delivery, 2] = end
    counts[DELIVERIES] += 1


@internal
def _sort_send(mail_, sorted_actions, slot, rank):
    counts = sorted_actions.counts
    send = counts[SENDS]
    sorted_actions.sends[send, 0] = rank
    sorted_actions.sends[send, 1] = mail_.heads[slot].kind
    sorted_actions.sends[send, 2] = mail_.heads[slot].sender << 32 | mail_.heads[slot].sequence
    sorted_actions.sends[send, 3] = -1
    counts[SENDS] += 1
    # A message of the application already has its bytes; only a message of the core's own is written from its numbers.
    if mail_.heads[slot].sequence == 0:
        row = counts[ROWS]
        for j in range(sorted_actions.numbers.shape[1]):
            sorted_actions.numbers[row, j] = mail_.numbers[slot, j]
        sorted_actions.sends[send, 3] = row
        counts[ROWS] += 1
