"""Failure detection by polling (guo §3.1.1, the second scheme).

In every step a member multicasts POLL, and each receiver sends back ANSWER. A member is suspected when it answered none
of `threshold` polls in a row and sent no data message meanwhile. State and invariants: `silence`.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.models.failure import misses_allowed
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    draft,
    multicast,
    send,
)
from cubecast.protocol.messages import message, message_sizes
from cubecast.protocols.failure.silence import (
    DetectorParameters,
    age,
    begin_steps,
    hear,
    new_silence,
    new_streams,
)

POLL, ANSWER = range(2)
MESSAGES = (message("POLL"), message("ANSWER"))


class PollingState(NamedTuple):
    """Polling, one row per local member."""

    group: GroupState
    step_ns: int
    threshold: int
    sizes: np.ndarray
    silent: np.ndarray
    random: np.ndarray


def build(group: GroupState, context: Context, parameters: DetectorParameters) -> PollingState:
    """No member has been silent yet."""
    return PollingState(
        group=group,
        step_ns=round(parameters.step_ms * 1e6),
        threshold=parameters.threshold or 1,
        sizes=message_sizes(MESSAGES, context),
        silent=new_silence(group, context.members),
        random=new_streams(group, context.seed),
    )


@linked
def start(state, row, now_ns, mail):
    """Send the first poll within a step."""
    begin_steps(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """Answer a poll; note an answer."""
    source = mail.heads[slot].source
    if mail.heads[slot].kind == POLL:
        send(mail, draft(mail, ANSWER, -1, state.sizes[ANSWER]), source)
    else:
        hear(state, row, source)


@linked
def on_heard(state, row, now_ns, mail, rank):
    """A data message counts as an answer."""
    hear(state, row, rank)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """One step: suspect members that do not answer, and poll again."""
    age(state, row, mail)
    multicast(mail, draft(mail, POLL, -1, state.sizes[POLL]))


def _resolve(parameters: DetectorParameters, context: Context) -> DetectorParameters:
    if parameters.threshold is not None:
        return parameters
    allowed = misses_allowed(
        members=context.members, p_mistake=parameters.p_mistake, arrival=context.network.arrival**2
    )
    return replace(parameters, threshold=allowed)


PROTOCOL = Protocol(
    name="polling",
    title="Polling",
    family="failure",
    paper="guo §3.1.1",
    summary="every member polls every other",
    state=PollingState,
    messages=MESSAGES,
    parameters=DetectorParameters,
    build=build,
    resolve=_resolve,
    numbers=lambda _context, _parameters: 0,
)
