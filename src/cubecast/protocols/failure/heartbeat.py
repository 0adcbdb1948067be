"""Failure detection by heartbeat (guo §3.1.1, the first scheme).

In every step a member multicasts "I am alive". A member is suspected when neither a heartbeat nor a data message has
arrived from it for `threshold` steps. State and invariants: `silence`.
"""

from dataclasses import replace
from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.models.failure import misses_allowed
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import draft, multicast
from cubecast.protocol.messages import message, message_sizes
from cubecast.protocols.failure.silence import (
    DetectorParameters,
    age,
    begin_steps,
    hear,
    new_silence,
    new_streams,
)

HEARTBEAT = 0
MESSAGES = (message("HEARTBEAT"),)


class HeartbeatState(NamedTuple):
    """Heartbeats, one row per local member."""

    group: GroupState
    step_ns: int
    threshold: int
    sizes: np.ndarray
    silent: np.ndarray
    random: np.ndarray


def build(group: GroupState, context: Context, parameters: DetectorParameters) -> HeartbeatState:
    """No member has been silent yet."""
    return HeartbeatState(
        group=group,
        step_ns=round(parameters.step_ms * 1e6),
        threshold=parameters.threshold or 1,
        sizes=message_sizes(MESSAGES, context),
        silent=new_silence(group, context.members),
        random=new_streams(group, context.seed),
    )


@linked
def start(state, row, now_ns, mail):
    """Send the first heartbeat within a step."""
    begin_steps(state, row, mail)


@linked
def receive(state, row, now_ns, mail, slot):
    """A heartbeat."""
    hear(state, row, mail.heads[slot].source)


@linked
def on_heard(state, row, now_ns, mail, rank):
    """A data message counts as a heartbeat."""
    hear(state, row, rank)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """One step: suspect silent members, and multicast a heartbeat."""
    age(state, row, mail)
    multicast(mail, draft(mail, HEARTBEAT, -1, state.sizes[HEARTBEAT]))


def _resolve(parameters: DetectorParameters, context: Context) -> DetectorParameters:
    if parameters.threshold is not None:
        return parameters
    allowed = misses_allowed(members=context.members, p_mistake=parameters.p_mistake, arrival=context.network.arrival)
    return replace(parameters, threshold=allowed)


PROTOCOL = Protocol(
    name="heartbeat",
    title="Heartbeat",
    family="failure",
    paper="guo §3.1.1",
    summary="every member multicasts that it is alive",
    state=HeartbeatState,
    messages=MESSAGES,
    parameters=DetectorParameters,
    build=build,
    resolve=_resolve,
    numbers=lambda _context, _parameters: 0,
)
