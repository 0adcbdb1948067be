"""Neighbours announce what has arrived and request what is missing: this repairs trees that a crash has cut.

The lazy half of Plumtree (Leitão, Pereira and Rodrigues 2007, §3.3) for links that lose nothing. A message is missing
because a member on its path crashed, or because members that provide messages to each other wait for each other. A
member announces to each neighbour how many messages of every sender have arrived, HAVE(have), some time after an
arrival and once per change. A member that learns of newer messages and receives nothing more of that sender before its
timer expires sends ASK(have) to the neighbour that announced the most. That neighbour sends everything it has beyond
`have`, and pushes those senders' messages over the link from then on.

| field       | shape    | meaning                                                                                 |
|-------------|----------|-----------------------------------------------------------------------------------------|
| announce_ns | –        | how long announcements are batched; the wait for missing messages is twice as long      |
| announced   | rows × m | what this member last announced                                                         |
| gathering   | rows     | is the timer for the next announcement running?                                         |
| known       | rows × m | the highest number that a neighbour announced                                           |
| holder      | rows × m | the neighbour that announced it                                                         |
| awaited     | rows × m | `known` when the present wait began                                                     |
| begun       | rows × m | what had arrived then                                                                   |
| waiting     | rows     | is the timer of that wait running?                                                      |
| requested   | rows × m | messages up to this one were requested                                                  |

Invariants: each neighbour was sent `announced`, and the timer runs while that differs from `have`. A requested message
arrives, unless the member that holds it crashes; then every member announces again
(`protocols.causal.stamped_tree.on_leave`). So once nothing is in transit, neighbours have the same messages. No timer
runs when there is nothing new.

Departure: an announcement covers everything that has arrived, not single messages.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.group import GroupState, copy_numbers
from cubecast.protocol.mail import send, set_timer
from cubecast.protocols.broadcast.peers import link_to, want
from cubecast.protocols.causal.hold_back import NOTHING_MORE, draft_have

HAVE, LINK, ASK = range(4, 7)  # kinds beside those of the trees
ANNOUNCE, OVERDUE = range(2)  # timers


class Announcements(NamedTuple):
    """What was announced and requested, one row per local member."""

    announce_ns: int
    announced: np.ndarray
    gathering: np.ndarray
    known: np.ndarray
    holder: np.ndarray
    awaited: np.ndarray
    begun: np.ndarray
    waiting: np.ndarray
    requested: np.ndarray


def new_announcements(group: GroupState, *, announce_ns: int) -> Announcements:
    """Nothing announced yet."""
    rows = len(group.rank)
    return Announcements(
        announce_ns=announce_ns,
        announced=np.zeros(group.received.shape, np.int32),
        gathering=np.zeros(rows, np.int8),
        known=np.zeros(group.received.shape, np.int32),
        holder=np.full(group.received.shape, -1, np.int64),
        awaited=np.zeros(group.received.shape, np.int32),
        begun=np.zeros(group.received.shape, np.int32),
        waiting=np.zeros(rows, np.int8),
        requested=np.zeros(group.received.shape, np.int32),
    )


@linked
def announce_later(news, row, mail):
    """A message arrived: announce it to the neighbours later."""
    if news.gathering[row] == 0:
        news.gathering[row] = 1
        set_timer(mail, ANNOUNCE, 0, news.announce_ns)


@linked
def announce(news, order, peers, row, mail):
    """Announce what has arrived, if it is more than was announced before."""
    news.gathering[row] = 0
    changed = False
    for sender in range(news.announced.shape[1]):
        changed = changed or order.have[row, sender] != news.announced[row, sender]
    if changed:
        announce_to_all(news, order, peers, row, mail, HAVE)


@linked
def announce_to_all(news, order, peers, row, mail, kind):
    """Announce to every neighbour what has arrived."""
    copy_numbers(news.announced[row], order.have[row])
    slot = draft_have(order, row, mail, kind)
    for link in range(peers.offsets[row], peers.offsets[row + 1]):
        if peers.neighbours[link] >= 0:
            send(mail, slot, np.int64(peers.neighbours[link]))


@linked
def note_announcement(news, order, row, mail, slot):
    """A neighbour announced what has arrived there: record who has most of each sender, and wait for it."""
    for sender in range(news.known.shape[1]):
        number = np.int64(mail.numbers[slot, sender])
        if number > order.have[row, sender] and number > news.known[row, sender]:
            news.known[row, sender] = number
            news.holder[row, sender] = mail.heads[slot].source
    wait_if_any_is_missing(news, order, row, mail)


@linked
def wait_if_any_is_missing(news, order, row, mail):
    """Start the wait for the messages known now."""
    if news.waiting[row] != 0:
        return
    for sender in range(news.known.shape[1]):
        if _is_missing(news.known, news, order, row, sender):
            news.waiting[row] = 1
            copy_numbers(news.awaited[row], news.known[row])
            copy_numbers(news.begun[row], order.have[row])
            set_timer(mail, OVERDUE, 0, 2 * news.announce_ns)
            return


@linked
def request_overdue(news, order, peers, row, mail):
    """The wait is over: request the missing messages, with one ASK per neighbour that announced any of them."""
    news.waiting[row] = 0
    for sender in range(news.known.shape[1]):
        if _is_overdue(news, order, row, sender):
            _request(news, order, peers, row, mail, news.holder[row, sender])
    wait_if_any_is_missing(news, order, row, mail)


@linked
def _request(news, order, peers, row, mail, rank):
    """ASK(v): send me what you have beyond v, and later messages too."""
    request = draft_have(order, row, mail, ASK)
    link = link_to(peers, row, rank)
    for sender in range(news.known.shape[1]):
        if news.holder[row, sender] == rank and _is_overdue(news, order, row, sender):
            news.requested[row, sender] = news.known[row, sender]
            want(peers, link, sender, 1)
        else:
            mail.numbers[request, sender] = NOTHING_MORE
    send(mail, request, rank)


@linked
def _is_overdue(news, order, row, sender):
    """Is an awaited message missing, and has nothing of its sender arrived since?"""
    return order.have[row, sender] == news.begun[row, sender] and _is_missing(news.awaited, news, order, row, sender)


@linked
def _is_missing(numbers, news, order, row, sender):
    """Does any sender have messages that neither arrived here nor were requested?"""
    return numbers[row, sender] > order.have[row, sender] and numbers[row, sender] > news.requested[row, sender]


@linked
def forget_announcements(news, row):
    """A member crashed that may have announced messages or received a request for them: start again."""
    for sender in range(news.known.shape[1]):
        news.known[row, sender] = 0
        news.awaited[row, sender] = 0
        news.requested[row, sender] = 0
