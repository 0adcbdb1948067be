"""Failure detection by polling (guo §3.1.1, the second scheme).

Every step a member multicasts POLL, and whoever gets it sends back ANSWER. A member that answered none of `threshold`
polls in a row, and sent no data message meanwhile, is suspected. State and invariants: `silence`.
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.group import Group
from cubecast.protocol.mail import (
    HEADER_BYTES,
    draft,
    multicast,
    send,
)
from cubecast.protocols.failure.silence import (
    age,
    begin_steps,
    hear,
    new_silence,
    new_streams,
)

POLL, ANSWER = range(2)


class PollingState(NamedTuple):
    """Polling, one row per local member."""

    group: Group
    step_ns: int
    threshold: int
    silent: np.ndarray
    random: np.ndarray


def new_state(group: Group, *, members: int, step_ns: int, threshold: int, seed: int) -> PollingState:
    """Nobody was asked yet."""
    return PollingState(
        group=group,
        step_ns=step_ns,
        threshold=threshold,
        silent=new_silence(group, members),
        random=new_streams(group, seed),
    )


@linked
def start(state, row, now_ns, mail):
    """The first poll comes within a step."""
    begin_steps(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Answer a poll; note an answer."""
    source = mail.heads[slot].source
    if mail.heads[slot].kind == POLL:
        send(mail, draft(mail, ANSWER, -1, HEADER_BYTES), source)
    else:
        hear(state, row, source)


@linked
def on_heard(state, row, now_ns, mail, rank):
    """A data message is as good as an answer."""
    hear(state, row, rank)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """A step: suspect those who do not answer, and ask again."""
    age(state, row, mail)
    multicast(mail, draft(mail, POLL, -1, HEADER_BYTES))
