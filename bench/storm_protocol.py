"""The hypercube-neighbour storm as a protocol: every member sends a packet to each logical neighbour in every burst.

| field      | shape | meaning                                                              |
|------------|-------|----------------------------------------------------------------------|
| neighbours | links | the neighbours of row i are `offsets[i]` … `offsets[i + 1] − 1`      |
| missing    | rows  | packets that have not arrived yet; the storm is over when all have   |
"""

from typing import NamedTuple

import numpy as np

from cubecast.jit.decorators import linked
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import GroupState
from cubecast.protocol.mail import (
    begin_round,
    draft,
    end_round,
    send,
    set_timer,
)
from cubecast.protocol.overlays import hypercube
from cubecast.protocol.parameters import NoParameters
from cubecast.protocols.catalogue import add_protocol

PACKET_BYTES = 232
BURST_NS = 1_000_000


class StormState(NamedTuple):
    """The storm, one row per member."""

    group: GroupState
    bursts: int
    offsets: np.ndarray
    neighbours: np.ndarray
    missing: np.ndarray


@linked
def start(state, row, now_ns, mail):
    """The first burst."""
    begin_round(mail, 1)
    on_timer(state, row, now_ns, mail, 0, 1)


@linked
def on_timer(state, row, now_ns, mail, timer, tag):
    """Send one burst, and schedule the next one a millisecond later."""
    slot = draft(mail, 0, 1, PACKET_BYTES)
    for link in range(state.offsets[row], state.offsets[row + 1]):
        send(mail, slot, np.int64(state.neighbours[link]))
    if tag < state.bursts:
        set_timer(mail, 0, tag + 1, BURST_NS)


@linked
def receive(state, row, now_ns, mail, slot):
    """Count what arrives."""
    state.missing[row] -= 1
    if state.missing[row] == 0:
        end_round(mail, 1)


def add_storm(bursts: int) -> None:
    """Add a storm of this many bursts as the protocol `storm`."""

    def build(group: GroupState, context: Context, parameters: NoParameters) -> StormState:
        overlay = hypercube(context.members)
        degrees = np.diff(overlay.offsets).astype(np.int64)
        return StormState(group, bursts, overlay.offsets, overlay.neighbours, degrees * bursts)

    add_protocol(
        Protocol(
            name="storm",
            title="Storm",
            family="stability",
            paper="cube §3.1",
            summary="every member sends to its hypercube neighbours, burst after burst",
            state=StormState,
            build=build,
        )
    )
