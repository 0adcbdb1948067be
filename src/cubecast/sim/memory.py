"""Estimate the memory that the state of all members takes, before it is allocated.

A protocol is built for four small groups; its bytes are a sum of terms in n², n·log2 n, n and 1, which the four sizes
determine. What usually exceeds the memory of a large group is a bitmap of the membership per member: n² bits.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cubecast.errors import LocalProtocolError
from cubecast.protocol.context import Context
from cubecast.protocol.definition import Protocol
from cubecast.protocol.group import new_group
from cubecast.protocol.messages import carry_sets
from cubecast.protocol.overlays import ring
from cubecast.protocols.catalogue import list_protocols
from cubecast.sim.scenario import Scenario

SAMPLES = (1024, 2048, 4096, 8192)
MEMBERS_MIN = 8192
"""Up to this size no protocol's bitmaps take more than a few MiB, and nothing is checked."""
GIB = 1 << 30


def check_memory(scenario: Scenario, context: Context, *, available: int | None = None) -> None:
    """Reject a group whose state exceeds the memory; the error names its size and the protocols that fit."""
    if scenario.members < MEMBERS_MIN:
        return
    limit = physical_memory() if available is None else available
    needed = sum(
        state_bytes(
            role.entry, getattr(scenario, role.field), replace(context, senders=scenario.senders_for(role.field))
        )
        for role in scenario.running.values()
    )
    if needed <= limit:
        return
    family = scenario.entry().family
    others = [one for one in list_protocols(family) if one.name != scenario.protocol]
    fitting = [one.name for one in others if _fits(one, context, limit)]
    raise LocalProtocolError(
        f"{scenario.protocol} with {scenario.members} members would take {needed / GIB:,.0f} GiB, its state is "
        f"quadratic, and this machine has {limit / GIB:,.0f} GiB: choose fewer members"
        + (f", or {', '.join(fitting)}" if fitting else ""),
        setting="members",
    )


def physical_memory() -> int:
    """Bytes of memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def state_bytes(protocol: Protocol, parameters: Any, context: Context) -> int:
    """The bytes of the states of all members, and of the sets in one message from each."""
    taken = [_sampled_bytes(protocol, parameters, context, size) for size in SAMPLES]
    weights = np.linalg.solve([_growth(size) for size in SAMPLES], taken)
    return max(0, round(float(weights @ _growth(context.members))))


def _growth(members: int) -> NDArray[np.float64]:
    """The terms of the sum: sets of ranks n², neighbours in a hypercube or a dissemination n·log2 n, arrays n; 1."""
    return np.array([members**2, members * np.log2(members), members, 1])


def _fits(protocol: Protocol, context: Context, limit: int) -> bool:
    parameters = protocol.resolve(protocol.parameters(), context)
    return state_bytes(protocol, parameters, context) <= limit


def _sampled_bytes(protocol: Protocol, parameters: Any, context: Context, members: int) -> int:
    senders = context.senders
    if senders > min(SAMPLES):  # in the same proportion
        senders = max(1, senders * members // context.members)
    overlay = ring(members)
    small = replace(
        context,
        members=members,
        senders=senders,
        overlay=overlay,
        link_failure=np.zeros(len(overlay.neighbours)),
        local_groups=None,
    )
    group = new_group(members=members, senders=senders, ranks=np.arange(members))
    one_set = group.members._replace(sets=group.members.sets[:1])  # all share one set: room for more is never used
    state = protocol.build(group._replace(members=one_set), small, parameters)
    carried = -(-members // 64) * 8 * members if carry_sets(protocol.messages) else 0
    return _bytes_of(state) + carried


def _bytes_of(value: Any) -> int:
    """The arrays of a state, at any depth."""
    if isinstance(value, tuple):
        return sum(map(_bytes_of, value))
    return value.nbytes if isinstance(value, np.ndarray) else 0
