"""The events of a trace: one schema for simulated, fuzzed and live runs.

A trace is a table with one row per event, in execution order (`EVENT_DTYPE`, 64 bytes per row). docs/trace.md explains
every column and event. The events of membership (views, state transfer, restarts) reuse the columns: see the table
there.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np
import numpy.typing as npt

Events = npt.NDArray[np.void]

# Plain integers, because a compiled kernel reads them as constants.
SEND = 0
HOP = 1
DROP = 2
RECEIVE = 3
DELIVER = 4
STABLE = 5
CRASH = 6
RECOVER = 7
EXCLUDE = 8
ROUND = 9
DONE = 10
INSTALL = 11
VIEW = 12
RESTORE = 13
HOLD = 14
MULTICAST = 15
SENT = 16
RETURNED = 17
LEAVE = 18
EXCLUDED = 19
BLOCKED = 20
UNBLOCKED = 21
RESTART = 22
RESTARTED = 23
CAUSAL = 24

CONTROL = 0
DATA = 1
FAILURE = 2

NOBODY = -1
EVERYONE = -2  # peer of the one send row of a tree multicast


class Event(IntEnum):
    """What a row of the trace records."""

    SEND = SEND
    HOP = HOP
    DROP = DROP
    RECEIVE = RECEIVE
    DELIVER = DELIVER
    STABLE = STABLE
    CRASH = CRASH
    RECOVER = RECOVER
    EXCLUDE = EXCLUDE
    ROUND = ROUND
    DONE = DONE
    INSTALL = INSTALL
    VIEW = VIEW
    RESTORE = RESTORE
    HOLD = HOLD
    MULTICAST = MULTICAST
    SENT = SENT
    RETURNED = RETURNED
    LEAVE = LEAVE
    EXCLUDED = EXCLUDED
    BLOCKED = BLOCKED
    UNBLOCKED = UNBLOCKED
    RESTART = RESTART
    RESTARTED = RESTARTED
    CAUSAL = CAUSAL


EVENT_NAMES = tuple(event.name.lower() for event in Event)
LAYER_NAMES = ("control", "data", "failure")
NAMES = {"event": EVENT_NAMES, "layer": LAYER_NAMES}

EVENT_DTYPE = np.dtype(
    [
        ("time_ns", np.int64),
        ("event", np.int8),
        ("member", np.int32),
        ("peer", np.int32),
        ("message", np.int64),
        ("sender", np.int32),
        ("sequence", np.int32),
        ("round", np.int32),
        ("link", np.int32),
        ("entered_ns", np.int64),
        ("size", np.int32),
        ("layer", np.int8),
    ],
    align=True,
)


def blank_events(count: int) -> Events:
    """Return `count` rows with every column at the value that means "does not apply"."""
    events = np.zeros(count, EVENT_DTYPE)
    for column in ("member", "peer", "message", "sender", "round", "link"):
        events[column] = NOBODY
    return events
