"""Neighbours tell each other what has arrived, and ask for what stays away: how trees that were cut grow together.

The lazy half of Plumtree (Leitão, Pereira and Rodrigues 2007, §3.3) for links that lose nothing: a message stays away
because somebody on its path died, or because members that got messages from each other wait for each other. A member
announces to each neighbour how much of every sender has arrived, HAVE(have), a while after something arrived and once
for each change. One that is told of more than it has, and has got nothing more of that sender when its patience ends,
asks whoever told it of most: ASK(have). That one sends all it has beyond, and pushes those senders' messages over the
link from now on.

| field       | shape    | meaning                                                                                 |
|-------------|----------|-----------------------------------------------------------------------------------------|
| announce_ns | –        | how long news is gathered; patience lasts twice as long                                 |
| announced   | rows × m | what the neighbours were told last                                                      |
| gathering   | rows     | does the timer run that ends in an announcement?                                        |
| told        | rows × m | the most that anybody said has arrived there                                            |
| teller      | rows × m | who said so                                                                             |
| awaited     | rows × m | what was told when the patience that lasts began                                        |
| begun       | rows × m | what had arrived then                                                                   |
| patient     | rows     | does the timer run that ends it?                                                        |
| asked       | rows × m | messages up to this one were asked for                                                  |

Invariants: each neighbour has been told `announced`, and the timer runs while that is not `have`. What was asked for
comes, unless the one asked dies; then all is told anew (`protocols.causal.stamped_tree.on_leave`). So once nothing is
under way, neighbours have the same. Timers end when there is nothing new.

Departure: an announcement speaks of all that has arrived, not of single messages.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.group import GroupState, copy_numbers
from cubecast.protocol.mail import send, set_timer
from cubecast.protocols.broadcast.peers import link_to, want
from cubecast.protocols.causal.hold_back import NOTHING_MORE, draft_have

HAVE, LINK, ASK = range(4, 7)  # kinds beside those of the trees
ANNOUNCE, PATIENCE = range(2)  # timers


class Announcements(NamedTuple):
    """What was told and asked, one row per local member."""

    announce_ns: int
    announced: np.ndarray
    gathering: np.ndarray
    told: np.ndarray
    teller: np.ndarray
    awaited: np.ndarray
    begun: np.ndarray
    patient: np.ndarray
    asked: np.ndarray


def new_announcements(group: GroupState, *, announce_ns: int) -> Announcements:
    """Nobody said anything."""
    rows = len(group.rank)
    return Announcements(
        announce_ns=announce_ns,
        announced=np.zeros(group.received.shape, np.int32),
        gathering=np.zeros(rows, np.int8),
        told=np.zeros(group.received.shape, np.int32),
        teller=np.full(group.received.shape, -1, np.int64),
        awaited=np.zeros(group.received.shape, np.int32),
        begun=np.zeros(group.received.shape, np.int32),
        patient=np.zeros(rows, np.int8),
        asked=np.zeros(group.received.shape, np.int32),
    )


@linked
def announce_later(news, row, mail):
    """Something arrived: the neighbours will be told."""
    if news.gathering[row] == 0:
        news.gathering[row] = 1
        set_timer(mail, ANNOUNCE, 0, news.announce_ns)


@linked
def announce(news, order, peers, row, mail):
    """Tell every neighbour what has arrived, if it is more than they were told."""
    news.gathering[row] = 0
    changed = False
    for sender in range(news.announced.shape[1]):
        changed = changed or order.have[row, sender] != news.announced[row, sender]
    if changed:
        tell_all(news, order, peers, row, mail, HAVE)


@linked
def tell_all(news, order, peers, row, mail, kind):
    """Tell every neighbour what has arrived."""
    copy_numbers(news.announced[row], order.have[row])
    slot = draft_have(order, row, mail, kind)
    for link in range(peers.offsets[row], peers.offsets[row + 1]):
        if peers.neighbours[link] >= 0:
            send(mail, slot, np.int64(peers.neighbours[link]))


@linked
def note_told(news, order, row, mail, slot):
    """Another said what has arrived there: remember who has most of each sender, and wait a while for it."""
    for sender in range(news.told.shape[1]):
        number = np.int64(mail.numbers[slot, sender])
        if number > order.have[row, sender] and number > news.told[row, sender]:
            news.told[row, sender] = number
            news.teller[row, sender] = mail.heads[slot].source
    wait_if_any_is_lacking(news, order, row, mail)


@linked
def wait_if_any_is_lacking(news, order, row, mail):
    """Patience begins with what is told now."""
    if news.patient[row] != 0:
        return
    for sender in range(news.told.shape[1]):
        if _is_lacking(news.told, news, order, row, sender):
            news.patient[row] = 1
            copy_numbers(news.awaited[row], news.told[row])
            copy_numbers(news.begun[row], order.have[row])
            set_timer(mail, PATIENCE, 0, 2 * news.announce_ns)
            return


@linked
def ask_for_awaited(news, order, peers, row, mail):
    """Patience is over: ask each of those who told of what still lacks, once for all senders it told of."""
    news.patient[row] = 0
    for sender in range(news.told.shape[1]):
        if _stays_away(news, order, row, sender):
            _ask(news, order, peers, row, mail, news.teller[row, sender])
    wait_if_any_is_lacking(news, order, row, mail)


@linked
def _ask(news, order, peers, row, mail, rank):
    """ASK(v): send me what you have beyond v, and what is to come."""
    wish = draft_have(order, row, mail, ASK)
    link = link_to(peers, row, rank)
    for sender in range(news.told.shape[1]):
        if news.teller[row, sender] == rank and _stays_away(news, order, row, sender):
            news.asked[row, sender] = news.told[row, sender]
            want(peers, link, sender, 1)
        else:
            mail.numbers[wish, sender] = NOTHING_MORE
    send(mail, wish, rank)


@linked
def _stays_away(news, order, row, sender):
    """Is something lacking that was awaited, and has nothing of its sender come since?"""
    return order.have[row, sender] == news.begun[row, sender] and _is_lacking(news.awaited, news, order, row, sender)


@linked
def _is_lacking(numbers, news, order, row, sender):
    """Is there more than has arrived, or was asked for?"""
    return numbers[row, sender] > order.have[row, sender] and numbers[row, sender] > news.asked[row, sender]


@linked
def forget_told(news, row):
    """Somebody died who may have been the one that told, or was asked."""
    for sender in range(news.told.shape[1]):
        news.told[row, sender] = 0
        news.awaited[row, sender] = 0
        news.asked[row, sender] = 0
